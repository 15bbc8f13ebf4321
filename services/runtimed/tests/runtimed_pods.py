"""Two runtimeds of one Runtime with their listeners: real mTLS, real gRPC, and caches that a test fills.

The API server's part in authorization is a table of tokens; everything else is the product.
"""

import asyncio
import base64
import datetime as dt
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client import CollectorRegistry
from tests.runtimed_stub import Stub, serving

from kruntimes.common.access import Access
from kruntimes.common.api import names
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import Role
from kruntimes.common.api.views import Pod, RouteRun
from kruntimes.common.kube import errors
from kruntimes.common.kube.csr import Certificate
from kruntimes.common.tls import Workload
from kruntimes.runtimed import ownership
from kruntimes.runtimed.cache import Ownership
from kruntimes.runtimed.dispatch import Dispatcher
from kruntimes.runtimed.held import Held, Registry
from kruntimes.runtimed.invoke import InvokeServer
from kruntimes.runtimed.invoker import Ask, Invoker, Limits
from kruntimes.runtimed.metrics import Metrics
from kruntimes.runtimed.observed import Function, FunctionState, Stage
from kruntimes.runtimed.ownership import Own
from kruntimes.runtimed.peer import Peers, PeerServer
from kruntimes.runtimed.registration import RuntimeServer
from kruntimes.runtimed.slots import Slots

NAMESPACE, RUNTIME = "demo", "python"
LIMITS = Limits(default_timeout=5.0, max_timeout=30.0)
DAY = dt.timedelta(days=1)


class Authority:
    """A CA for the length of a test."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        usage = x509.BasicConstraints(ca=True, path_length=0)
        self._certificate = self._sign(self._name, self._key.public_key(), (usage, True))
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def _sign(self, subject: x509.Name, key: Any, *extensions: tuple[Any, bool]) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - DAY,
            not_valid_after=now + DAY,
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())

    def issue(self, request: x509.CertificateSigningRequest) -> x509.Certificate:
        """What the signer makes of a request."""
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return self._sign(request.subject, request.public_key(), (names, False))

    def workload(self, role: Role, *, pod_uid: str, owner: str = RUNTIME, namespace: str = NAMESPACE) -> Workload:
        """A workload with a certificate as the operator's signer would issue it."""
        key = ec.generate_private_key(ec.SECP256R1())
        uri = names.spiffe_id(
            trust_domain="cluster.local", namespace=namespace, role=role, owner=owner, pod_uid=pod_uid
        )
        alternatives: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(uri),
            x509.DNSName(names.pod_dns(pod_uid=pod_uid, role=role)),
        ]
        leaf = self._sign(x509.Name([]), key.public_key(), (x509.SubjectAlternativeName(alternatives), True))
        certificate = Certificate(
            key_pem=key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            chain_pem=leaf.public_bytes(serialization.Encoding.PEM),
            not_before=0.0,
            not_after=0.0,
        )
        return Workload(
            None,  # type: ignore[arg-type]
            signer="",
            names=None,  # type: ignore[arg-type]
            ca_file=Path(),
            seconds=0,
            certificate=certificate,
            ca_pem=self.pem,
        )


@dataclass
class Tokens:
    """The API server as far as access reviews go: what each token may do, and whether it answers at all."""

    may: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    down: bool = False
    reviews: int = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "",
        accept: str = "",
        timeout: float = 0.0,
        token: str | None = None,
    ) -> bytes:
        self.reviews += 1
        if self.down:
            raise errors.Unreachable(status=0, reason="Unreachable", message="down")
        if token not in self.may:
            raise errors.Unauthorized(status=401)
        asked = body["spec"]["resourceAttributes"]
        allowed = (asked["verb"], asked.get("name", "")) in self.may[token]
        return msgspec.json.encode({"status": {"allowed": allowed}})


class Caches(Ownership):
    """The ownership caches, filled by hand."""

    def __init__(self, pod_uid: str) -> None:
        super().__init__(
            None,  # type: ignore[arg-type]
            namespace=NAMESPACE,
            runtime=RUNTIME,
            pod_name=f"name-of-{pod_uid}",
            pod_uid=pod_uid,
        )

    def show(self, uid: str, *, phase: str = "Ready", pod_uid: str = "", attempt: int = 1, name: str = "hello") -> None:
        status = {
            "phase": phase,
            "assignedPod": pod_uid and f"name-of-{pod_uid}",
            "assignedPodUID": pod_uid,
            "attempt": attempt,
            "conditions": [{"type": "Ready", "status": "True" if phase == "Ready" else "False"}],
        }
        document = {"metadata": {"name": name, "namespace": NAMESPACE, "uid": uid}, "status": status}
        self.runs.store[f"{NAMESPACE}/{name}"] = msgspec.convert(document, RouteRun)
        self._run_changed(f"{NAMESPACE}/{name}")

    def hide(self, *, name: str = "hello") -> None:
        self.runs.store.pop(f"{NAMESPACE}/{name}", None)
        self._run_changed(f"{NAMESPACE}/{name}")

    def show_pod(self, uid: str, *, ip: str = "127.0.0.1", deleting: bool = False) -> None:
        metadata: dict[str, Any] = {"name": f"name-of-{uid}", "namespace": NAMESPACE, "uid": uid}
        if deleting:
            metadata["deletionTimestamp"] = "2027-01-15T08:00:00Z"
        key = f"{NAMESPACE}/name-of-{uid}"
        self.pods.store[key] = msgspec.convert({"metadata": metadata, "status": {"podIP": ip}}, Pod)


@dataclass
class Pods:
    """One runtimed with its listeners. invoke_port, peer_port: on 127.0.0.1."""

    pod_uid: str
    stub: Stub
    caches: Caches
    registry: Registry
    dispatcher: Dispatcher
    peers: Peers
    invoke_port: int
    peer_port: int
    flags: dict[str, bool]
    figures: CollectorRegistry

    def hold(self, uid: str, *, attempt: int = 1) -> Held:
        """Registers a function here, at the Runtime Server too."""
        self.stub.functions[uid] = f"{uid}/{attempt}"
        held = Held(
            key=f"{NAMESPACE}/hello",
            epoch=Epoch(uid, attempt, self.pod_uid),
            since=0.0,
            stage=Stage.REGISTERED,
            registration_id=f"{uid}/{attempt}",
            function=Function(state=FunctionState.READY, read_at=0.0),
        )
        self.registry.put(held)
        return held

    def count(self, hop: str, status: int, outcome: str) -> float:
        """How many answers of that kind were counted."""
        labels = {"hop": hop, "status": str(status), "outcome": outcome}
        return self.figures.get_sample_value("kruntimes_runtimed_requests_total", labels) or 0.0


@asynccontextmanager
async def pod(
    authority: Authority,
    tokens: Tokens,
    folder: Path,
    *,
    pod_uid: str,
    owner: str = RUNTIME,
    host: str = "127.0.0.1",
    peer_port: int = 0,
) -> AsyncIterator[Pods]:
    """A runtimed on free ports unless told otherwise, on a Runtime Server of its own."""
    socket, stub, server = folder / f"{pod_uid}.sock", Stub(), RuntimeServer()
    caches, registry, figures = Caches(pod_uid), Registry(), CollectorRegistry()
    flags = {"fenced": False, "draining": False}
    workload, metrics = authority.workload(Role.RUNTIMED, pod_uid=pod_uid, owner=owner), Metrics(figures)
    async with AsyncExitStack() as connections, AsyncExitStack() as stack:
        await connections.enter_async_context(serving(stub, socket))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        await server.connect(socket=socket, port=1)
        connections.push_async_callback(server.close)
        dispatcher = Dispatcher(
            server=server, slots=Slots(), tasks=tasks, on_ended=lambda _: None, on_lost=lambda _: None
        )
        peers = Peers(workload.grpc_channel_credentials, tasks=tasks)
        connections.push_async_callback(peers.close)
        invoker = Invoker(
            own=Own(namespace=NAMESPACE, runtime=RUNTIME, pod_uid=pod_uid),
            ask=Ask(verb="get", group="kruntimes.io", resource="runs", subresource=""),
            cache=caches,
            registry=registry,
            dispatcher=dispatcher,
            access=Access(tokens, tasks=tasks),
            peers=peers,
            fenced=lambda: flags["fenced"],
        )
        gateway = InvokeServer(
            invoker, limits=LIMITS, metrics=metrics, draining=lambda: flags["draining"], tls=workload.server_ssl()
        )
        invoke_port = await gateway.start(host, 0)
        stack.push_async_callback(gateway.stop)
        hop = PeerServer(invoker, limits=LIMITS, metrics=metrics)
        peer_port = await hop.start(f"{host}:{peer_port}", workload.grpc_server_credentials())
        stack.push_async_callback(hop.stop)
        yield Pods(pod_uid, stub, caches, registry, dispatcher, peers, invoke_port, peer_port, flags, figures)
        stub.release.set()


def owner_of(epoch: Epoch, port: int) -> ownership.Peer:
    """The owner of *epoch*, on a port of this machine."""
    return ownership.Peer(f"127.0.0.1:{port}", epoch)


def opaque(text: str) -> str:
    """A token that is not a JWT."""
    return base64.urlsafe_b64encode(text.encode()).decode()
