"""Every answer of authz, by tables: what is malformed, what is asked, and what a verdict turns into."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.authz.decide import (
    BAD_TOKEN,
    LATE_SECONDS,
    MAY_NOT,
    NO_SUCH_RUN,
    NO_TOKEN,
    TOO_LARGE,
    UNAVAILABLE,
    Allow,
    Asked,
    Check,
    Deny,
    Policy,
    decide,
    question,
    read,
)
from kruntimes.common.access import Question, Verdict
from kruntimes.common.api import outcomes
from kruntimes.common.api.names import InvokePath, parse_path
from kruntimes.common.api.outcomes import Kind

UID = "2c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"
CANONICAL = f"/v1/namespaces/team-a/runtimes/python/functions/{UID}:invoke"
ALIAS = f"/v1/namespaces/team-a/runtimes/python/runs/{UID}:invoke"
CANCEL = f"/v1/namespaces/team-a/runtimes/python/functions/{UID}/invocations/call-1:cancel"
POLICY = Policy()


def path_of(text: str) -> InvokePath:
    path = parse_path(text)
    assert path is not None
    return path


def check(target: str = CANONICAL, **changes: object) -> Check:
    values: dict[str, object] = {"method": "POST", "target": target, "authorization": ("Bearer secret",)}
    return Check(**(values | changes))  # type: ignore[arg-type]


def asked(target: str = CANONICAL, **changes: object) -> Asked:
    found = read(check(target, **changes), POLICY)
    assert isinstance(found, Asked)
    return found


@pytest.mark.parametrize("target", [CANONICAL, ALIAS, CANCEL], ids=["canonical", "alias", "cancel"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="token-only"),
        pytest.param({"hosts": ("[::1]:8443",)}, id="one-host"),
        pytest.param({"invocation_ids": ("a" * 128,)}, id="longest-id"),
        pytest.param({"timeouts": ("900000",)}, id="longest-deadline"),
        pytest.param({"authorization": ("bearer a.b-c",)}, id="scheme-in-any-case"),
    ],
)
def test_a_well_formed_request_is_read(target: str, changes: dict[str, object]) -> None:
    asked = read(check(target, **changes), POLICY)
    assert isinstance(asked, Asked)
    assert asked.path == path_of(target)
    assert asked.token in ("secret", "a.b-c")
    assert "secret" not in repr(asked)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        pytest.param(check("/"), outcomes.BAD_PATH, id="root"),
        pytest.param(check(CANONICAL.upper()), outcomes.BAD_PATH, id="upper-case"),
        pytest.param(check(CANONICAL + "/"), outcomes.BAD_PATH, id="slash-at-the-end"),
        pytest.param(check("//" + CANONICAL[1:]), outcomes.BAD_PATH, id="two-slashes"),
        pytest.param(check(CANONICAL.replace("team-a", "team_a")), outcomes.BAD_PATH, id="namespace"),
        pytest.param(check(CANONICAL.replace("python", "py%74hon")), outcomes.BAD_PATH, id="encoded"),
        pytest.param(check(CANONICAL.replace(UID, UID[:-1])), outcomes.BAD_PATH, id="short-uid"),
        pytest.param(check(CANONICAL.replace(UID, UID + "\n")), outcomes.BAD_PATH, id="line-end"),
        pytest.param(check(CANONICAL.replace(":invoke", ":cancel")), outcomes.BAD_PATH, id="cancel-without-id"),
        pytest.param(check(CANCEL.replace("call-1", "a" * 129)), outcomes.BAD_PATH, id="cancel-id-too-long"),
        pytest.param(check(CANONICAL + "?"), outcomes.QUERY_NOT_ALLOWED, id="empty-query"),
        pytest.param(check(CANONICAL + "?namespace=evil"), outcomes.QUERY_NOT_ALLOWED, id="query"),
        pytest.param(check("/x?y"), outcomes.BAD_PATH, id="path-before-query"),
        pytest.param(check(method="GET"), outcomes.METHOD_NOT_ALLOWED, id="get"),
        pytest.param(check(method="post"), outcomes.METHOD_NOT_ALLOWED, id="methods-have-a-case"),
        pytest.param(check(CANONICAL + "?a", method="GET"), outcomes.QUERY_NOT_ALLOWED, id="query-before-method"),
        pytest.param(check(hosts=("a,b",)), outcomes.BAD_REQUEST, id="two-hosts-joined"),
        pytest.param(check(hosts=("a", "a")), outcomes.BAD_REQUEST, id="two-hosts"),
        pytest.param(check(invocation_ids=("",)), outcomes.BAD_INVOCATION_ID, id="empty-id"),
        pytest.param(check(invocation_ids=("a" * 129,)), outcomes.BAD_INVOCATION_ID, id="id-too-long"),
        pytest.param(check(invocation_ids=("a b",)), outcomes.BAD_INVOCATION_ID, id="blank-in-id"),
        pytest.param(check(invocation_ids=("ä",)), outcomes.BAD_INVOCATION_ID, id="id-not-ascii"),
        pytest.param(check(invocation_ids=("a", "a")), outcomes.BAD_INVOCATION_ID, id="two-ids"),
        pytest.param(check(method="GET", invocation_ids=("",)), outcomes.METHOD_NOT_ALLOWED, id="method-before-id"),
        pytest.param(check(timeouts=("0",)), outcomes.BAD_TIMEOUT, id="no-time"),
        pytest.param(check(timeouts=("900001",)), outcomes.BAD_TIMEOUT, id="too-long"),
        pytest.param(check(timeouts=("1_0",)), outcomes.BAD_TIMEOUT, id="no-number"),
        pytest.param(check(timeouts=("",)), outcomes.BAD_TIMEOUT, id="empty-timeout"),
        pytest.param(check(timeouts=("5", "5")), outcomes.BAD_TIMEOUT, id="two-timeouts"),
        pytest.param(check(authorization=()), outcomes.UNAUTHENTICATED, id="no-token"),
        pytest.param(check(authorization=("Basic x",)), outcomes.UNAUTHENTICATED, id="other-scheme"),
        pytest.param(check(authorization=("Bearer a", "Bearer a")), outcomes.UNAUTHENTICATED, id="two-tokens"),
        pytest.param(check(authorization=("Bearer a,Bearer b",)), outcomes.UNAUTHENTICATED, id="joined-tokens"),
        pytest.param(check(authorization=(), timeouts=("0",)), outcomes.BAD_TIMEOUT, id="timeout-before-token"),
    ],
)
def test_a_malformed_request_is_refused(changed: Check, kind: Kind) -> None:
    refused = read(changed, POLICY)
    assert isinstance(refused, Deny)
    assert refused.kind is kind
    assert "secret" not in refused.message


def test_the_longest_deadline_is_the_installations() -> None:
    assert isinstance(read(check(timeouts=("5000",)), Policy(max_timeout=5.0)), Asked)
    assert isinstance(read(check(timeouts=("5001",)), Policy(max_timeout=5.0)), Deny)


@pytest.mark.parametrize(
    ("timeouts", "seconds"),
    [
        pytest.param((), 7.0, id="the-installations-default"),
        pytest.param(("1",), 0.001, id="shortest"),
        pytest.param(("1500",), 1.5, id="asked-for"),
        pytest.param(("900000",), 900.0, id="longest"),
    ],
)
@pytest.mark.parametrize("target", [CANONICAL, ALIAS, CANCEL], ids=["canonical", "alias", "cancel"])
def test_a_pod_may_be_silent_until_a_little_after_the_deadline(
    target: str, timeouts: tuple[str, ...], seconds: float
) -> None:
    policy = Policy(default_timeout=7.0)
    found = read(check(target, timeouts=timeouts), policy)
    assert isinstance(found, Asked)
    answer = decide(found, "hello", Verdict.ALLOW)
    assert isinstance(answer, Allow)
    assert answer.patience == pytest.approx(seconds + LATE_SECONDS)


@pytest.mark.parametrize(
    ("lengths", "refused"),
    [
        pytest.param((), False, id="none-declared"),
        pytest.param(("0",), False, id="empty"),
        pytest.param(("1048576",), False, id="1-MiB"),
        pytest.param(("000001048576",), False, id="zeros-in-front"),
        pytest.param(("1048577",), True, id="a-byte-more"),
        pytest.param(("1073741824",), True, id="1-GiB"),
        pytest.param(("9" * 5000,), True, id="more-digits-than-int-reads"),
        pytest.param(("5", "1048577"), True, id="one-of-two"),
        pytest.param(("x",), False, id="no-number-is-left-to-the-codec"),
        pytest.param(("-1",), False, id="negative-is-left-to-the-codec"),
    ],
)
def test_a_declared_body_above_the_limit_is_refused_after_authorization(
    lengths: tuple[str, ...], refused: bool
) -> None:
    found = asked(lengths=lengths)
    assert (decide(found, "hello", Verdict.ALLOW) == TOO_LARGE) == refused
    assert decide(found, "hello", Verdict.FORBIDDEN) == MAY_NOT


@pytest.mark.parametrize(
    ("known", "policy", "expected"),
    [
        pytest.param("hello", POLICY, ("get", "kruntimes.io", "runs", "", "team-a", "hello"), id="known"),
        pytest.param(None, POLICY, ("list", "kruntimes.io", "runs", "", "team-a", ""), id="unknown"),
        pytest.param(
            "hello",
            Policy(verb="create", subresource="invoke"),
            ("create", "kruntimes.io", "runs", "invoke", "team-a", "hello"),
            id="configured",
        ),
        pytest.param(
            None,
            Policy(verb="create", subresource="invoke"),
            ("list", "kruntimes.io", "runs", "", "team-a", ""),
            id="configured-and-unknown",
        ),
    ],
)
def test_what_is_asked(known: str | None, policy: Policy, expected: tuple[str, ...]) -> None:
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    assert question(path_of(CANONICAL), known, policy) == Question(**dict(zip(fields, expected, strict=True)))


@pytest.mark.parametrize(
    ("known", "review", "answer"),
    [
        pytest.param("hello", Verdict.ALLOW, Allow("2c2", "team-a/python"), id="may-get"),
        pytest.param("hello", Verdict.FORBIDDEN, MAY_NOT, id="may-not-get"),
        pytest.param("hello", Verdict.UNAUTHENTICATED, BAD_TOKEN, id="bad-token"),
        pytest.param("hello", None, UNAVAILABLE, id="no-verdict"),
        pytest.param(None, Verdict.ALLOW, NO_SUCH_RUN, id="unknown-and-may-list"),
        pytest.param(None, Verdict.FORBIDDEN, MAY_NOT, id="unknown-and-may-not-list"),
        pytest.param(None, Verdict.UNAUTHENTICATED, BAD_TOKEN, id="unknown-and-bad-token"),
        pytest.param(None, None, UNAVAILABLE, id="unknown-and-no-verdict"),
    ],
)
def test_the_answer(known: str | None, review: Verdict | None, answer: Allow | Deny) -> None:
    assert decide(asked(), known, review) == answer


@pytest.mark.parametrize("target", [ALIAS, CANCEL], ids=["alias", "cancel"])
def test_only_the_canonical_path_has_a_shard(target: str) -> None:
    assert decide(asked(target), "hello", Verdict.ALLOW) == Allow("", "team-a/python")


@given(known=st.none() | st.just("hello"), review=st.none() | st.sampled_from(list(Verdict)))
def test_only_a_granted_review_of_a_known_run_allows(known: str | None, review: Verdict | None) -> None:
    allowed = isinstance(decide(asked(), known, review), Allow)
    assert allowed == (known is not None and review is Verdict.ALLOW)


def test_whoever_may_not_know_cannot_tell_a_run_from_none() -> None:
    for review in (Verdict.FORBIDDEN, Verdict.UNAUTHENTICATED, None):
        for lengths in ((), ("1048577",)):
            assert decide(asked(lengths=lengths), "hello", review) == decide(asked(lengths=lengths), None, review)


@pytest.mark.parametrize(
    ("deny", "headers", "retry_after"),
    [
        pytest.param(NO_TOKEN, {"www-authenticate": 'Bearer realm="kruntimes"'}, None, id="401"),
        pytest.param(read(check(method="PUT"), POLICY), {"allow": "POST"}, None, id="405"),
        pytest.param(MAY_NOT, {}, None, id="403"),
        pytest.param(UNAVAILABLE, {}, 1, id="503"),
    ],
)
def test_a_refusal_as_it_is_sent(deny: Deny, headers: dict[str, str], retry_after: int | None) -> None:
    failure = deny.failure("call-1")
    assert deny.headers() == headers
    assert failure.retry_after == retry_after
    document = json.loads(failure.body())["error"]
    assert document["component"] == "authz"
    assert document["invocationId"] == "call-1"
    assert document["retrySafe"] is True


@pytest.mark.parametrize(
    ("ids", "echoed"),
    [
        pytest.param(("call-1",), "call-1", id="valid"),
        pytest.param((), None, id="none"),
        pytest.param(("a" * 129,), None, id="invalid-is-not-repeated"),
        pytest.param(("a", "b"), None, id="two-are-not-repeated"),
    ],
)
def test_the_id_that_is_repeated(ids: tuple[str, ...], echoed: str | None) -> None:
    assert check(invocation_ids=ids).invocation_id == echoed
