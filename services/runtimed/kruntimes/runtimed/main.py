"""Wires runtimed together: settings, certificate, caches, Runtime Server, listeners, one task group.

It starts before the container `runtime` (a native sidecar) and before it may own anything: /healthz answers from the
first moment, the rest waits patiently for what it needs.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from kruntimes.common import clock
from kruntimes.common import metrics as health
from kruntimes.common.access import Access
from kruntimes.common.api import names
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import Role
from kruntimes.common.api.settings import Settings
from kruntimes.common.api.views import Object, Run, Runtime
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.csr import CertificateNames
from kruntimes.common.kube.events import Recorder
from kruntimes.common.kube.lease import Heartbeat
from kruntimes.common.kube.queue import WorkQueue, work
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.common.tls import Workload
from kruntimes.runtimed import drain
from kruntimes.runtimed.cache import Ownership
from kruntimes.runtimed.dispatch import Dispatcher
from kruntimes.runtimed.effects import Effects
from kruntimes.runtimed.endpoint import Endpoints
from kruntimes.runtimed.heartbeat import alive, first_renewal
from kruntimes.runtimed.held import Held, Registry
from kruntimes.runtimed.invoke import InvokeServer
from kruntimes.runtimed.invoker import Ask, Invoker, Limits
from kruntimes.runtimed.link import FunctionsLink
from kruntimes.runtimed.metrics import Metrics
from kruntimes.runtimed.orphans import Sweeper
from kruntimes.runtimed.ownership import Own
from kruntimes.runtimed.peer import Peers, PeerServer
from kruntimes.runtimed.reconcile import Reconciler
from kruntimes.runtimed.registration import RuntimeServer
from kruntimes.runtimed.selffence import SelfFence
from kruntimes.runtimed.slots import Slots
from kruntimes.runtimed.source import Home

log = logging.getLogger(__name__)

SIGNER = f"{names.GROUP}/{Role.RUNTIMED.value}"
REQUIRED = ("namespace", "pod_name", "pod_uid", "runtime", "gateway_url", "ca_file")
WORKERS = 8
"""Runs reconciled at once: more than a Pod's usual capacity, since a step may wait for the API server."""
GATEWAY_CA_SECONDS = 5.0
"""How often the published bundle's file is looked at; mounted files change without a signal."""


async def run(settings: Settings) -> None:
    """Serves until cancelled."""
    settings.require(*REQUIRED)
    async with AsyncExitStack() as connections:  # closed only when no task is left that might use one
        kube = await Kube.connect()
        connections.push_async_callback(kube.close)
        async with asyncio.TaskGroup() as tasks:
            await Service(settings, kube, tasks, connections).serve()


class Service:
    """One runtimed. Everything it starts runs in *tasks*; what it connects to is closed by *connections*, later."""

    def __init__(self, settings: Settings, kube: Kube, tasks: asyncio.TaskGroup, connections: AsyncExitStack) -> None:
        self._settings, self._kube, self._tasks, self._connections = settings, kube, tasks, connections
        self._ready = False
        self._beating: float | None = None
        self._figures = health.new_registry()
        self._metrics = Metrics(self._figures)
        self._registry = Registry()
        self._queue = WorkQueue()
        self._endpoints = Endpoints(settings.gateway_url, settings.gateway_ca_file or settings.ca_file)
        self._heartbeat = Heartbeat(
            kube, settings.namespace, settings.pod_name, settings.pod_uid, (settings.pod_name, settings.pod_uid)
        )
        self._cache = Ownership(
            kube,
            namespace=settings.namespace,
            runtime=settings.runtime,
            pod_name=settings.pod_name,
            pod_uid=settings.pod_uid,
            on_own_pod=lambda: self._reconciler.look_at_all(),
        )
        runs = Reflector(
            kube,
            paths.runs(settings.namespace),
            Run,
            field_selector=f"status.assignedPodUID={settings.pod_uid}",
            on_change=self._queue.add,
        )
        self._link = FunctionsLink(settings.functions_socket) if settings.functions_socket is not None else None
        self._server = RuntimeServer(on_back=self._look_at_server, link=self._link)
        self._dispatcher = Dispatcher(
            server=self._server,
            slots=Slots(),
            tasks=tasks,
            on_ended=self._look_at,
            on_lost=self._look_at,
        )
        effects = Effects(
            kube=kube,
            server=self._server,
            registry=self._registry,
            dispatcher=self._dispatcher,
            recorder=Recorder(kube, "runtimed"),
            home=Home(settings.workspace, settings.pod_uid),
            endpoint=self._endpoints.of,
            tasks=tasks,
            wake=self._queue.add,
        )
        self._reconciler = Reconciler(
            queue=self._queue,
            runs=runs,
            effects=effects,
            metrics=self._metrics,
            pod_uid=settings.pod_uid,
            drain_seconds=settings.max_timeout,
            endpoint=self._endpoints.of,
            draining=lambda: self._cache.draining,
            stale=lambda: self._fence.stale,
            fenced=lambda: self._fence.holds,
        )
        self._fence = SelfFence(
            kube=kube,
            registry=self._registry,
            metrics=self._metrics,
            namespace=settings.namespace,
            pod_uid=settings.pod_uid,
            last_renewed=self._heartbeat.last_renewed,
            look=self._look_at,
            look_at_all=self._reconciler.look_at_all,
            tasks=tasks,
        )
        self._sweeper = Sweeper(server=self._server, home=effects.home, owned=self._reconciler.owned)

    async def serve(self) -> None:
        """Starts in the order in which others depend on us, then works until cancelled."""
        async with AsyncExitStack() as stack:
            await self._serve(stack)

    async def _serve(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        page = await health.serve(
            self._figures,
            health.Health(live=self._is_alive, ready=self._is_ready),
            settings.bind_address,
            names.METRICS_PORT,
            [drain.route(deleting=self._deleting, empty=self._registry.empty, seconds=settings.max_timeout + 5)],
        )
        stack.push_async_callback(page.cleanup)
        self._tasks.create_task(self._cache.watch())
        self._tasks.create_task(self._reconciler.runs.run())
        workload = await Workload.obtain(
            self._kube, signer=SIGNER, names=certificate_names(settings), ca_file=_given(settings.ca_file)
        )
        self._tasks.create_task(workload.run())
        await self._listen(workload, stack)
        self._connections.push_async_callback(self._server.close)
        await self._server.connect(socket=settings.executor_socket, port=await self._port())
        for watched in (self._cache.runs, self._cache.pods, self._reconciler.runs):
            await watched.synced.wait()
        self._tasks.create_task(self._server.watch())
        if self._link is not None:
            self._tasks.create_task(self._link.run())
        self._beating = clock.monotonic()
        self._tasks.create_task(self._heartbeat.run())
        await first_renewal(self._heartbeat.last_renewed)
        self._tasks.create_task(self._fence.run())
        self._tasks.create_task(self._follow_gateway_ca())
        self._tasks.create_task(self._sweeper.run())
        self._ready = True
        log.info("ready", extra={"runtime": f"{settings.namespace}/{settings.runtime}"})
        await work(self._queue, self._reconciler.reconcile, workers=WORKERS)

    async def _listen(self, workload: Workload, stack: AsyncExitStack) -> None:
        settings = self._settings
        peers = Peers(workload.grpc_channel_credentials, tasks=self._tasks, on_unreachable=_unreachable)
        workload.on_change(peers.renew)
        self._connections.push_async_callback(peers.close)
        invoker = Invoker(
            own=Own(namespace=settings.namespace, runtime=settings.runtime, pod_uid=settings.pod_uid),
            ask=Ask(
                verb=settings.authz_verb,
                group=settings.authz_group,
                resource=settings.authz_resource,
                subresource=settings.authz_subresource,
            ),
            cache=self._cache,
            registry=self._registry,
            dispatcher=self._dispatcher,
            access=Access(self._kube, tasks=self._tasks, count=self._metrics.checked),
            peers=peers,
            fenced=lambda: self._fence.holds,
        )
        limits = Limits(default_timeout=settings.default_timeout, max_timeout=settings.max_timeout)
        gateway = InvokeServer(
            invoker,
            limits=limits,
            metrics=self._metrics,
            draining=lambda: self._cache.draining,
            tls=workload.server_ssl(),
        )
        await gateway.start(settings.bind_address, names.INVOKE_PORT)
        stack.push_async_callback(gateway.stop)
        hop = PeerServer(invoker, limits=limits, metrics=self._metrics)
        await hop.start(f"{_host(settings.bind_address)}:{names.PEER_PORT}", workload.grpc_server_credentials())
        stack.push_async_callback(hop.stop)

    def _is_alive(self) -> bool:
        return alive(last_renewed=self._heartbeat.last_renewed(), begun=self._beating, now=clock.monotonic())

    def _is_ready(self) -> bool:
        return self._ready and self._server.connected

    def _look_at_server(self) -> None:
        """The Runtime Server is back and may have forgotten everything: ask it about each registration."""
        for held in self._registry:
            held.function = held.execution = None
            self._look_at(held)

    def _look_at(self, held: Held) -> None:
        self._queue.add(held.key)

    async def _deleting(self) -> bool:
        """Whether our Pod is being deleted; asked of the API where the watch may be behind."""
        if self._cache.draining:
            return True
        settings = self._settings
        try:
            pod = await self._kube.get(paths.pods(settings.namespace, settings.pod_name), Object)
        except errors.ApiError:
            return False
        return pod.metadata.uid == settings.pod_uid and pod.metadata.deleting

    async def _follow_gateway_ca(self) -> None:
        while True:
            await asyncio.sleep(GATEWAY_CA_SECONDS)
            if self._endpoints.refresh():
                log.info("gateway ca bundle changed")
                self._reconciler.look_at_all()

    async def _port(self) -> int:
        """The TCP port of a foreign Runtime Server: the Runtime's own, where we may read it."""
        settings = self._settings
        try:
            runtime = await self._kube.get(paths.runtimes(settings.namespace, settings.runtime), Runtime)
        except errors.ApiError as error:
            log.info("runtime not read, its port is taken for the default", extra={"error": error.reason})
            return names.RUNTIME_SERVER_PORT
        return runtime.spec.port


def certificate_names(settings: Settings) -> CertificateNames:
    """The names of our certificate, exactly as the signer compares them (design §8)."""
    uri = names.spiffe_id(
        trust_domain=settings.trust_domain,
        namespace=settings.namespace,
        role=Role.RUNTIMED,
        owner=settings.runtime,
        pod_uid=settings.pod_uid,
    )
    return CertificateNames(
        uris=(uri,),
        dns=(
            names.pod_dns(pod_uid=settings.pod_uid, role=Role.RUNTIMED),
            names.runtime_dns(namespace=settings.namespace, runtime=settings.runtime),
        ),
    )


def _unreachable(epoch: Epoch) -> None:
    """Recovery itself is the operator's, which watches the owner's Pod and heartbeat."""
    log.warning("owner unreachable", extra={"run_uid": epoch.run_uid, "attempt": epoch.attempt, "pod": epoch.pod_uid})


def _given(path: Path | None) -> Path:
    assert path is not None, "required at the start"
    return path


def _host(address: str) -> str:
    """An address as gRPC wants it before a port."""
    return f"[{address}]" if ":" in address else address
