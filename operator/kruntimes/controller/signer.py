"""The signer's shell: keeps the CA, answers certificate requests, and hands the CA's bundle out.

Source: design §8.
"""

import base64
import logging
from collections.abc import Callable
from typing import Any, assert_never

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from kruntimes.common import clock
from kruntimes.common.api.names import CA_BUNDLE_KEY, CA_NAME, GATEWAY_BUNDLE_KEY
from kruntimes.common.api.views import CSR, Condition, Meta, Pod, View, condition
from kruntimes.common.errors import Terminal
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import AlreadyExists, Forbidden, Missing
from kruntimes.common.kube.queue import After, Done, WorkQueue, work
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.controller.approve import Approve, Deny, Ignore, Policy, Request, decide, read
from kruntimes.controller.authority import Authority
from kruntimes.controller.metrics import Metrics
from kruntimes.controller.pods import MANAGER
from kruntimes.controller.podtemplate import MANAGED_BY
from kruntimes.controller.views import timestamp

log = logging.getLogger(__name__)

WORKERS = 4
CERTIFICATE_KEY, PRIVATE_KEY = "tls.crt", "tls.key"
"""Keys of Secret `kruntimes-ca`, as in Secrets of type kubernetes.io/tls."""


class Secret(View, frozen=True):
    """A Secret; values are base64."""

    metadata: Meta = Meta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class ConfigMap(View, frozen=True):
    """A ConfigMap."""

    metadata: Meta = Meta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


async def ensure_authority(kube: Kube, namespace: str) -> Authority:
    """The installation's CA: the one in Secret `kruntimes-ca`, made once.

    Of two that make one at once, the second finds the name taken and reads what the first has made. Raises
    Terminal where the Secret holds no CA: overwriting it would cut off everything that trusts it.
    """
    try:
        return _load(await kube.get(paths.secrets(namespace, CA_NAME), Secret))
    except Missing:
        pass
    key = ec.generate_private_key(ec.SECP256R1())
    made = Authority.new(key=key, serial=x509.random_serial_number(), now=clock.wall())
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": CA_NAME, "namespace": namespace, "labels": MANAGED_BY},
        "data": {
            CERTIFICATE_KEY: base64.b64encode(made.certificate_pem()).decode(),
            PRIVATE_KEY: base64.b64encode(made.key_pem()).decode(),
        },
    }
    try:
        await kube.create(paths.secrets(namespace), body, Secret)
    except AlreadyExists:
        return _load(await kube.get(paths.secrets(namespace, CA_NAME), Secret))
    log.info("certificate authority made", extra={"secret": f"{namespace}/{CA_NAME}"})
    return made


def _load(secret: Secret) -> Authority:
    try:
        return Authority.load(
            certificate_pem=base64.b64decode(secret.data.get(CERTIFICATE_KEY, "")),
            key_pem=base64.b64decode(secret.data.get(PRIVATE_KEY, "")),
        )
    except (ValueError, TypeError) as error:
        raise Terminal(f"Secret {secret.metadata.key} holds no certificate authority: {error}") from None


class Bundles:
    """The CA's bundle as ConfigMap `kruntimes-ca` in every namespace that needs it.

    gateway: beside it, whom the gateway's callers must trust, where its certificate comes from somebody else.
    """

    def __init__(
        self, kube: Kube, authority: Authority, held: Reflector[ConfigMap], *, gateway: str | None = None
    ) -> None:
        self._kube = kube
        self._data = {CA_BUNDLE_KEY: authority.certificate_pem().decode()}
        if gateway is not None:
            self._data[GATEWAY_BUNDLE_KEY] = gateway
        self._held = held
        self._wanted: set[str] = set()
        self._queue = WorkQueue()

    async def ensure(self, namespace: str) -> None:
        """Writes the bundle into *namespace* unless it stands there, and keeps it from now on."""
        self._wanted.add(namespace)
        held = self._held.store.get(f"{namespace}/{CA_NAME}")
        if held is not None and held.data == self._data:
            return
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CA_NAME, "namespace": namespace, "labels": MANAGED_BY},
            "data": self._data,
        }
        await self._kube.apply(paths.configmaps(namespace, CA_NAME), body, ConfigMap, manager=MANAGER)

    def changed(self, namespace: str) -> None:
        """The ConfigMap in *namespace* appeared, changed or went."""
        if namespace in self._wanted:
            self._queue.add(namespace)

    async def run(self) -> None:
        """Keeps the bundles until cancelled."""
        await work(self._queue, self._reconcile, workers=WORKERS)

    async def _reconcile(self, namespace: str) -> Done | After:
        try:
            await self.ensure(namespace)
        except (Missing, Forbidden) as error:
            # The namespace is gone or going; a Runtime in a new one of that name asks again.
            self._wanted.discard(namespace)
            log.info("bundle not kept", extra={"namespace": namespace, "error": error.message})
        return Done()


class Signer:
    """Answers the certificate requests of our signers."""

    def __init__(
        self,
        kube: Kube,
        authority: Authority,
        policy: Policy,
        csrs: Reflector[CSR],
        *,
        metrics: Metrics,
        serial: Callable[[], int] = x509.random_serial_number,
    ) -> None:
        self._kube = kube
        self._authority = authority
        self._policy = policy
        self._csrs = csrs
        self._metrics = metrics
        self._serial = serial
        self._queue = WorkQueue()

    def changed(self, key: str) -> None:
        """A certificate request appeared or changed."""
        csr = self._csrs.store.get(key)
        if csr is not None and not isinstance(read(csr, self._policy), Ignore):
            self._queue.add(key)

    async def run(self) -> None:
        """Answers until cancelled."""
        await work(self._queue, self._reconcile, workers=WORKERS)

    async def _reconcile(self, key: str) -> Done | After:
        csr = self._csrs.store.get(key)
        if csr is None:
            return Done()
        asked = read(csr, self._policy)
        answer = decide(asked, await self._pod(asked), self._policy) if isinstance(asked, Request) else asked
        try:
            await self._answer(csr, answer)
        except Missing:
            log.debug("certificate request went before it was answered", extra={"csr": key})
        return Done()

    async def _pod(self, request: Request) -> Pod | None:
        """Read from the API server and not from a watch: the Pod may be younger than what the watch shows."""
        try:
            return await self._kube.get(paths.pods(request.namespace, request.pod_name), Pod)
        except Missing:
            return None

    async def _answer(self, csr: CSR, answer: Approve | Deny | Ignore) -> None:
        if isinstance(answer, Ignore):
            return
        extra = {"csr": csr.metadata.name, "signer": csr.spec.signer_name, "requester": csr.spec.username}
        if isinstance(answer, Deny):
            await self._refuse(csr, answer)
            log.warning("certificate denied", extra=extra | {"reason": answer.reason, "detail": answer.message})
        elif isinstance(answer, Approve):
            await self._issue(csr, answer)
            log.info("certificate issued", extra=extra | {"pod_uid": answer.request.pod_uid})
        else:
            assert_never(answer)
        verdict = "issued" if isinstance(answer, Approve) else "denied"
        self._metrics.certificates.labels(signer=csr.spec.signer_name, verdict=verdict).inc()

    async def _refuse(self, csr: CSR, answer: Deny) -> None:
        """Denied; or Failed, where somebody else has approved what must not be signed."""
        approved = condition(csr.status.conditions, "Approved") is not None
        kind, sub = ("Failed", "status") if approved else ("Denied", "approval")
        await self._write(csr, sub, [*csr.status.conditions, _said(kind, answer.reason, answer.message)], None)

    async def _issue(self, csr: CSR, answer: Approve) -> None:
        if condition(csr.status.conditions, "Approved") is None:
            message = f"Pod {answer.request.namespace}/{answer.request.pod_name} asked for its own identity"
            held = [*csr.status.conditions, _said("Approved", "PodIdentity", message)]
            csr = await self._write(csr, "approval", held, None)
        chain = self._authority.issue(answer, serial=self._serial(), now=clock.wall())
        await self._write(csr, "status", csr.status.conditions, chain)

    async def _write(self, csr: CSR, sub: str, held: Any, chain: bytes | None) -> CSR:
        status: dict[str, Any] = {"conditions": [_encode(one) for one in held]}
        if chain is not None:
            status["certificate"] = base64.b64encode(chain).decode()
        ops: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": csr.metadata.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]
        return await self._kube.patch_json(paths.csrs(csr.metadata.name, sub), ops, CSR)


def _said(kind: str, reason: str, message: str) -> Condition:
    stamp = timestamp(clock.wall())
    return Condition(type=kind, status="True", reason=reason, message=message, last_transition_time=stamp)


def _encode(one: Condition) -> dict[str, Any]:
    encoded: dict[str, Any] = msgspec.to_builtins(one)
    encoded.pop("observedGeneration", None)
    return encoded
