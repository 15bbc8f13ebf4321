"""The discovery service over real gRPC and mTLS: who is served, and what a stream sees."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from tests.router_client import connected
from tests.router_gateway import Pki, Router, eventually
from tests.router_worlds import OPTIONS, UID, a_pod, a_run, a_runtime

from kruntimes.common.api.names import Role
from kruntimes.common.api.settings import Settings
from kruntimes.common.identity import Peer
from kruntimes.router.encode import CLUSTERS, ROUTES, SCOPES
from kruntimes.router.main import may_have_routes
from kruntimes.router.stream import MAX_TYPES


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


@pytest.fixture
async def router(pki: Pki) -> AsyncIterator[Router]:
    async with Router(pki, OPTIONS).serving() as serving:
        yield serving


def target(router: Router) -> str:
    return f"127.0.0.1:{router.port}"


async def test_a_gateway_is_sent_the_world_and_then_what_changes(pki: Pki, router: Router) -> None:
    router.apply(runs={"demo/a": a_run()}, pods={"demo/p": a_pod()}, runtimes={"demo/python": a_runtime()})
    async with connected(target(router), pki.issue(Role.GATEWAY, pod_uid="g"), router.ca) as client:
        await client.send(CLUSTERS)
        await client.send(SCOPES)
        await client.send(ROUTES, resource_names_subscribe=["runs-0a1", "other"])
        await client.until(CLUSTERS, "demo/python", b"10.1.2.3")
        await client.until(SCOPES, "fff", b"runs-fff")
        await client.until(ROUTES, "runs-0a1", f"{UID}/1/pod-1".encode())
        assert len(client.world[SCOPES]) == 4097
        assert set(client.world[ROUTES]) == {"runs-0a1", "other"}
        router.apply(runs={"demo/a": a_run(attempt=2)})
        response = await client.receive()
        assert [each.name for each in response.resources] == ["runs-0a1"]
        router.apply(runtimes={"demo/python": None})
        response = await client.receive()
        assert response.removed_resources == ["demo/python"]
        assert router.value("streams") == 1
    await eventually(lambda: router.value("streams") == 0, "the stream is forgotten")


@pytest.mark.parametrize("role", [Role.RUNTIMED, Role.ROUTER])
async def test_another_role_is_refused(pki: Pki, router: Router, role: Role) -> None:
    async with connected(target(router), pki.issue(role, pod_uid="x"), router.ca) as client:
        assert await client.code() is grpc.StatusCode.PERMISSION_DENIED
    assert router.value("streams_refused_total", reason="identity") == 1


async def test_a_certificate_of_another_ca_does_not_connect(pki: Pki, router: Router) -> None:
    stranger = Pki().issue(Role.GATEWAY, pod_uid="g")
    async with connected(target(router), stranger, router.ca) as client:
        assert await client.code() is grpc.StatusCode.UNAVAILABLE
    assert router.value("streams") == 0


@pytest.mark.parametrize(
    ("peer", "allowed"),
    [
        pytest.param(None, False, id="nobody"),
        pytest.param(Role.GATEWAY, True, id="a-gateway"),
        pytest.param(Role.RUNTIMED, False, id="a-runtimed"),
        pytest.param(Role.ROUTER, False, id="a-router"),
    ],
)
def test_who_may_have_routes(peer: Role | None, allowed: bool) -> None:
    settings = Settings(trust_domain="cluster.local")

    def of(domain: str) -> Peer | None:
        if peer is None:
            return None
        return Peer(trust_domain=domain, namespace="kruntimes-system", role=peer, owner="kruntimes", pod_uid="g")

    assert may_have_routes(of("cluster.local"), settings) is allowed
    assert not may_have_routes(of("elsewhere"), settings)


@pytest.mark.parametrize(
    "data", [pytest.param(b"\xff\xff", id="not-protobuf"), pytest.param(b"\x12\x01\xff", id="not-utf8")]
)
async def test_noise_ends_the_stream_only(pki: Pki, router: Router, data: bytes) -> None:
    gateway = pki.issue(Role.GATEWAY, pod_uid="g")
    async with connected(target(router), gateway, router.ca) as client:
        await client.send_bytes(data)
        assert await client.code() is grpc.StatusCode.INVALID_ARGUMENT
    async with connected(target(router), gateway, router.ca) as client:
        await client.send(ROUTES, resource_names_subscribe=["other"])
        await client.until(ROUTES, "other", b"other")


async def test_a_type_that_is_not_published_is_answered_with_nothing(pki: Pki, router: Router) -> None:
    async with connected(target(router), pki.issue(Role.GATEWAY, pod_uid="g"), router.ca) as client:
        await client.send("type.googleapis.com/envoy.config.listener.v3.Listener")
        response = await client.receive()
        assert (response.resources, response.removed_resources) == ([], [])


async def test_types_without_end_end_the_stream(pki: Pki, router: Router) -> None:
    async with connected(target(router), pki.issue(Role.GATEWAY, pod_uid="g"), router.ca) as client:
        for index in range(MAX_TYPES + 1):
            await client.send(f"type-{index}")
        assert await client.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_changes_during_a_response_arrive_once_and_last(pki: Pki, router: Router) -> None:
    async with connected(target(router), pki.issue(Role.GATEWAY, pod_uid="g"), router.ca) as client:
        await client.send(ROUTES, resource_names_subscribe=["runs-0a1"])
        data = await client.call.read()
        router.apply(pods={"demo/p": a_pod()})
        for attempt in range(1, 30):
            router.apply(runs={"demo/a": a_run(attempt=attempt)})
        nothing = asyncio.ensure_future(client.call.read())
        await asyncio.sleep(0)
        assert not nothing.done()
        assert data
        await client.send(ROUTES, response_nonce="1")
        assert f"{UID}/29/pod-1".encode() in await nothing
        assert router.value("sent_bytes_total", type="RouteConfiguration") == len(data) + len(await nothing)


async def test_a_client_that_closes_its_side_is_let_go(pki: Pki, router: Router) -> None:
    async with connected(target(router), pki.issue(Role.GATEWAY, pod_uid="g"), router.ca) as client:
        await client.send(ROUTES, resource_names_subscribe=["other"])
        await client.until(ROUTES, "other", b"other")
        await client.call.done_writing()
        assert await client.code() is grpc.StatusCode.OK
