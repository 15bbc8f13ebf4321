"""Parts of a runtimed without certificates and listeners: its lifecycle half on a real API server, and its calls."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from tests.runtimed_functions import Functions, listening
from tests.runtimed_stub import Stub, serving, until

from kruntimes.common.api import manifests
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.views import Run, condition
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.events import Recorder
from kruntimes.common.kube.queue import WorkQueue, work
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.runtimed.dispatch import Dispatcher
from kruntimes.runtimed.effects import Effects
from kruntimes.runtimed.endpoint import Endpoints
from kruntimes.runtimed.held import Held, Registry
from kruntimes.runtimed.invocation import Invocation
from kruntimes.runtimed.link import FunctionsLink
from kruntimes.runtimed.metrics import Metrics
from kruntimes.runtimed.observed import Function, FunctionState, Stage
from kruntimes.runtimed.orphans import Sweeper
from kruntimes.runtimed.reconcile import Reconciler
from kruntimes.runtimed.registration import RuntimeServer
from kruntimes.runtimed.slots import Slots
from kruntimes.runtimed.source import Home

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CODE = "def main(event):\n    return event\n"


class CountingKube:
    """The administrator's connection, which remembers the writes that go through it."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.writes: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kube, name)

    async def patch_json(self, path: str, ops: Any, type: Any, **more: Any) -> Any:
        self.writes.append(("PATCH", path))
        return await self._kube.patch_json(path, ops, type, **more)


@dataclass
class Cluster:
    """A namespace of our own. As operator and user, a test writes through it."""

    kube: Kube
    namespace: str

    async def create(self, **spec: Any) -> Run:
        """A function Run, not assigned yet."""
        given = {
            "runtime": "python",
            "source": {"inline": CODE, "inlinePath": "handler.py"},
            "mode": {"function": {"handler": "handler.main"}},
        }
        body = {
            "apiVersion": "kruntimes.io/v1alpha1",
            "kind": "Run",
            "metadata": {"generateName": "fn-"},
            "spec": given | spec,
        }
        return await self.kube.create(paths.runs(self.namespace), body, Run)

    async def assign(self, run: Run, pod_uid: str) -> Run:
        """What the scheduler writes."""
        status = {"phase": "Scheduled", "assignedPod": f"pod-{pod_uid}", "assignedPodUID": pod_uid}
        path = paths.runs(self.namespace, run.metadata.name, "status")
        return await self.kube.patch_merge(path, {"status": status}, Run)

    async def get(self, run: Run) -> Run | None:
        """The Run as it is, or None."""
        try:
            return await self.kube.get(paths.runs(self.namespace, run.metadata.name), Run)
        except errors.Missing:
            return None

    async def patch(self, run: Run, body: dict[str, Any]) -> Run:
        """A merge patch."""
        return await self.kube.patch_merge(paths.runs(self.namespace, run.metadata.name), body, Run)

    async def delete(self, run: Run) -> None:
        """Asks for deletion."""
        await self.kube.delete(paths.runs(self.namespace, run.metadata.name))

    async def until(self, run: Run, condition: Any, *, seconds: float = 15.0) -> Run:
        """Waits until *condition(run)* holds for the Run as it is (None once it is gone)."""
        seen: Run | None = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    seen = await self.get(run)
                    if condition(seen):
                        return seen  # type: ignore[return-value]
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s; it is {seen}") from None


def in_phase(phase: str, *, attempt: int | None = None) -> Callable[[Run | None], bool]:
    """For `Cluster.until`: whether the Run is there, in that phase and (where given) attempt."""

    def holds(run: Run | None) -> bool:
        return run is not None and run.status.phase == phase and attempt in (None, run.status.attempt)

    return holds


def reason(run: Run, kind: str = "Ready") -> tuple[str, str]:
    """Status and reason of a condition."""
    held = condition(run.status.conditions, kind)
    assert held is not None, kind
    return held.status, held.reason


@asynccontextmanager
async def cluster(kubeconfig: Path) -> AsyncIterator[Cluster]:
    """A namespace on the API server, with our CRDs there."""
    kube = await Kube.connect(kubeconfig=kubeconfig)
    namespace = f"runtimed-{uuid.uuid4().hex[:8]}"
    try:
        for crd in manifests.crds():
            await kube.apply(f"{CRDS}/{crd['metadata']['name']}", crd, dict, manager="tests")
        await kube.create(paths.namespaces(), {"metadata": {"name": namespace}}, dict)
        async with asyncio.timeout(60):
            while True:
                try:
                    await kube.list(paths.runs(namespace), Run)
                    break
                except errors.Missing:
                    await asyncio.sleep(0.1)
        yield Cluster(kube, namespace)
    finally:
        with suppress(errors.ApiError):
            await kube.delete(paths.namespaces(namespace))
        await kube.close()


@dataclass
class World:
    """One runtimed. writes: what it wrote to the API server."""

    pod_uid: str
    registry: Registry
    dispatcher: Dispatcher
    reconciler: Reconciler
    server: RuntimeServer
    workspace: Path
    kube: CountingKube
    flags: dict[str, bool]
    endpoints: Endpoints


@asynccontextmanager
async def runtimed(
    place: Cluster, socket: Path, workspace: Path, *, pod_uid: str | None = None, bundle: Path | None = None
) -> AsyncIterator[World]:
    """A lifecycle half that works until the context ends, on the Runtime Server at *socket*."""
    uid = pod_uid or f"pod-{uuid.uuid4().hex[:8]}"
    queue, registry, metrics = WorkQueue(), Registry(), Metrics(CollectorRegistry())
    kube, flags = CountingKube(place.kube), {"draining": False, "stale": False, "fenced": False}
    endpoints = Endpoints("https://gateway:8443", bundle)

    def look_at(held: Any) -> None:
        queue.add(held.key)

    server = RuntimeServer()
    runs = Reflector(
        place.kube,
        paths.runs(place.namespace),
        Run,
        field_selector=f"status.assignedPodUID={uid}",
        on_change=queue.add,
    )
    async with asyncio.TaskGroup() as tasks:
        dispatcher = Dispatcher(server=server, slots=Slots(), tasks=tasks, on_ended=look_at, on_lost=look_at)
        effects = Effects(
            kube=kube,  # type: ignore[arg-type]
            server=server,
            registry=registry,
            dispatcher=dispatcher,
            recorder=Recorder(place.kube, "runtimed"),
            home=Home(workspace, uid),
            endpoint=endpoints.of,
            tasks=tasks,
            wake=queue.add,
        )
        reconciler = Reconciler(
            queue=queue,
            runs=runs,
            effects=effects,
            metrics=metrics,
            pod_uid=uid,
            drain_seconds=5.0,
            endpoint=endpoints.of,
            draining=lambda: flags["draining"],
            stale=lambda: flags["stale"],
            fenced=lambda: flags["fenced"],
        )
        await server.connect(socket=socket, port=1)
        jobs = [
            tasks.create_task(server.watch()),
            tasks.create_task(runs.run()),
            tasks.create_task(work(queue, reconciler.reconcile, workers=4)),
        ]
        await runs.synced.wait()
        jobs.append(tasks.create_task(Sweeper(server=server, home=effects.home, owned=reconciler.owned).run()))
        try:
            yield World(uid, registry, dispatcher, reconciler, server, workspace, kube, flags, endpoints)
        finally:
            for job in jobs:
                job.cancel()
            for held in registry:
                if held.task is not None:
                    held.task.cancel()
            await server.close()


# ---------------------------------------------------------------- calls, without an API server

RUN_UID = "run-1"


def registered(uid: str = RUN_UID, *, attempt: int = 1, linked: bool = False) -> Held:
    """What is held of a function that the Runtime Server has registered."""
    return Held(
        key="demo/hello",
        epoch=Epoch(uid, attempt, "pod-1"),
        since=0.0,
        stage=Stage.REGISTERED,
        registration_id=f"{uid}/1",
        linked=linked,
        function=Function(state=FunctionState.READY, read_at=0.0),
    )


def call(body: bytes = b"echo", *, id: str = "id-1", seconds: float = 5.0, type: str = "text/plain") -> Invocation:
    """One invocation; what it does is its body, as in `runtimed_stub`."""
    return Invocation(id=id, body=body, content_type=type, seconds=seconds, trace="00-t-s-01")


@dataclass
class Place:
    """A dispatcher with one function. functions, link: of the functions socket, which only a linked one uses."""

    stub: Stub
    dispatcher: Dispatcher
    slots: Slots
    held: Held
    ended: list[Held]
    lost: list[Held]
    functions: Functions
    link: FunctionsLink


@asynccontextmanager
async def dispatching(folder: Path, *, linked: bool = False) -> AsyncIterator[Place]:
    """A dispatcher on a Runtime Server with sockets in *folder*; at the end every slot has to be free again."""
    functions, stub, slots = Functions(), Stub(functions={RUN_UID: f"{RUN_UID}/1"}), Slots()
    link = FunctionsLink(folder / "functions.sock")
    server = RuntimeServer(link=link if linked else None)
    ended: list[Held] = []
    lost: list[Held] = []
    async with (
        listening(functions, folder / "functions.sock"),
        serving(stub, folder / "executor.sock"),
        asyncio.TaskGroup() as tasks,
    ):
        keeping = tasks.create_task(link.run())
        await server.connect(socket=folder / "executor.sock", port=1)
        dispatcher = Dispatcher(server=server, slots=slots, tasks=tasks, on_ended=ended.append, on_lost=lost.append)
        assert not server.offered("")
        assert not server.offered("/somewhere/else.sock")
        assert server.offered(str(folder / "functions.sock")) is linked
        if linked:
            await until(lambda: link.usable, what="connected")
        mine = registered(attempt=3 if linked else 1, linked=linked)
        try:
            yield Place(stub, dispatcher, slots, mine, ended, lost, functions, link)
        finally:
            stub.release.set()
            functions.release()
            await until(lambda: len(slots) == 0, what="every slot free at the end")
            keeping.cancel()
            await server.close()
