"""The operator's start: settings, election, caches, controllers (design §2).

Caches are filled anew by whoever leads, and not before: a list that begins after the Lease was taken shows
every assignment of the leader before, so that no Pod's capacity is given away twice.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Any

from kruntimes.common import metrics as common_metrics
from kruntimes.common.api.names import CA_NAME, METRICS_PORT, RUNTIME_LABEL, RUNTIMED_ROLE, RUNTIMED_SERVICE_ACCOUNT
from kruntimes.common.api.settings import Settings, SettingsError
from kruntimes.common.api.views import CSR, Lease, Object, Pod, Runtime
from kruntimes.common.kube import paths
from kruntimes.common.kube.events import Recorder
from kruntimes.common.kube.lease import Elector
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.common.metrics import Health
from kruntimes.controller.announce import Announcer
from kruntimes.controller.approve import Policy
from kruntimes.controller.authority import Authority
from kruntimes.controller.book import Book, runtime_key
from kruntimes.controller.grants import Grants
from kruntimes.controller.metrics import Metrics
from kruntimes.controller.pods import Pods
from kruntimes.controller.podtemplate import MANAGED_BY, PodDefaults
from kruntimes.controller.recovery import Recovery, Served
from kruntimes.controller.runtimes import Runtimes
from kruntimes.controller.scheduler import Scheduler
from kruntimes.controller.signer import Bundles, ConfigMap, Signer, ensure_authority
from kruntimes.controller.views import ControlledRun, EndpointSlice, ReplicaSet, RoleBinding

log = logging.getLogger(__name__)

COMPONENT = "kruntimes-operator"
LEASE = "kruntimes-operator"
HEARTBEAT_WATCH_SECONDS = 15.0
"""Silence after which the watch of heartbeats counts as broken: half of what makes a Pod lost. The operator's own
Lease is in the same collection and is renewed every few seconds, so a watch that works is never that silent."""

_OURS = ",".join(f"{name}={value}" for name, value in MANAGED_BY.items())


def pod_defaults(settings: Settings) -> PodDefaults:
    """The settings of the installation that reach the Pods."""
    return PodDefaults(
        gateway_url=settings.gateway_url,
        trust_domain=settings.trust_domain,
        daemon_image=settings.daemon_image,
        default_timeout=settings.default_timeout,
        max_timeout=settings.max_timeout,
        log_level=settings.log_level,
        own_gateway_ca=settings.gateway_ca_file is not None,
    )


def gateway_bundle(settings: Settings) -> str | None:
    """Whom callers of the gateway must trust, where that is not our own CA; may be empty. Raises SettingsError."""
    if settings.gateway_ca_file is None:
        return None
    try:
        return settings.gateway_ca_file.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise SettingsError(f"KRUNTIMES_GATEWAY_CA_FILE cannot be read: {error}") from None


def policy(settings: Settings) -> Policy:
    """What the signers may sign in this installation."""
    return Policy(
        trust_domain=settings.trust_domain,
        namespace=settings.namespace,
        owner=settings.instance,
        gateway_names=frozenset(settings.gateway_names),
    )


class Operator:
    """One term of leadership: caches, controllers, and how news travels between them."""

    def __init__(self, kube: Kube, settings: Settings, authority: Authority, *, metrics: Metrics) -> None:
        self._kube = kube
        self._namespace = settings.namespace
        self._book = Book()
        self._announcer = Announcer(Recorder(kube, COMPONENT))
        self._caches: list[Reflector[Any]] = []
        self._build_caches()
        self._bundles = Bundles(kube, authority, self._bundles_seen, gateway=gateway_bundle(settings))
        self._grants = Grants(
            kube,
            self._book,
            runtimes=self._runtimes_seen,
            bindings=self._bindings,
            accounts=self._accounts,
        )
        self._served = Served(self._slices)
        self._signer = Signer(kube, authority, policy(settings), self._csrs, metrics=metrics)
        self._pods = Pods(kube, self._book, self._leases, on_change=self._pod_life_changed)
        self._runtimes = Runtimes(
            kube,
            self._book,
            pod_defaults(settings),
            runtimes=self._runtimes_seen,
            replica_sets=self._replica_sets,
            services=self._services,
            bundles=self._bundles,
            grants=self._grants,
            announcer=self._announcer,
        )
        self._recovery = Recovery(
            kube,
            self._book,
            runs=self._runs,
            served=self._served,
            silence=self._pods.silence,
            announcer=self._announcer,
            metrics=metrics,
        )
        self._scheduler = Scheduler(
            kube,
            self._book,
            alive=self._pods.alive,
            retiring=self._runtimes.retiring,
            doubtful=self._recovery.doubtful,
            exists=self._runtimes_seen.store.__contains__,
            announcer=self._announcer,
            metrics=metrics,
        )
        self._started = False

    def _build_caches(self) -> None:
        self._runs = self._cache(paths.runs(None), ControlledRun, self._run_changed)
        self._pods_seen = self._cache(
            paths.pods(None), Pod, self._pod_changed, label_selector=f"{RUNTIME_LABEL},{_OURS}"
        )
        self._leases = self._cache(
            paths.leases(None),
            Lease,
            self._lease_changed,
            field_selector="metadata.namespace!=kube-node-lease",
            silence=HEARTBEAT_WATCH_SECONDS,
        )
        self._runtimes_seen = self._cache(paths.runtimes(None), Runtime, self._runtime_changed)
        self._replica_sets = self._cache(
            paths.replicasets(None), ReplicaSet, self._replica_set_changed, label_selector=_OURS
        )
        self._services = self._cache(
            paths.services(None), Object, self._service_changed, label_selector=_OURS, metadata_only=True
        )
        self._slices = self._cache(
            paths.endpointslices(None), EndpointSlice, self._slice_changed, label_selector=RUNTIME_LABEL
        )
        self._bundles_seen = self._cache(
            paths.configmaps(None), ConfigMap, self._bundle_changed, field_selector=f"metadata.name={CA_NAME}"
        )
        self._bindings = self._cache(
            paths.rolebindings(None), RoleBinding, self._rights_changed, field_selector=f"metadata.name={RUNTIMED_ROLE}"
        )
        self._accounts = self._cache(
            paths.serviceaccounts(None),
            Object,
            self._rights_changed,
            field_selector=f"metadata.name={RUNTIMED_SERVICE_ACCOUNT}",
            metadata_only=True,
        )
        self._csrs = self._cache(paths.csrs(), CSR, self._csr_changed)

    @property
    def started(self) -> bool:
        """Whether every cache is filled and every controller runs."""
        return self._started

    def waiting_count(self) -> int:
        """How many Runs wait for a Pod."""
        return self._book.waiting_count()

    async def run(self) -> None:
        """Leads until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self._caches:
                group.create_task(cache.run())
            for cache in self._caches:
                await cache.synced.wait()
            await self._bundles.ensure(self._namespace)
            for controller in (
                self._announcer,
                self._bundles,
                self._grants,
                self._signer,
                self._runtimes,
                self._pods,
                self._recovery,
                self._scheduler,
            ):
                group.create_task(controller.run())
            self._started = True
            log.info("controllers run", extra={"runs": len(self._runs.store)})

    def _cache(self, path: str, type: Any, on_change: Callable[[str], None], **more: Any) -> Reflector[Any]:
        cache: Reflector[Any] = Reflector(self._kube, path, type, on_change=on_change, **more)
        self._caches.append(cache)
        return cache

    def _run_changed(self, key: str) -> None:
        run = self._runs.store.get(key)
        old = self._book.run(key)
        if self._book.see_run(key, run):
            for one in (old, run):
                if one is not None:
                    self._scheduler.wake(one.runtime_key)
                    self._runtimes.settle(one.runtime_key)
        self._recovery.run_changed(key)

    def _pod_changed(self, key: str) -> None:
        pod = self._pods_seen.store.get(key)
        old = self._book.put_pod(key, pod)
        self._pods.pod_changed(key, old)
        for one in (old, pod):
            if one is not None:
                self._pod_life_changed(one)
        if pod is None:
            self._grants.changed(key.partition("/")[0])

    def _pod_life_changed(self, pod: Pod) -> None:
        self._scheduler.wake(runtime_key(pod))
        self._runtimes.settle(runtime_key(pod))
        self._recovery.pod_changed(pod.metadata.uid)

    def _lease_changed(self, key: str) -> None:
        self._pods.lease_changed(key)

    def _rights_changed(self, key: str) -> None:
        self._grants.changed(key.partition("/")[0])

    def _runtime_changed(self, key: str) -> None:
        self._grants.changed(key.partition("/")[0])
        self._runtimes.runtime_changed(key)
        self._scheduler.wake(key)

    def _replica_set_changed(self, key: str) -> None:
        self._runtimes.owned_changed(key.rpartition("-")[0])

    def _service_changed(self, key: str) -> None:
        self._runtimes.owned_changed(key)

    def _slice_changed(self, key: str) -> None:
        for uid in self._served.slice_changed(key):
            self._recovery.pod_changed(uid)

    def _bundle_changed(self, key: str) -> None:
        self._bundles.changed(key.partition("/")[0])

    def _csr_changed(self, key: str) -> None:
        self._signer.changed(key)


async def run(settings: Settings) -> None:
    """Serves until cancelled; decides while it holds the Lease."""
    settings.require("namespace", "daemon_image", "gateway_url")
    kube = await Kube.connect()
    registry = common_metrics.new_registry()
    metrics = Metrics(registry)
    elector = Elector(kube, settings.namespace, LEASE, settings.pod_uid or str(uuid.uuid4()))
    term: list[Operator] = []

    async def lead() -> None:
        authority = await ensure_authority(kube, settings.namespace)
        term[:] = [Operator(kube, settings, authority, metrics=metrics)]
        try:
            await term[0].run()
        finally:
            term.clear()

    metrics.observe(pending=lambda: term[0].waiting_count() if term else 0, leading=elector.leading)
    health = Health(live=lambda: True, ready=lambda: not term or term[0].started)
    server = await common_metrics.serve(registry, health, settings.bind_address, METRICS_PORT)
    try:
        await elector.run(lead)
    finally:
        await server.cleanup()
        await kube.close()
