"""Every status that the gateway can give, through the real Envoy and the real authz: headers and document included."""

import asyncio
import json
import re

import pytest
from aiohttp import web
from tests.gateway_rig import NAMESPACE, RUNTIME, Gateway, Pod, ok, random_uid
from tests.http_clients import Answer, http1, http2

from kruntimes.common.api.names import cancel_path, parse_path

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1024 * 1024
UNKNOWN = "00000000-0000-4000-8000-000000000000"
GENERATED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DOCUMENT = {"reason", "message", "component", "invocationId", "outcome", "retrySafe", "details"}


def assert_failure(
    answer: Answer, status: int, reason: str, component: str, *, outcome: str = "rejected", invocation_id: str | None
) -> None:
    """The one form of every failure. invocation_id: "*" for one that the gateway has made."""
    assert (answer.status, answer.error["reason"], answer.error["component"]) == (status, reason, component)
    error = answer.error
    retry_safe = outcome in ("rejected", "not_dispatched")
    assert set(error) == DOCUMENT
    assert error["details"] == {}
    assert (error["outcome"], error["retrySafe"]) == (outcome, retry_safe)
    assert answer.headers["x-kruntime-outcome"] == outcome
    assert answer.headers["x-kruntime-retry-safe"] == str(retry_safe).lower()
    assert ("retry-after" in answer.headers) == (status == 503)
    assert answer.headers.get("x-kruntime-invocation-id") == error["invocationId"]
    if invocation_id == "*":
        assert GENERATED.fullmatch(error["invocationId"])
    else:
        assert error["invocationId"] == invocation_id
    assert "127." not in error["message"]
    assert not any(name.startswith(("x-envoy", "x-kr-")) for name in answer.headers)


def request(
    gateway: Gateway,
    path: str,
    *headers: str,
    method: str = "POST",
    token: str | None = "yes",
    body: bytes = b"{}",
    version: str = "1.1",
) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", f"host: localhost:{gateway.port}", *headers]
    if token is not None:
        lines.append(f"authorization: Bearer {token}")
    if not any(line.startswith("transfer-encoding") for line in lines):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def call(gateway: Gateway, path: str, *headers: str, **options: object) -> Answer:
    data = request(gateway, path, *headers, **options)  # type: ignore[arg-type]
    return await http1(gateway.port, [data], tls=gateway.client_context())


def canonical(uid: str, namespace: str = NAMESPACE, runtime: str = RUNTIME) -> str:
    return f"/v1/namespaces/{namespace}/runtimes/{runtime}/functions/{uid}:invoke"


KNOWN = "11111111-1111-4111-8111-111111111111"
PATH = canonical(KNOWN)
CANCEL = PATH.replace(":invoke", "/invocations/call-1:cancel")


@pytest.mark.parametrize(
    ("path", "headers", "options", "expected"),
    [
        pytest.param("/v1/namespaces/", (), {}, (400, "BadRequest", "envoy", "*"), id="path-of-another-form"),
        pytest.param("/v1/namespaces/a/b/../c", (), {}, (400, "BadRequest", "envoy", "*"), id="path-normalised"),
        pytest.param(PATH + "/", (), {}, (400, "BadRequest", "envoy", "*"), id="slash-at-the-end"),
        pytest.param(PATH.replace("py", "p%2f"), (), {}, (400, "BadPath", "authz", "*"), id="escaped-slash"),
        pytest.param("/v1%2fnamespaces/x", (), {}, (404, "NotFound", "envoy", "*"), id="escaped-slash-elsewhere"),
        pytest.param(PATH.replace("11:i", "1x:i"), (), {}, (400, "BadPath", "authz", "*"), id="no-uid"),
        pytest.param(canonical(KNOWN, "Team"), (), {}, (400, "BadPath", "authz", "*"), id="no-namespace"),
        pytest.param(PATH + "?a=b", (), {}, (400, "QueryNotAllowed", "authz", "*"), id="query"),
        pytest.param(CANCEL + "?a=b", (), {}, (400, "QueryNotAllowed", "authz", "*"), id="query-of-a-cancellation"),
        pytest.param(PATH, ("x-kruntime-invocation-id: ",), {}, (400, "BadInvocationID", "authz", None), id="empty-id"),
        pytest.param(
            PATH, (f"x-kruntime-invocation-id: {'a' * 129}",), {}, (400, "BadInvocationID", "authz", None), id="long-id"
        ),
        pytest.param(PATH, ("x-kruntime-timeout-ms: 0",), {}, (400, "BadTimeout", "authz", "*"), id="no-time"),
        pytest.param(PATH, ("x-kruntime-timeout-ms: 900001",), {}, (400, "BadTimeout", "authz", "*"), id="too-long"),
        pytest.param(
            PATH,
            ("x-kruntime-timeout-ms: 5", "x-kruntime-timeout-ms: 5"),
            {},
            (400, "BadTimeout", "authz", "*"),
            id="two-timeouts",
        ),
        pytest.param(PATH, (), {"token": None}, (401, "Unauthorized", "authz", "*"), id="no-token"),
        pytest.param(PATH, (), {"token": "bad"}, (401, "Unauthorized", "authz", "*"), id="bad-token"),
        pytest.param(CANCEL, (), {"token": "bad"}, (401, "Unauthorized", "authz", "*"), id="cancel-with-a-bad-token"),
        pytest.param(
            PATH, ("authorization: Bearer yes",), {}, (401, "Unauthorized", "authz", "*"), id="two-authorizations"
        ),
        pytest.param(PATH, (), {"token": "no"}, (403, "Forbidden", "authz", "*"), id="may-not"),
        pytest.param(
            canonical(UNKNOWN), (), {"token": "no"}, (403, "Forbidden", "authz", "*"), id="unknown-and-may-not-know"
        ),
        pytest.param(canonical(UNKNOWN), (), {}, (404, "RunNotFound", "authz", "*"), id="unknown"),
        pytest.param("/", (), {}, (404, "NotFound", "envoy", "*"), id="root"),
        pytest.param("/v1/namespaces", (), {"token": None}, (404, "NotFound", "envoy", "*"), id="other-path"),
        pytest.param("//v1/namespaces/x", (), {}, (404, "NotFound", "envoy", "*"), id="two-slashes"),
        pytest.param("*", (), {"method": "OPTIONS"}, (404, "NotFound", "envoy", None), id="asterisk"),
        pytest.param(PATH, (), {"method": "GET", "body": b""}, (405, "MethodNotAllowed", "authz", "*"), id="get"),
        pytest.param(PATH, (), {"method": "DELETE"}, (405, "MethodNotAllowed", "authz", "*"), id="delete"),
        pytest.param(PATH, ("a_b: c",), {}, (400, "BadRequest", "envoy", None), id="underscore-in-a-header"),
        pytest.param(PATH, ("a: \x01",), {}, (400, "BadRequest", "envoy", None), id="control-character"),
        pytest.param(
            PATH, ("transfer-encoding: gzip",), {}, (400, "BadRequest", "envoy", None), id="unknown-transfer-encoding"
        ),
        pytest.param(
            PATH, ("transfer-encoding: gzip, chunked",), {}, (400, "BadRequest", "envoy", None), id="two-codings"
        ),
        pytest.param(
            PATH,
            ("connection: upgrade", "upgrade: websocket"),
            {"method": "GET", "body": b""},
            (400, "UpgradeNotSupported", "envoy", "*"),
            id="websocket",
        ),
        pytest.param(
            "localhost:443", (), {"method": "CONNECT"}, (400, "BadRequest", "envoy", None), id="connect-with-a-body"
        ),
        pytest.param(canonical(KNOWN, runtime="astray"), (), {}, (404, "RunNotFound", "authz", "*"), id="astray"),
        pytest.param(PATH, (), {"version": "1.0"}, (426, "UpgradeRequired", "envoy", None), id="http-1.0"),
        pytest.param(PATH, (f"a: {'b' * 17000}",), {}, (431, "HeadersTooLarge", "envoy", None), id="header-too-large"),
        pytest.param(
            PATH, tuple(f"a{n}: b" for n in range(65)), {}, (431, "HeadersTooLarge", "envoy", None), id="many-headers"
        ),
    ],
)
async def test_what_is_refused(
    envoy_gateway: Gateway,
    path: str,
    headers: tuple[str, ...],
    options: dict[str, object],
    expected: tuple[int, str, str, str | None],
) -> None:
    status, reason, component, invocation_id = expected
    answer = await call(envoy_gateway, path, *headers, **options)
    assert_failure(answer, status, reason, component, invocation_id=invocation_id)


@pytest.mark.parametrize(
    ("path", "token", "reason", "component"),
    [
        pytest.param("/v1/namespaces/x", "yes", "BadRequest", "envoy", id="envoy"),
        pytest.param(PATH, "no", "Forbidden", "authz", id="authz"),
        pytest.param(PATH, "down", "AuthorizationUnavailable", "envoy", id="authz-without-a-verdict"),
    ],
)
@pytest.mark.parametrize("invocation_id", ["call-1", '"\\}{%', "a" * 128], ids=["plain", "needs-escaping", "longest"])
async def test_a_callers_id_is_repeated(
    envoy_gateway: Gateway, path: str, token: str, reason: str, component: str, invocation_id: str
) -> None:
    answer = await call(envoy_gateway, path, f"x-kruntime-invocation-id: {invocation_id}", token=token)
    assert (answer.error["reason"], answer.error["component"]) == (reason, component)
    assert answer.error["invocationId"] == answer.headers["x-kruntime-invocation-id"] == invocation_id


@pytest.mark.parametrize(
    ("token", "path", "name", "value"),
    [
        pytest.param(None, PATH, "www-authenticate", 'Bearer realm="kruntimes"', id="401"),
        pytest.param("down", PATH, "retry-after", "1", id="503"),
    ],
)
async def test_what_http_wants_beside_it(
    envoy_gateway: Gateway, token: str | None, path: str, name: str, value: str
) -> None:
    assert (await call(envoy_gateway, path, token=token)).headers[name] == value


async def test_405_says_what_is_allowed(envoy_gateway: Gateway) -> None:
    assert (await call(envoy_gateway, PATH, method="PUT")).headers["allow"] == "POST"


async def test_no_verdict_is_not_dispatched(envoy_gateway: Gateway) -> None:
    answer = await call(envoy_gateway, PATH, token="down")
    assert_failure(answer, 503, "AuthorizationUnavailable", "envoy", outcome="not_dispatched", invocation_id="*")


@pytest.mark.parametrize(
    ("start", "status", "reason"),
    [
        pytest.param(PATH, 413, "BodyTooLarge", id="of-an-invocation"),
        pytest.param("/x", 404, "NotFound", id="elsewhere"),
        pytest.param("/v1/namespaces/x", 400, "BadRequest", id="of-another-form"),
    ],
)
async def test_a_body_that_never_comes_is_not_waited_for(
    envoy_gateway: Gateway, start: str, status: int, reason: str
) -> None:
    """Above the limit it is refused by what it declares; where nothing is invoked not a byte of it is held."""
    data = request(envoy_gateway, start, f"content-length: {1 << 30}", "x-kruntime-invocation-id: call-1", body=b"")
    data = data.replace(b"content-length: 0\r\n", b"")
    answer = await http1(envoy_gateway.port, [data], tls=envoy_gateway.client_context())
    assert_failure(answer, status, reason, "authz" if status == 413 else "envoy", invocation_id="call-1")


@pytest.mark.parametrize("protocol", ["h1", "h1-chunked", "h2"])
@pytest.mark.parametrize(
    ("size", "token", "status"),
    [
        pytest.param(MIB, "yes", 200, id="1-MiB"),
        pytest.param(MIB + 1, "yes", 413, id="1-MiB-and-a-byte"),
        pytest.param(3 * MIB, "yes", 413, id="3-MiB"),
        pytest.param(3 * MIB, "no", 403, id="3-MiB-of-a-stranger"),
        pytest.param(0, "yes", 200, id="empty"),
    ],
)
async def test_the_limit_of_a_body_is_exact(
    envoy_gateway: Gateway, protocol: str, size: int, token: str, status: int
) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    async with envoy_gateway.pod() as pod:
        path = canonical(await envoy_gateway.add_run(pod))
        if protocol == "h2":
            headers = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
            headers += [("authorization", f"Bearer {token}"), ("content-length", str(size))]
            answer = await http2(envoy_gateway.port, headers, body, tls=envoy_gateway.client_context())
        else:
            extra = ("transfer-encoding: chunked",) if protocol == "h1-chunked" else ()
            pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
            if protocol == "h1-chunked":
                parts = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces] + [b"0\r\n\r\n"]
                head = request(envoy_gateway, path, *extra, token=token, body=b"")
            else:
                head, parts = request(envoy_gateway, path, token=token, body=body)[: -len(body) or None], pieces
            answer = await http1(envoy_gateway.port, [head, *parts], tls=envoy_gateway.client_context())
        assert answer.status == status
        if status == 200:
            assert [seen[3] for seen in pod.seen] == [body]
        else:
            assert not pod.seen, "nothing may have been dispatched"
        if status == 413:
            component = "envoy" if protocol == "h1-chunked" else "authz"
            assert_failure(answer, 413, "BodyTooLarge", component, invocation_id="*")


async def test_a_tunnel_is_refused_at_once(envoy_gateway: Gateway) -> None:
    data = b"CONNECT localhost:443 HTTP/1.1\r\nhost: localhost:443\r\nauthorization: Bearer yes\r\n\r\n"
    answer = await http1(envoy_gateway.port, [data], tls=envoy_gateway.client_context())
    assert_failure(answer, 400, "UpgradeNotSupported", "envoy", invocation_id="*")


async def test_over_long_headers_over_http2_end_the_stream(envoy_gateway: Gateway) -> None:
    headers = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", PATH)]
    headers.append(("a", "b" * 20_000))
    answer = await http2(envoy_gateway.port, headers, tls=envoy_gateway.client_context())
    assert answer.reset is not None or answer.status == 431


async def test_plain_http_is_told_to_come_back_with_tls(envoy_gateway: Gateway) -> None:
    data = request(envoy_gateway, PATH, "x-kruntime-invocation-id: call-1")
    answer = await http1(envoy_gateway.port, [data], tls=None)
    assert_failure(answer, 426, "UpgradeRequired", "envoy", invocation_id="call-1")


async def test_what_is_no_http_is_cut_off(envoy_gateway: Gateway) -> None:
    answer = await http1(envoy_gateway.port, [b"\x00\x01\x02\r\n\r\n"], tls=None, wait_for_end=True)
    assert answer.status in (0, 400)


@pytest.mark.parametrize("status", [400, 404, 413, 429, 499, 500, 501, 502, 503, 504])
async def test_a_pods_own_answer_is_untouched(envoy_gateway: Gateway, status: int) -> None:
    document = json.dumps({"error": {"reason": "ItsOwn", "component": "runtimed"}}).encode()
    headers = {"x-kruntime-outcome": "its-own", "retry-after": "7", "x-kruntime-invocation-id": "call-1"}

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, body=document, content_type="application/json", headers=headers)

    async with envoy_gateway.pod(answer) as pod:
        got = await call(envoy_gateway, canonical(await envoy_gateway.add_run(pod)), "x-kruntime-invocation-id: call-1")
        assert (got.status, got.body) == (status, document)
        assert headers.items() <= got.headers.items()
        assert len(pod.seen) == 1, "never sent twice"


async def close(request: web.BaseRequest) -> web.StreamResponse:
    """Cuts the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)
    raise asyncio.CancelledError


async def garble(request: web.BaseRequest) -> web.StreamResponse:
    """Answers with something that is not HTTP."""
    assert request.transport is not None
    request.transport.write(b"\x00\x01garbage\r\n\r\n")
    request.transport.close()
    raise asyncio.CancelledError


@pytest.mark.parametrize("answer", [close, garble])
async def test_a_connection_lost_after_dispatch_is_an_unknown_outcome(envoy_gateway: Gateway, answer: object) -> None:
    async with envoy_gateway.pod(answer) as pod:  # type: ignore[arg-type]
        got = await call(envoy_gateway, canonical(await envoy_gateway.add_run(pod)))
        assert_failure(got, 502, "OutcomeUnknown", "envoy", outcome="unknown", invocation_id="*")
        assert len(pod.seen) == 1, "never sent twice"


async def test_a_pod_that_cannot_be_reached(envoy_gateway: Gateway) -> None:
    async with envoy_gateway.pod(listen=False) as pod:
        got = await call(envoy_gateway, canonical(await envoy_gateway.add_run(pod)))
        assert_failure(got, 503, "OwnerUnreachable", "envoy", outcome="not_dispatched", invocation_id="*")


async def test_a_pod_that_is_another(envoy_gateway: Gateway) -> None:
    async with envoy_gateway.pod(certificate_uid=random_uid()) as pod:
        got = await call(envoy_gateway, canonical(await envoy_gateway.add_run(pod)))
        assert_failure(got, 503, "OwnerUnreachable", "envoy", outcome="not_dispatched", invocation_id="*")
        assert not pod.seen


@pytest.mark.parametrize("capacity", ["2", "20", "200"])
async def test_pods_of_every_size_are_reached_and_must_prove_who_they_are(
    envoy_gateway: Gateway, capacity: str
) -> None:
    async with envoy_gateway.pod(capacity=capacity) as pod:
        assert (await call(envoy_gateway, canonical(await envoy_gateway.add_run(pod)))).status == 200
    async with envoy_gateway.pod(capacity=capacity, certificate_uid=random_uid()) as pod:
        got = await call(envoy_gateway, canonical(await envoy_gateway.add_run(pod)))
        assert_failure(got, 503, "OwnerUnreachable", "envoy", outcome="not_dispatched", invocation_id="*")
        assert not pod.seen


@pytest.mark.parametrize("runtime", [RUNTIME, "no-such-runtime"], ids=["no-pods", "no-runtime"])
async def test_nobody_is_there(envoy_gateway: Gateway, runtime: str) -> None:
    got = await call(envoy_gateway, canonical(KNOWN, runtime=runtime))
    assert_failure(got, 503, "NotReady", "envoy", outcome="not_dispatched", invocation_id="*")


async def test_what_the_pod_is_told(envoy_gateway: Gateway) -> None:
    async with envoy_gateway.pod(ok) as pod:
        uid = await envoy_gateway.add_run(pod)
        spoofed = [f"{name}: evil" for name in ("x-kr-dst", "x-kr-sni", "x-kr-shard", "x-kr-runtime", "x-kr-epoch")]
        spoofed += ["x-kr-hop: 1", "x-envoy-retry-on: 5xx", "x-envoy-upstream-rq-timeout-ms: 1", "traceparent: t"]
        got = await call(envoy_gateway, canonical(uid), *spoofed, "content-type: text/x", "x-kruntime-timeout-ms: 5000")
        assert (got.status, got.body) == (200, b'{"hello":"world"}')
        [(method, path, headers, body)] = pod.seen
        sent = {name.lower(): value for name, value in headers.items()}
        assert (method, path, body) == ("POST", canonical(uid), b"{}")
        assert sent["x-kr-epoch"] == f"{uid}/1/{pod.uid}"
        assert sent["authorization"] == "Bearer yes"
        assert (sent["content-type"], sent["x-kruntime-timeout-ms"], sent["traceparent"]) == ("text/x", "5000", "t")
        assert GENERATED.fullmatch(sent["x-kruntime-invocation-id"])
        assert {name for name in sent if name.startswith(("x-kr-", "x-envoy-"))} == {"x-kr-epoch"}


async def test_what_authz_cannot_see_of_an_id_reaches_the_pod(envoy_gateway: Gateway) -> None:
    """Envoy joins repeated headers for authz and replaces what is not UTF-8; runtimed refuses both itself."""
    async with envoy_gateway.pod() as pod:
        path = canonical(await envoy_gateway.add_run(pod))
        name = "x-kruntime-invocation-id"
        for headers in ((f"{name}: a", f"{name}: b"), (f"{name}: a\xe4",)):
            assert (await call(envoy_gateway, path, *headers)).status == 200
        assert [seen.getall(name) for seen in pod.headers] == [["a", "b"], ["a\udce4"]]


@pytest.mark.parametrize(
    "path", ["/v1/namespaces/{}", "/{}", PATH.replace(KNOWN, "{}")], ids=["envoys-400", "envoys-404", "authz"]
)
@pytest.mark.parametrize(
    "invocation_id",
    [
        pytest.param("a\xe4\xff", id="not-utf-8"),
        pytest.param("a b", id="blank"),
        pytest.param("a\tb", id="tabulator"),
        pytest.param("a" * 129, id="too-long"),
        pytest.param("", id="empty"),
    ],
)
async def test_an_id_that_is_none_is_not_repeated(envoy_gateway: Gateway, path: str, invocation_id: str) -> None:
    mark = random_uid()
    answer = await call(envoy_gateway, path.format(mark), f"x-kruntime-invocation-id: {invocation_id}")
    # What is not UTF-8 is hidden from authz: such a call ends at the Pod, and there is none.
    assert answer.error["reason"] in ("BadRequest", "NotFound", "BadInvocationID", "NotReady")
    assert answer.error["invocationId"] is None
    assert "x-kruntime-invocation-id" not in answer.headers
    assert (await envoy_gateway.logged(mark))["invocation_id"] is None


def paths_of_the_fallback(uid: str) -> list[str]:
    alias = canonical(uid).replace("functions", "runs")
    cancel = ":invoke", "/invocations/call-1:cancel"
    return [alias, canonical(uid).replace(*cancel), alias.replace(*cancel), canonical(random_uid())]


@pytest.mark.parametrize("which", range(4), ids=["alias", "cancel", "cancel-by-alias", "no-route-of-its-own"])
async def test_what_has_no_route_of_its_own_goes_to_any_pod(envoy_gateway: Gateway, which: int) -> None:
    async with envoy_gateway.pod() as pod:
        path = paths_of_the_fallback(await envoy_gateway.add_run(pod))[which]
        got = await call(envoy_gateway, path, "x-kr-runtime: other/evil", "x-kr-epoch: evil")
        assert got.status == 200
        [(_, seen, headers, _)] = pod.seen
        assert seen == path
        assert not any(name.lower().startswith("x-kr-") for name in headers)


async def test_every_id_can_be_cancelled(envoy_gateway: Gateway) -> None:
    every = "".join(map(chr, range(0x21, 0x7F)))
    async with envoy_gateway.pod() as pod:
        uid = await envoy_gateway.add_run(pod)
        path = cancel_path(namespace=NAMESPACE, runtime=RUNTIME, uid=uid, invocation=every)
        assert (await call(envoy_gateway, path)).status == 200
        [(_, seen, _, _)] = pod.seen
    parsed = parse_path(seen)
    assert parsed is not None
    assert (parsed.uid, parsed.cancel) == (uid, every)


async def test_a_route_is_for_the_full_path(envoy_gateway: Gateway) -> None:
    """The UID alone is not what was authorized: another Runtime's path with it reaches nobody."""
    async with envoy_gateway.pod() as pod:
        uid = await envoy_gateway.add_run(pod)
        for path in (canonical(uid, runtime="other"), canonical(uid, namespace="team-b")):
            assert (await call(envoy_gateway, path)).status == 503
        assert not pod.seen


async def test_a_caller_that_leaves_is_noticed(envoy_gateway: Gateway) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(_: web.BaseRequest) -> web.StreamResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with envoy_gateway.pod(wait) as pod:
        path = canonical(await envoy_gateway.add_run(pod))
        calling = asyncio.create_task(call(envoy_gateway, path))
        async with asyncio.timeout(20):
            await begun.wait()
            calling.cancel()
            await ended.wait()
        assert isinstance(pod, Pod)
