"""The gateway's listener: who is served, what is refused and how, and what becomes of a caller that leaves."""

import asyncio
import io
import json
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from multidict import CIMultiDict
from tests.runtimed_pods import NAMESPACE, RUNTIME, Authority, Pods, Tokens, opaque, pod
from tests.runtimed_stub import until

from kruntimes.common.api import outcomes
from kruntimes.common.api.names import PEER_PORT, Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

UID = "2c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"
FAR, FAR_UID = "127.78.3.9", "3c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"
UNKNOWN = "00000000-9f8f-4f80-82d5-3dd16a12d1e6"
GOOD, LISTER, WRONG = opaque("good"), opaque("lister"), opaque("wrong")
PATH = f"/v1/namespaces/{NAMESPACE}/runtimes/{RUNTIME}/functions/{UID}:invoke"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.body)["error"]  # type: ignore[no-any-return]


class Gateway:
    """What Envoy is to runtimed: a client with a certificate of some role."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session, self.port = session, port

    async def post(
        self,
        path: str = PATH,
        body: Any = b"echo",
        *,
        token: str | None = GOOD,
        method: str = "POST",
        again: Sequence[tuple[str, str]] = (),
        **headers: str,
    ) -> Answer:
        fields = {"x-kruntime-invocation-id": "id-1", "content-type": "text/plain"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            fields["authorization"] = f"Bearer {token}"
        sent = CIMultiDict(fields)
        for name, value in again:
            sent.add(name, value)
        url = f"https://127.0.0.1:{self.port}{path}"
        async with self.session.request(
            method, url, data=body, headers=sent, server_hostname="pod-1.runtimed.kruntimes.internal"
        ) as response:
            got = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, got, await response.read())


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(may={GOOD: {("get", "hello")}, LISTER: {("list", "")}})


@pytest_asyncio.fixture(loop_scope="session")
async def owner(authority: Authority, tokens: Tokens, tmp_path: Path) -> AsyncIterator[Pods]:
    async with pod(authority, tokens, tmp_path, pod_uid="pod-1") as made:
        made.caches.show(UID, pod_uid="pod-1")
        made.hold(UID)
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(authority: Authority, owner: Pods) -> AsyncIterator[Gateway]:
    tls = authority.workload(Role.GATEWAY, pod_uid="gateway-1", owner="kruntimes").client_ssl()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), skip_auto_headers=["accept"]) as session:
        yield Gateway(session, owner.invoke_port)


async def test_a_call_through(gateway: Gateway, owner: Pods, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    got = await gateway.post(traceparent="00-t-s-01", x_kr_epoch=f"{UID}/1/pod-1")
    assert (got.status, got.body) == (200, b"echo")
    wanted = {
        "x-kruntime-invocation-id": "id-1",
        "x-kruntime-outcome": "completed",
        "x-kruntime-retry-safe": "false",
        "content-type": "text/plain",
    }
    assert wanted.items() <= got.headers.items()
    await until(lambda: owner.count("gateway", 200, "completed") == 1)
    line = next(record for record in caplog.records if record.message == "invocation ended")
    assert (line.run_uid, line.invocation_id, line.attempt, line.outcome) == (UID, "id-1", 1, "completed")  # type: ignore[attr-defined]
    assert GOOD not in caplog.text


async def test_the_token_goes_no_further(gateway: Gateway, owner: Pods) -> None:
    await gateway.post()
    assert GOOD not in str(owner.stub.calls)


async def test_the_envelope(gateway: Gateway) -> None:
    got = await gateway.post(body=b'{"a":1}', content_type="application/json", accept=outcomes.ENVELOPE_TYPE)
    assert got.headers["content-type"] == outcomes.ENVELOPE_TYPE
    document = json.loads(got.body)
    assert (document["output"], document["outputs"], document["invocationId"]) == ({"a": 1}, {"k": "v"}, "id-1")


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        pytest.param({"path": PATH + "?a=1"}, 400, "QueryNotAllowed", id="query"),
        pytest.param({"path": PATH + "/x"}, 400, "BadPath", id="path"),
        pytest.param({"path": PATH.replace(UID, UID.upper())}, 400, "BadPath", id="another-spelling"),
        pytest.param({"method": "GET"}, 405, "MethodNotAllowed", id="method"),
        pytest.param({"x_kruntime_invocation_id": "with blank"}, 400, "BadInvocationID", id="malformed-id"),
        pytest.param({"x_kruntime_invocation_id": "x" * 129}, 400, "BadInvocationID", id="long-id"),
        pytest.param({"x_kruntime_timeout_ms": "0"}, 400, "BadTimeout", id="no-time"),
        pytest.param({"x_kruntime_timeout_ms": "30001"}, 400, "BadTimeout", id="too-much-time"),
        pytest.param({"x_kruntime_timeout_ms": "1_0"}, 400, "BadTimeout", id="not-a-number"),
        pytest.param({"again": [("x-kruntime-invocation-id", "id-2")]}, 400, "BadInvocationID", id="two-ids"),
        pytest.param(
            {"x_kruntime_timeout_ms": "1", "again": [("x-kruntime-timeout-ms", "2")]}, 400, "BadTimeout", id="two-times"
        ),
        pytest.param({"again": [("authorization", f"Bearer {GOOD}")]}, 401, "Unauthorized", id="two-tokens"),
        pytest.param({"x_kr_epoch": "nonsense"}, 400, "BadRequest", id="malformed-epoch"),
        pytest.param({"token": None}, 401, "Unauthorized", id="no-token"),
        pytest.param({"token": WRONG}, 401, "Unauthorized", id="wrong-token"),
        pytest.param({"token": LISTER}, 403, "Forbidden", id="a-token-that-may-not-get-it"),
        pytest.param({"path": PATH.replace(UID, UNKNOWN)}, 403, "Forbidden", id="unknown-to-who-may-not-list"),
        pytest.param({"path": PATH.replace(UID, UNKNOWN), "token": LISTER}, 404, "RunNotFound", id="unknown"),
        pytest.param({"path": PATH.replace("python", "bash"), "token": LISTER}, 404, "RunNotFound", id="other-runtime"),
        pytest.param({"x_kr_epoch": f"{UID}/2/pod-1"}, 503, "NotReady", id="an-epoch-that-we-do-not-have-yet"),
        pytest.param({"x_kr_epoch": f"{UID}/1/pod-2"}, 503, "NotReady", id="another-pod's-epoch"),
        pytest.param({"x_kr_epoch": f"{UNKNOWN}/1/pod-1"}, 503, "NotReady", id="another-run's-epoch"),
        pytest.param({"body": io.BytesIO(b"x" * (outcomes.MAX_BODY_BYTES + 1))}, 413, "BodyTooLarge", id="body"),
    ],
)
async def test_refusals(gateway: Gateway, owner: Pods, request_: dict[str, Any], status: int, reason: str) -> None:
    got = await gateway.post(**request_)
    assert (got.status, got.error["reason"]) == (status, reason)
    assert got.headers["content-type"] == "application/json"
    assert got.error["component"] == "runtimed"
    assert got.headers["x-kruntime-retry-safe"] == "true"
    assert got.error["retrySafe"] is True
    assert (got.headers.get("retry-after") is not None) == (status == 503)
    assert owner.stub.count("invoke") == 0


async def test_a_chunked_body_is_bounded_too(gateway: Gateway, owner: Pods) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b"x" * 65536

    got = await gateway.post(body=body())
    assert (got.status, got.error["reason"]) == (413, "BodyTooLarge")
    assert owner.stub.count("invoke") == 0


@pytest.mark.parametrize(
    ("framing", "rest", "answered"),
    [
        pytest.param(b"transfer-encoding: chunked", b"zz\r\n", True, id="not-chunks"),
        pytest.param(b"content-length: 10", b"abc", False, id="cut-off"),
    ],
)
async def test_a_body_that_does_not_come_is_not_dispatched(
    authority: Authority, owner: Pods, framing: bytes, rest: bytes, answered: bool
) -> None:
    tls = authority.workload(Role.GATEWAY, pod_uid="g", owner="kruntimes").client_ssl()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", owner.invoke_port, ssl=tls, server_hostname="pod-1.runtimed.kruntimes.internal"
    )
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nx-kruntime-invocation-id: i\r\nauthorization: Bearer {GOOD}\r\n"
    writer.write(head.encode() + framing + b"\r\n\r\n" + rest)
    await writer.drain()
    if answered:
        assert b" 400 " in await reader.readline()
    writer.close()
    with suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()
    if not answered:
        await until(lambda: owner.count("gateway", 499, "cancelled") == 1)
    assert owner.stub.count("invoke") == 0
    assert len(owner.dispatcher.slots) == 0


async def test_a_body_of_exactly_the_limit_passes(gateway: Gateway) -> None:
    body = b"x" * outcomes.MAX_BODY_BYTES
    got = await gateway.post(body=body)
    assert (got.status, got.body) == (200, body)


async def test_a_body_is_never_decoded(gateway: Gateway) -> None:
    got = await gateway.post(body=b"not gzip", content_encoding="gzip")
    assert (got.status, got.body) == (200, b"not gzip")


async def test_function_errors_are_not_safe_to_repeat(gateway: Gateway) -> None:
    got = await gateway.post(body=b"raise")
    assert (got.status, got.error["outcome"], got.error["retrySafe"]) == (500, "function_error", False)
    assert got.error["details"]["type"] == "ValueError"


async def test_an_authorization_backend_that_is_down_is_503_and_not_remembered(
    gateway: Gateway, tokens: Tokens
) -> None:
    tokens.down = True
    got = await gateway.post()
    assert (got.status, got.error["reason"], got.headers["retry-after"]) == (503, "AuthorizationUnavailable", "1")
    tokens.down = False
    assert (await gateway.post()).status == 200


async def test_a_decision_is_remembered(gateway: Gateway, tokens: Tokens) -> None:
    for _ in range(3):
        assert (await gateway.post()).status == 200
    assert tokens.reviews == 1


async def test_a_run_that_the_cache_sees_a_little_later_is_found(gateway: Gateway, owner: Pods) -> None:
    owner.caches.hide()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(gateway.post())
        await until(lambda: bool(owner.caches._waiting), what="the request waits")
        owner.caches.show(UID, pod_uid="pod-1")
        assert (await waiting).status == 200


async def test_a_run_that_has_ended_is_not_to_be_waited_for(gateway: Gateway, owner: Pods) -> None:
    owner.caches.show(UID, phase="Timeout", pod_uid="pod-1")
    got = await gateway.post()
    assert (got.status, got.error["reason"], got.error["outcome"]) == (404, "RunEnded", "rejected")
    assert got.error["message"] == "the Run has ended: Timeout"
    assert "retry-after" not in got.headers


async def test_an_overlap_is_429(gateway: Gateway, owner: Pods) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(gateway.post(body=b"hang"))
        await owner.stub.started.wait()
        got = await gateway.post(x_kruntime_invocation_id="id-2")
        assert (got.status, got.headers["retry-after"], got.error["invocationId"]) == (429, "1", "id-2")
        owner.stub.release.set()
        assert (await first).status == 200


async def test_a_fenced_or_closed_function_is_not_served(gateway: Gateway, owner: Pods) -> None:
    owner.flags["fenced"] = True
    assert (await gateway.post()).status == 503
    owner.flags["fenced"] = False
    assert (await gateway.post()).status == 200
    held = owner.registry.get(UID)
    assert held is not None
    held.open = False
    got = await gateway.post()
    assert (got.status, got.headers["x-kruntime-outcome"]) == (503, "not_dispatched")


async def test_connections_are_closed_while_draining(gateway: Gateway, owner: Pods) -> None:
    assert "connection" not in (await gateway.post()).headers
    owner.flags["draining"] = True
    assert (await gateway.post()).headers["connection"] == "close"


async def test_the_fallback_proxies_once_to_the_owner(
    authority: Authority, tokens: Tokens, owner: Pods, gateway: Gateway, tmp_path: Path
) -> None:
    async with pod(authority, tokens, tmp_path, pod_uid="pod-2", host=FAR, peer_port=PEER_PORT) as far:
        far.caches.show(FAR_UID, pod_uid="pod-2", name="far")
        far.hold(FAR_UID)
        owner.caches.show(FAR_UID, pod_uid="pod-2", name="far")
        tokens.may[GOOD].add(("get", "far"))
        path = PATH.replace(UID, FAR_UID)
        assert (await gateway.post(path)).status == 503, "the owner's address is not known yet"
        owner.caches.show_pod("pod-2", ip=FAR)
        got = await gateway.post(path, body=b"hello", accept=outcomes.ENVELOPE_TYPE)
        assert (got.status, json.loads(got.body)["output"]) == (200, "hello")
        failed = await gateway.post(path, body=b"raise")
        assert (failed.status, failed.error["details"]["type"]) == (500, "ValueError")
        assert (owner.stub.count("invoke"), far.stub.count("invoke")) == (0, 2)
        far.flags["fenced"] = True
        refused = await gateway.post(path)
        assert (refused.status, refused.error["outcome"], refused.headers["retry-after"]) == (
            503,
            "not_dispatched",
            "1",
        )


async def test_a_deadline(gateway: Gateway, owner: Pods) -> None:
    got = await gateway.post(body=b"deadline", x_kruntime_timeout_ms="2000")
    assert (got.status, got.error["outcome"]) == (504, "timeout")
    assert 1000 < owner.stub.last("invoke").timeout_millis <= 2000


async def test_a_caller_that_leaves_cancels_its_call(gateway: Gateway, owner: Pods) -> None:
    owner.stub.linger = True
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.5):
            await gateway.post(body=b"hang")
    await until(lambda: owner.count("gateway", 499, "cancelled") == 1)
    assert (await gateway.post(x_kruntime_invocation_id="id-2")).status == 429
    owner.stub.release.set()
    async with asyncio.timeout(30):
        while (await gateway.post()).status != 200:  # the last one to leave may still be on its way
            await until(lambda: len(owner.dispatcher.slots) == 0)


async def test_a_call_is_cancelled_by_its_id(gateway: Gateway, owner: Pods) -> None:
    cancel = PATH.removesuffix(":invoke") + "/invocations/id-1:cancel"
    assert (await gateway.post(cancel)).error["reason"] == "InvocationNotFound"
    async with asyncio.TaskGroup() as group:
        first = group.create_task(gateway.post(body=b"hang"))
        await owner.stub.started.wait()
        got = await gateway.post(cancel, x_kruntime_invocation_id="other")
        assert (got.status, got.body) == (202, b"")
        ended = await first
        assert (ended.status, ended.error["outcome"], ended.error["retrySafe"]) == (499, "cancelled", False)


@pytest.mark.parametrize("role", [Role.ROUTER, Role.RUNTIMED])
async def test_only_the_gateway_is_served(authority: Authority, owner: Pods, role: Role) -> None:
    tls = authority.workload(role, pod_uid="x").client_ssl()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        got = await Gateway(session, owner.invoke_port).post()
        assert (got.status, got.error["reason"]) == (403, "Forbidden")


async def test_a_stranger_with_another_ca_gets_nothing(owner: Pods) -> None:
    other = Authority()
    tls = other.workload(Role.GATEWAY, pod_uid="x", owner="kruntimes").client_ssl()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        with pytest.raises(aiohttp.ClientError):
            await Gateway(session, owner.invoke_port).post()


async def test_slots_are_exact_after_callers_that_leave_at_random(gateway: Gateway, owner: Pods) -> None:
    owner.stub.release.set()
    for number in range(40):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.0005 * (number % 12)):
                await gateway.post()
    async with asyncio.timeout(10.0):  # a call whose caller has left may be read only now, and then takes its slot
        while (got := await gateway.post()).status == 429:
            await asyncio.sleep(0.005)
    assert got.status == 200
    await until(lambda: len(owner.dispatcher.slots) == 0)
    assert owner.stub.in_flight == 0
