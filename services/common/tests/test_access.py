"""The decision cache by tables and virtual moments, the shell around it with a backend that can be made to fail."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common import clock
from kruntimes.common.access import REVIEW_PATH, Access, DecisionCache, Question, Verdict, bearer
from kruntimes.common.decisions import ALLOW_SECONDS, REFUSE_SECONDS, cache_key, expiry
from kruntimes.common.errors import NotReady
from kruntimes.common.kube.errors import ApiError, Forbidden, ServerError, Unauthorized, Unreachable

RUN = Question(verb="get", group="kruntimes.io", resource="runs", subresource="", namespace="team-a", name="hello")
UID = "2c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"


def jwt(claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'RS256'})}.{part(claims)}.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("header", "token"),
    [
        pytest.param("Bearer abc", "abc", id="plain"),
        pytest.param("bearer a.b-c_d~e+f/g==", "a.b-c_d~e+f/g==", id="every-character-and-any-case"),
        pytest.param("Bearer   abc", "abc", id="several-spaces"),
        pytest.param(None, None, id="no-header"),
        pytest.param("", None, id="empty"),
        pytest.param("Bearer ", None, id="no-token"),
        pytest.param("Basic abc", None, id="other-scheme"),
        pytest.param("Bearerabc", None, id="no-space"),
        pytest.param("Bearer abc def", None, id="two-words"),
        pytest.param("Bearer abc,Bearer def", None, id="two-headers-joined"),
        pytest.param("Bearer abc\n", None, id="line-end"),
        pytest.param("Bearer äbc", None, id="not-ascii"),
    ],
)
def test_bearer(header: str | None, token: str | None) -> None:
    assert bearer(header) == token


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        pytest.param(jwt({"exp": 1700000000, "sub": "x"}), 1700000000.0, id="whole"),
        pytest.param(jwt({"exp": 1700000000.5}), 1700000000.5, id="fraction"),
        pytest.param(jwt({"sub": "x"}), None, id="no-exp"),
        pytest.param(jwt({"exp": "soon"}), None, id="exp-is-text"),
        pytest.param(jwt([1, 2]), None, id="not-an-object"),
        pytest.param("opaque", None, id="opaque"),
        pytest.param("a.b", None, id="two-parts"),
        pytest.param("a.%%%.c", None, id="not-base64"),
        pytest.param("a..c", None, id="empty-claims"),
    ],
)
def test_expiry_is_read_of_a_jwt_only(token: str, expected: float | None) -> None:
    assert expiry(token) == expected


def test_every_part_of_what_is_asked_makes_another_key() -> None:
    other = "3c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"
    keys = {cache_key("t", RUN, UID), cache_key("u", RUN, UID), cache_key("t", RUN, other)}
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    for field in fields:
        values = {f: getattr(RUN, f) for f in fields} | {field: "changed"}
        keys.add(cache_key("t", Question(**values), UID))
    assert len(keys) == 3 + len(fields)
    assert all(b"hidden" not in cache_key("hidden", RUN, UID) for _ in keys)


@pytest.mark.parametrize(
    ("verdict", "token_expiry", "until"),
    [
        pytest.param(Verdict.ALLOW, None, ALLOW_SECONDS, id="granted"),
        pytest.param(Verdict.FORBIDDEN, None, REFUSE_SECONDS, id="forbidden"),
        pytest.param(Verdict.UNAUTHENTICATED, None, REFUSE_SECONDS, id="unauthenticated"),
        pytest.param(Verdict.ALLOW, 1000.0 + 7, 7.0, id="never-past-the-token"),
        pytest.param(Verdict.ALLOW, 1000.0 + 900, ALLOW_SECONDS, id="token-outlives-it"),
        pytest.param(Verdict.FORBIDDEN, 1000.0 + 2, 2.0, id="refusal-never-past-the-token"),
    ],
)
def test_a_verdict_holds_until(verdict: Verdict, token_expiry: float | None, until: float) -> None:
    cache = DecisionCache()
    cache.put(b"k", verdict, now=50.0, wall=1000.0, expiry=token_expiry)
    assert cache.get(b"k", now=50.0, wall=1000.0) is verdict
    just_before = until - 0.001
    assert cache.get(b"k", now=50.0 + just_before, wall=1000.0 + just_before) is verdict
    assert cache.get(b"k", now=50.0 + until, wall=1000.0 + until) is None
    assert len(cache) == 0


def test_a_step_of_the_wall_clock_ends_what_its_token_does_not_outlive() -> None:
    cache = DecisionCache()
    cache.put(b"k", Verdict.ALLOW, now=50.0, wall=1000.0, expiry=1020.0)
    assert cache.get(b"k", now=51.0, wall=1021.0) is None


def test_a_verdict_on_an_expired_token_is_not_kept_and_ends_the_old_one() -> None:
    cache = DecisionCache()
    cache.put(b"k", Verdict.ALLOW, now=50.0, wall=1000.0, expiry=1010.0)
    cache.put(b"k", Verdict.UNAUTHENTICATED, now=50.0, wall=1000.0, expiry=999.0)
    assert cache.get(b"k", now=50.0, wall=1000.0) is None


def test_refusals_push_out_no_grant() -> None:
    cache = DecisionCache(allowed_entries=2, refused_entries=3)
    cache.put(b"granted", Verdict.ALLOW, now=0.0, wall=0.0, expiry=None)
    for n in range(100):
        cache.put(b"stranger-%d" % n, Verdict.UNAUTHENTICATED, now=0.0, wall=0.0, expiry=None)
    assert cache.get(b"granted", now=0.0, wall=0.0) is Verdict.ALLOW
    assert len(cache) == 4


def test_the_least_recently_used_gives_way() -> None:
    cache = DecisionCache(allowed_entries=2)
    for key in (b"a", b"b"):
        cache.put(key, Verdict.ALLOW, now=0.0, wall=0.0, expiry=None)
    cache.get(b"a", now=1.0, wall=1.0)
    cache.put(b"c", Verdict.ALLOW, now=1.0, wall=1.0, expiry=None)
    assert [cache.get(k, now=1.0, wall=1.0) for k in (b"a", b"b", b"c")] == [Verdict.ALLOW, None, Verdict.ALLOW]


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c", b"d"]),
            st.sampled_from(list(Verdict)),
            st.floats(0, 20),
            st.none() | st.floats(0, 100),
        ),
        max_size=30,
    )
)
def test_never_more_entries_and_never_longer_than_allowed(
    steps: list[tuple[bytes, Verdict, float, float | None]],
) -> None:
    cache, now, last = DecisionCache(allowed_entries=2, refused_entries=1), 0.0, {}
    for key, verdict, pause, token_expiry in steps:
        now += pause
        known = cache.get(key, now=now, wall=now)
        if known is not None:
            put_at, put_verdict, put_expiry = last[key]
            assert known is put_verdict
            assert now - put_at < (ALLOW_SECONDS if known is Verdict.ALLOW else REFUSE_SECONDS)
            assert put_expiry is None or now < put_expiry
        cache.put(key, verdict, now=now, wall=now, expiry=token_expiry)
        last[key] = (now, verdict, token_expiry)
        assert len(cache) <= 3


class Backend:
    """An API server's answers to reviews: `answer` is awaited for each, and says what comes of it."""

    def __init__(self, answer: Callable[[], Awaitable[object]]) -> None:
        self.answer = answer
        self.calls: list[tuple[str, str, object, str | None]] = []
        self.ended = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | bytes | None = None,
        content_type: str = "",
        accept: str = "",
        timeout: float = 0.0,
        token: str | None = None,
    ) -> bytes:
        self.calls.append((method, path, body, token))
        try:
            return json.dumps(await self.answer()).encode()
        finally:
            self.ended += 1


def allowed(value: object) -> Callable[[], Awaitable[object]]:
    async def answer() -> object:
        return {"status": {"allowed": value}}

    return answer


def failing(error: Exception) -> Callable[[], Awaitable[object]]:
    async def answer() -> object:
        raise error

    return answer


@asynccontextmanager
async def serving(backend: Backend, **bounds: int):  # type: ignore[no-untyped-def]
    counts: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        yield Access(backend, tasks=tasks, count=counts.append, **bounds), counts


def failed(status: int, kind: type[ApiError]) -> Exception:
    return kind(status=status, reason="Reason", message="message")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(allowed(True), Verdict.ALLOW, id="allowed"),
        pytest.param(allowed(False), Verdict.FORBIDDEN, id="refused"),
        pytest.param(failing(failed(401, Unauthorized)), Verdict.UNAUTHENTICATED, id="401-is-an-answer"),
    ],
)
async def test_what_is_asked_and_what_comes_of_it(answer: Callable[[], Awaitable[object]], expected: Verdict) -> None:
    backend = Backend(answer)
    async with serving(backend) as (access, counts):
        for _ in range(3):
            assert await access.check("secret", RUN, uid=UID) is expected
    assert counts == ["review", "hit", "hit"]
    [(method, path, body, token)] = backend.calls
    assert (method, path, token) == ("POST", REVIEW_PATH, "secret")
    assert body == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "verb": "get",
                "group": "kruntimes.io",
                "resource": "runs",
                "namespace": "team-a",
                "name": "hello",
            }
        },
    }


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(failing(failed(403, Forbidden)), id="403-on-the-review-itself"),
        pytest.param(failing(failed(500, ServerError)), id="500"),
        pytest.param(failing(failed(0, Unreachable)), id="no-answer"),
        pytest.param(failing(TimeoutError()), id="timeout"),
        pytest.param(failing(RuntimeError("secret")), id="anything"),
        pytest.param(allowed(None), id="answer-without-a-verdict"),
        pytest.param(allowed("true"), id="verdict-is-no-boolean"),
    ],
)
async def test_no_verdict_is_not_ready_and_not_remembered(answer: Callable[[], Awaitable[object]]) -> None:
    backend = Backend(answer)
    async with serving(backend) as (access, counts):
        with pytest.raises(NotReady) as raised:
            await access.check("secret", RUN, uid=UID)
        backend.answer = allowed(True)
        assert await access.check("secret", RUN, uid=UID) is Verdict.ALLOW
    assert counts == ["review", "error", "review"]
    assert "secret" not in str(raised.value)


async def test_a_question_whose_answer_is_not_kept_is_asked_each_time() -> None:
    backend = Backend(allowed(True))
    async with serving(backend) as (access, _):
        for _ in range(2):
            assert await access.check("t", RUN, uid=UID, cache=False) is Verdict.ALLOW
        assert await access.check("t", RUN, uid=UID) is Verdict.ALLOW
    assert len(backend.calls) == 3


async def test_a_refusal_is_kept_whatever_it_is_about() -> None:
    """A second try is as fast for what exists as for what does not."""
    backend = Backend(allowed(False))
    async with serving(backend) as (access, counts):
        for _ in range(2):
            assert await access.check("t", RUN, uid=UID, cache=False) is Verdict.FORBIDDEN
    assert counts == ["review", "hit"]


async def test_a_hit_does_not_suspend() -> None:
    async with serving(Backend(allowed(True))) as (access, _):
        await access.check("t", RUN, uid=UID)
        with pytest.raises(StopIteration) as stopped:
            access.check("t", RUN, uid=UID).send(None)
        assert stopped.value.value is Verdict.ALLOW


async def test_an_expired_claim_is_reviewed_each_time() -> None:
    backend = Backend(allowed(True))
    token = jwt({"exp": clock.wall() - 60})
    async with serving(backend) as (access, _):
        for _ in range(2):
            assert await access.check(token, RUN, uid=UID) is Verdict.ALLOW
    assert len(backend.calls) == 2


class Gate:
    """An answer that is given when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self) -> object:
        self.asked.set()
        await self.open.wait()
        return {"status": {"allowed": True}}


async def test_concurrent_misses_share_one_review() -> None:
    gate = Gate()
    backend = Backend(gate)
    async with serving(backend) as (access, counts):
        callers = [asyncio.create_task(access.check("t", RUN, uid=UID)) for _ in range(20)]
        await gate.asked.wait()
        gate.open.set()
        assert set(await asyncio.gather(*callers)) == {Verdict.ALLOW}
    assert len(backend.calls) == 1
    assert sorted(counts) == ["review"] + ["shared"] * 19


@pytest.mark.parametrize("leaver", [0, 1], ids=["the-one-who-began-it", "one-who-joined"])
async def test_a_caller_that_leaves_takes_nothing_from_the_others(leaver: int) -> None:
    gate = Gate()
    backend = Backend(gate)
    async with serving(backend) as (access, _):
        callers = [asyncio.create_task(access.check("t", RUN, uid=UID)) for _ in range(2)]
        await gate.asked.wait()
        callers[leaver].cancel()
        with pytest.raises(asyncio.CancelledError):
            await callers[leaver]
        gate.open.set()
        assert await callers[1 - leaver] is Verdict.ALLOW
    assert len(backend.calls) == 1


async def test_the_last_to_leave_ends_the_review_and_a_newcomer_begins_another() -> None:
    gate = Gate()
    backend = Backend(gate)
    async with serving(backend) as (access, _):
        caller = asyncio.create_task(access.check("t", RUN, uid=UID))
        await gate.asked.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        backend.answer = allowed(True)
        assert await access.check("t", RUN, uid=UID) is Verdict.ALLOW
    assert len(backend.calls) == backend.ended == 2


async def test_beyond_the_bound_callers_are_turned_away_and_the_others_served() -> None:
    gate = Gate()
    backend = Backend(gate)
    async with serving(backend, max_reviews=2) as (access, counts):
        first = [asyncio.create_task(access.check(token, RUN, uid=UID)) for token in ("a", "b")]
        await gate.asked.wait()
        await asyncio.sleep(0)
        with pytest.raises(NotReady):
            await access.check("c", RUN, uid=UID)
        joined = asyncio.create_task(access.check("a", RUN, uid=UID))
        gate.open.set()
        assert set(await asyncio.gather(*first, joined)) == {Verdict.ALLOW}
        assert await access.check("c", RUN, uid=UID) is Verdict.ALLOW
    assert counts.count("overload") == 1
