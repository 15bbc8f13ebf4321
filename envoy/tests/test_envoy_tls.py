"""The serving certificate and its replacement, and what Envoy shows of itself."""

import asyncio
import re
import ssl

import httpx
import pytest
from tests.gateway_rig import Gateway, authz, eventually, gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def served(made: Gateway, context: ssl.SSLContext) -> tuple[bytes, str | None, str | None]:
    """The certificate that a new connection is shown, the protocol chosen in it, and the version of TLS."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port, ssl=context, server_hostname="localhost")
    tls = writer.get_extra_info("ssl_object")
    shown = tls.getpeercert(binary_form=True), tls.selected_alpn_protocol(), tls.version()
    writer.transport.abort()
    del reader
    return shown


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), (["spdy/1"], None)],
    ids=["both", "http-1.1", "unknown"],
)
async def test_the_protocol_is_negotiated(envoy_gateway: Gateway, offered: list[str], chosen: str | None) -> None:
    context = envoy_gateway.client_context()
    context.set_alpn_protocols(offered)
    _, protocol, version = await served(envoy_gateway, context)
    assert (protocol, version) == (chosen, "TLSv1.3")


async def test_tls_1_2_will_do_and_nothing_older(envoy_gateway: Gateway) -> None:
    context = envoy_gateway.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert (await served(envoy_gateway, context))[2] == "TLSv1.2"
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await served(envoy_gateway, old)


async def test_a_new_certificate_is_served_without_dropping_a_connection(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("gw")
    async with authz(folder), gateway(folder) as made, made.client() as client:
        assert (await client.post("/x")).status_code == 404
        first = (await served(made, made.client_context()))[0]
        for _ in range(2):
            made.write_certificates()

            async def replaced(before: bytes = first) -> bool:
                return (await served(made, made.client_context()))[0] != before

            await eventually(replaced)
            first = (await served(made, made.client_context()))[0]
        assert (await client.post("/x")).status_code == 404
        connections = await stat(made, 'envoy_http_downstream_cx_http1_total{envoy_http_conn_manager_prefix="api"}')
        assert connections == 1, "the one that stood was kept"
        async with made.pod() as pod:
            path = made.path(await made.add_run(pod))
            answer = await client.post(path, headers={"authorization": "Bearer yes"})
            assert answer.status_code == 200, "the client certificate was replaced as well"


async def stat(made: Gateway, name: str) -> float:
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{made.stats_port}/stats/prometheus")).text
    return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " ")), 0.0)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/ready", 200),
        ("GET", "/stats/prometheus", 200),
        ("POST", "/stats/prometheus", 404),
        ("GET", "/stats/prometheus?format=json", 404),
        ("GET", "/stats", 404),
        ("GET", "/config_dump", 404),
        ("POST", "/quitquitquit", 404),
        ("GET", "/ready/../config_dump", 404),
        ("POST", "/ready", 404),
    ],
)
async def test_only_two_paths_of_the_admin_interface_can_be_read(
    envoy_gateway: Gateway, method: str, path: str, status: int
) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.request(method, f"http://127.0.0.1:{envoy_gateway.stats_port}{path}")
    assert answer.status_code == status


async def test_no_run_and_no_runtime_has_a_series_of_its_own(envoy_gateway: Gateway) -> None:
    async with envoy_gateway.pod() as pod, httpx.AsyncClient() as client:
        uid = await envoy_gateway.add_run(pod)
        async with envoy_gateway.client() as caller:
            for path in (envoy_gateway.path(uid), envoy_gateway.path(uid, kind="runs")):
                assert (await caller.post(path, headers={"authorization": "Bearer yes"})).status_code == 200
        text = (await client.get(f"http://127.0.0.1:{envoy_gateway.stats_port}/stats/prometheus")).text
    assert 'envoy_cluster_name="runs"' in text
    assert all(name not in text for name in (uid, pod.uid, "team-a"))
    assert not re.search("runs-[0-9a-f]{3}", text), "no shard either"


async def test_the_access_log_holds_no_secret(envoy_gateway: Gateway) -> None:
    async with envoy_gateway.client() as client:
        hidden = {"authorization": "Bearer secret-token", "x-kruntime-invocation-id": "to-be-found"}
        await client.post(
            f"{envoy_gateway.path('11111111-1111-4111-8111-111111111111')}?key=secret-key", headers=hidden
        )

    async def logged() -> bool:
        return "to-be-found" in envoy_gateway.log.read_text()

    await eventually(logged)
    assert "secret-" not in envoy_gateway.log.read_text()
