"""What authz says while something that it needs is away, and whom it obeys at the end."""

import asyncio
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from kruntimes.authz.decide import MAY_NOT, NO_SUCH_RUN, UNAVAILABLE, Allow, Check, Policy
from kruntimes.authz.drain import Drain
from kruntimes.authz.index import WAIT_SECONDS, Index
from kruntimes.authz.metrics import Metrics
from kruntimes.authz.server import Authorizer, serve
from kruntimes.common import clock
from kruntimes.common.access import Access, Question, Verdict
from kruntimes.common.api.views import Meta, Object
from kruntimes.common.errors import NotReady
from kruntimes.common.kube.errors import Missing, Unreachable
from kruntimes.common.kube.transport import Kube

UID = "2c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"
CHECK = Check(
    method="POST",
    target=f"/v1/namespaces/team-a/runtimes/python/functions/{UID}:invoke",
    authorization=("Bearer secret",),
)


@dataclass
class Names:
    known: str | None = "hello"
    synced: bool = True
    current: bool = True
    later: str | None = None
    misplaced: bool = False
    waits: list[float] = field(default_factory=list)

    def name(self, *, namespace: str, uid: str) -> str | None:
        return self.known

    async def appears(self, *, namespace: str, uid: str, until: float) -> str | None:
        self.waits.append(until)
        return self.later

    async def astray(self, *, namespace: str, runtime: str, name: str) -> bool:
        return self.misplaced


@dataclass
class Reviews:
    verdict: Verdict | None = Verdict.ALLOW
    listing: Verdict | None = None
    cached: bool | None = None
    asked: list[str] = field(default_factory=list)

    async def check(self, token: str, question: Question, *, uid: str, cache: bool = True) -> Verdict:
        self.asked.append(question.verb)
        self.cached = cache
        if self.verdict is None:
            raise NotReady("the backend is away")
        return self.listing if question.verb == "list" and self.listing else self.verdict


def authorizer(names: Names, reviews: Reviews) -> tuple[Authorizer, CollectorRegistry]:
    registry = CollectorRegistry()
    made = Authorizer(
        index=cast(Index, names), access=cast(Access, reviews), policy=Policy(), metrics=Metrics(registry)
    )
    return made, registry


@pytest.mark.parametrize(
    ("names", "reviews", "answer", "result"),
    [
        pytest.param(Names(), Reviews(), Allow("2c2", "team-a/python"), "allow", id="all-well"),
        pytest.param(Names(synced=False), Reviews(), UNAVAILABLE, "AuthorizationUnavailable", id="index-not-synced"),
        pytest.param(Names(), Reviews(None), UNAVAILABLE, "AuthorizationUnavailable", id="backend-away"),
        pytest.param(Names(current=False), Reviews(), Allow("2c2", "team-a/python"), "allow", id="known-is-known"),
        pytest.param(Names(None), Reviews(), NO_SUCH_RUN, "RunNotFound", id="unknown"),
        pytest.param(
            Names(None, current=False),
            Reviews(),
            UNAVAILABLE,
            "AuthorizationUnavailable",
            id="nothing-is-proven-unknown-by-a-broken-watch",
        ),
        pytest.param(
            Names(None, later="hello"), Reviews(), Allow("2c2", "team-a/python"), "allow", id="just-made-and-may-list"
        ),
        pytest.param(
            Names(None, later="hello"),
            Reviews(listing=Verdict.FORBIDDEN),
            Allow("2c2", "team-a/python"),
            "allow",
            id="just-made-and-may-get",
        ),
        pytest.param(
            Names(None, later="hello"), Reviews(Verdict.FORBIDDEN), MAY_NOT, "Forbidden", id="just-made-and-may-not"
        ),
        pytest.param(Names(misplaced=True), Reviews(), NO_SUCH_RUN, "RunNotFound", id="of-another-runtime"),
        pytest.param(
            Names(misplaced=True), Reviews(Verdict.FORBIDDEN), MAY_NOT, "Forbidden", id="of-another-and-may-not-know"
        ),
    ],
)
async def test_the_answer_is_never_open(names: Names, reviews: Reviews, answer: object, result: str) -> None:
    made, registry = authorizer(names, reviews)
    assert await made.check(CHECK) == answer
    assert registry.get_sample_value("kruntimes_authz_checks_total", {"result": result}) == 1


@pytest.mark.parametrize(("known", "verb", "cached"), [("hello", "get", True), (None, "list", False)])
async def test_what_may_be_remembered(known: str | None, verb: str, cached: bool) -> None:
    reviews = Reviews()
    made, _ = authorizer(Names(known), reviews)
    await made.check(CHECK)
    assert (reviews.asked, reviews.cached) == ([verb], cached)


@pytest.mark.parametrize("known", ["hello", None])
@pytest.mark.parametrize(
    ("verdict", "held"),
    [
        pytest.param(Verdict.FORBIDDEN, True, id="forbidden"),
        pytest.param(Verdict.UNAUTHENTICATED, False, id="bad-token"),
        pytest.param(None, False, id="no-verdict"),
    ],
)
async def test_the_time_of_a_refusal_does_not_tell_whether_there_is_a_run(
    known: str | None, verdict: Verdict | None, held: bool
) -> None:
    """The same questions and the same waits, whether the Run is known or not."""
    names, reviews = Names(known), Reviews(verdict)
    before = clock.monotonic()
    await authorizer(names, reviews)[0].check(CHECK)
    assert len(reviews.asked) == 1
    assert len(names.waits) == held
    assert all(before + WAIT_SECONDS <= until <= clock.monotonic() + WAIT_SECONDS for until in names.waits)


async def test_a_run_that_appears_and_may_not_be_invoked_is_refused_no_sooner() -> None:
    names = Names(None, later="hello")
    await authorizer(names, Reviews(Verdict.FORBIDDEN))[0].check(CHECK)
    assert len(names.waits) == 2
    assert len(set(names.waits)) == 1, "until one and the same moment"


async def test_a_refusal_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await authorizer(Names(), Reviews(Verdict.FORBIDDEN))[0].check(CHECK)
    [line] = [record.__dict__ for record in caplog.records if record.name == "kruntimes.authz.server"]
    assert line["message"] == "request refused"
    told = {"runtime": "team-a/python", "run_uid": UID, "status": 403, "reason": "Forbidden", "outcome": "rejected"}
    assert told.items() <= line.items()
    assert "secret" not in str(line)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"post /x HTTP/1.1\r\nauthorization: Bearer secret\r\n\r\n", id="method"),
        pytest.param(b"POST /x HTTP/1.1\r\nsec\x01ret: a\r\n\r\n", id="header"),
        pytest.param(b"POST secret HTTP/9.9\r\n\r\n", id="version"),
    ],
)
async def test_what_cannot_be_read_is_refused_in_the_one_form_and_not_quoted(data: bytes, tmp_path: Path) -> None:
    made, _ = authorizer(Names(), Reviews())
    runner = await serve(made, tmp_path / "authz.sock")
    try:
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "authz.sock")
            writer.write(data)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
    finally:
        await runner.cleanup()
    assert head.split()[1] == b"400"
    assert b"secret" not in head + body
    error = json.loads(body)["error"]
    assert (error["reason"], error["component"], error["outcome"]) == ("BadRequest", "authz", "rejected")
    assert error["invocationId"] is None


class OwnPod:
    """An API server that knows one Pod, or fails."""

    def __init__(self, found: Object | Exception) -> None:
        self.found = found

    async def get(self, path: str, kind: type[Object]) -> Object:
        assert path == "/api/v1/namespaces/kruntimes-system/pods/gateway-0"
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def pod(uid: str, *, deleting: bool) -> Object:
    return Object(metadata=Meta(uid=uid, deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None))


@pytest.mark.parametrize(
    ("found", "status"),
    [
        pytest.param(pod("uid-1", deleting=False), 409, id="not-deleting"),
        pytest.param(pod("uid-2", deleting=True), 409, id="another-pod-of-that-name"),
        pytest.param(Missing(status=404), 409, id="no-pod"),
        pytest.param(Unreachable(status=0), 409, id="not-known"),
        pytest.param(pod("uid-1", deleting=True), 503, id="deleting-but-no-envoy"),
    ],
)
async def test_only_a_pod_that_is_deleted_drains(found: Object | Exception, status: int, tmp_path: Path) -> None:
    drain = Drain(
        cast(Kube, OwnPod(found)),
        namespace="kruntimes-system",
        pod_name="gateway-0",
        pod_uid="uid-1",
        admin=tmp_path / "admin.sock",
        longest=1.0,
    )
    assert (await drain.handle(cast(web.Request, cast(Any, None)))).status == status
