"""What happens in time: slow callers, slow Pods, an authz or a router that is away. Limits are shortened for it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from aiohttp import web
from tests.gateway_rig import Gateway, authz, eventually, gateway, ok
from tests.http_clients import http1
from tests.test_envoy_statuses import PATH, assert_failure, call, canonical, request

pytestmark = pytest.mark.asyncio(loop_scope="session")

IMPATIENT = {
    "request_headers_timeout: 10s": "request_headers_timeout: 0.5s",
    "request_timeout: 30s": "request_timeout: 1.5s",
    'stream_idle_timeout: "910.000s"': "stream_idle_timeout: 1s",
    "cluster: authz, timeout: 5s": "cluster: authz, timeout: 0.5s",
    "max_pending_requests: 1024, max_requests: 1000000": "max_pending_requests: 1, max_requests: 1000000",
}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def impatient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("gw")
    async with authz(folder), gateway(folder, changes=IMPATIENT) as made:
        yield made


async def never(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def test_headers_that_do_not_come(impatient: Gateway) -> None:
    answer = await http1(impatient.port, [f"POST {PATH} HTTP/1.1\r\n".encode()], tls=impatient.client_context())
    assert_failure(answer, 408, "RequestTimeout", "envoy", invocation_id=None)


async def test_a_body_that_comes_too_slowly(impatient: Gateway) -> None:
    """It goes on coming, so the stream is never idle, and is nowhere near its end."""
    data = request(impatient, PATH, "x-kruntime-invocation-id: call-1", body=b"x" * 1000)
    tls = impatient.client_context()
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient.port, ssl=tls, server_hostname="localhost")

    async def trickle() -> None:
        writer.write(data[:-1000])
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.1)

    trickling = asyncio.create_task(trickle())
    async with asyncio.timeout(20):
        status = await reader.readline()
    trickling.cancel()
    writer.transport.abort()
    assert b" 408 " in status


async def test_a_body_that_stops(impatient: Gateway) -> None:
    data = request(impatient, PATH, "x-kruntime-invocation-id: call-1", body=b"x" * 1000)
    answer = await http1(impatient.port, [data[:-10]], tls=impatient.client_context())
    assert_failure(answer, 408, "RequestTimeout", "envoy", invocation_id="call-1")


async def test_a_pod_that_is_silent_for_longer_than_any_deadline(impatient: Gateway) -> None:
    async with impatient.pod(never) as pod:
        answer = await call(impatient, canonical(await impatient.add_run(pod)))
        assert_failure(answer, 504, "DeadlineExceeded", "envoy", outcome="timeout", invocation_id="*")


async def test_an_authorization_that_does_not_come(impatient: Gateway) -> None:
    answer = await call(impatient, PATH, token="hang")
    assert_failure(answer, 503, "AuthorizationUnavailable", "envoy", outcome="not_dispatched", invocation_id="*")


async def test_more_than_may_wait(impatient: Gateway) -> None:
    """With room for one cold connection at a time, some of many cold calls are refused, and none is sent twice."""
    async with impatient.pod(ok) as pod:
        path = canonical(await impatient.add_run(pod))
        answers = await asyncio.gather(*(call(impatient, path) for _ in range(30)))
        refused = [answer for answer in answers if answer.status == 503]
        assert refused
        for answer in refused:
            assert_failure(answer, 503, "Overloaded", "envoy", outcome="not_dispatched", invocation_id="*")
        assert len(pod.seen) == sum(answer.status == 200 for answer in answers) == 30 - len(refused)


async def test_a_pod_that_has_stopped_is_given_up_soon_after_the_callers_deadline(envoy_gateway: Gateway) -> None:
    """Not after the route's own time-out, a quarter of an hour later."""
    async with envoy_gateway.pod(never) as pod:
        path = canonical(await envoy_gateway.add_run(pod))
        answer = await call(envoy_gateway, path, "x-kruntime-timeout-ms: 1")
        assert_failure(answer, 504, "DeadlineExceeded", "envoy", outcome="timeout", invocation_id="*")
        assert len(pod.seen) == 1, "never sent twice"


@pytest.mark.parametrize("name", ["x-envoy-upstream-rq-timeout-ms", "x-envoy-upstream-rq-per-try-timeout-ms"])
async def test_a_caller_cannot_set_envoys_own_time_out(envoy_gateway: Gateway, name: str) -> None:
    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return await ok(request)

    async with envoy_gateway.pod(slow) as pod:
        path = canonical(await envoy_gateway.add_run(pod))
        assert (await call(envoy_gateway, path, f"{name}: 1")).status == 200
        assert not any(seen.lower().startswith("x-envoy-") for seen in pod.headers[0])


async def test_the_gateway_opens_when_the_router_has_spoken_and_goes_on_without_it_and_authz(tmp_path: Path) -> None:
    made = Gateway(tmp_path)
    async with made.serving_routes() as port:
        made.write_files(ads_port=port)
        await made.start_envoy()
        try:

            async def connected() -> bool:
                return bool(made.publisher._streams)

            await eventually(connected)
            assert not await made.is_ready(), "nothing has been published yet"
            with pytest.raises(httpx.TransportError):
                async with made.client() as client:
                    await client.post(PATH)
            made.publish()
            await eventually(made.is_ready)
            answer = await call(made, PATH)
            assert_failure(
                answer, 503, "AuthorizationUnavailable", "envoy", outcome="not_dispatched", invocation_id="*"
            )
            async with authz(tmp_path), made.pod() as pod:
                path = canonical(await made.add_run(pod))
                await made.stop_routes()
                assert (await call(made, path)).status == 200
                assert (await call(made, path, token="no")).status == 403
        finally:
            await made.stop_envoy()
