"""A Pod of the model on its node: a Runtime Server, a runtimed made of the product's own parts, and a kubelet."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any, Protocol

from model.server import Server
from model.store import Client, Feed, Raw, Store, Trouble
from model.virtual import Process
from prometheus_client import CollectorRegistry

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.views import Endpoint, Pod, Run
from kruntimes.common.kube import errors
from kruntimes.common.kube.lease import Heartbeat
from kruntimes.common.kube.queue import WorkQueue, work
from kruntimes.runtimed.effects import Effects
from kruntimes.runtimed.heartbeat import first_renewal
from kruntimes.runtimed.held import Held, Registry
from kruntimes.runtimed.metrics import Metrics
from kruntimes.runtimed.orphans import Sweeper
from kruntimes.runtimed.reconcile import Reconciler
from kruntimes.runtimed.selffence import SelfFence
from kruntimes.runtimed.slots import Busy, Slots
from kruntimes.runtimed.source import Home

METRICS = Metrics(CollectorRegistry())
ENDPOINT = Endpoint(url="https://gateway/f")
DRAIN_SECONDS = 20.0
GRACE_SECONDS = DRAIN_SECONDS + 15.0
"""Of the Pod; above what its runtimed waits for."""
UNREACHABLE_SECONDS = 40.0
"""After this Kubernetes takes the Pods of a silent node for not ready."""


class World(Protocol):
    """What a Pod sees of its surroundings."""

    draw: Random
    store: Store
    trouble: Trouble
    workspaces: set[tuple[str, str, int]]

    def look(self) -> None: ...


class Calls:
    """`Dispatcher` for the lifecycle: invocations that take their time, and end within 10 s of their cancellation."""

    def __init__(self, pod: "PodWorld") -> None:
        self.slots = Slots()
        self._pod = pod

    def begin(self, held: Held, seconds: float) -> None:
        slot = self.slots.take(held.epoch, "tx")
        if not isinstance(slot, Busy):
            self._pod.process.later(seconds, lambda: self._ended(held))

    def cancel_all(self, uid: str) -> None:
        if (slot := self.slots.of(uid)) is not None and (held := self._pod.registry.get(uid)) is not None:
            assert slot.epoch.run_uid == held.epoch.run_uid
            self._pod.process.later(self._pod.draw.random() * 9.0, lambda: self._ended(held))

    def _ended(self, held: Held) -> None:
        if (slot := self.slots.of(held.epoch.run_uid)) is not None:
            self.slots.ended(slot)
            self._pod.wake(held.key)


class Quiet:
    """Where Events go."""

    async def event(self, *args: Any, **more: Any) -> None:
        pass


class PodWorld:
    """One Pod, from its start to the end of its processes. cut: its node reaches nobody, and runs on."""

    def __init__(self, world: World, name: str, uid: str, capacity: int) -> None:
        self.world, self.name, self.uid, self.draw = world, name, uid, world.draw
        self.key, self.capacity = f"n/{name}", capacity
        self.cut = self.deleting = self.over = False
        self.server = Server(world.draw, world.trouble, world.look)
        self.registry, self.queue = Registry(), WorkQueue()
        self.calls: Calls | None = None
        self.feeds: list[Feed] = []
        self.fence: SelfFence | None = None
        self.skew = self.draw.choice([0.0, 0.0, -2.0, 3.0, -20.0, 20.0])
        world.store.put("pods", self.key, self._object())
        self.start()

    def _object(self) -> Raw:
        meta = {
            "name": self.name, "namespace": "n", "uid": self.uid, "labels": {"runtime": "python"},
            "annotations": {"kruntimes.io/capacity.runs": str(self.capacity)},
        }  # fmt: skip
        return {"metadata": meta, "spec": {}, "status": {"phase": "Running", "conditions": []}}

    # ------------------------------------------------------------ what is true

    @property
    def feeds_now(self) -> list[Feed]:
        """The watches of its runtimed."""
        return self.feeds if self.alive else []

    @property
    def alive(self) -> bool:
        """Whether its runtimed runs."""
        return not (self.over or self.process.dead)

    def serves(self, uid: str) -> bool:
        """Whether an invocation of that Run, sent here with the epoch that is served, would run here."""
        held = self.registry.get(uid)
        if not self.alive or held is None or self.fence is None or self.fence.holds:
            return False
        return held.serving and self.server.has(uid, held.epoch.attempt)

    def working(self, uid: str) -> bool:
        """Whether anything of that Run is being executed here."""
        if self.over:
            return False
        called = self.alive and self.calls is not None and self.calls.slots.in_flight(uid) > 0
        return called or self.server.runs(uid)

    # ------------------------------------------------------------ runtimed

    def wake(self, key: str) -> None:
        self.queue.add(key)

    def start(self) -> None:
        """Starts runtimed, with nothing in its memory."""
        self.registry, self.queue, self.calls, self.fence, self.feeds = Registry(), WorkQueue(), None, None, []
        self.process = Process(f"runtimed {self.uid}", skew=self.skew)
        self.process.start(self._run())

    def restart(self) -> None:
        """runtimed is killed, and started again by its node."""
        self.process.kill()
        asyncio.get_running_loop().call_later(1.0, lambda: None if self.over or self.alive else self.start())

    async def _run(self) -> None:
        world, registry, queue, process = self.world, self.registry, self.queue, self.process
        kube: Any = Client(world.store, process, self.draw, world.trouble)
        self.client = kube
        kube.cut = self.cut
        while True:  # the first list needs the API server
            try:
                await kube.list("/namespaces/n/runs", Run, field_selector=self.uid)
                break
            except errors.ApiError:
                await asyncio.sleep(1.0)
        runs, pods = self._feed("runs", Run, queue.add, _assigned(self.uid)), self._feed("pods", Pod, self._own_pod)
        self._pods_seen = pods
        heartbeat = Heartbeat(kube, "n", self.name, self.uid, (self.name, self.uid))
        server: Any = self.server
        calls: Any = Calls(self)
        async with asyncio.TaskGroup() as tasks:
            quiet: Any = Quiet()
            effects = Effects(
                kube=kube, server=server, registry=registry, dispatcher=calls, recorder=quiet,
                home=Home(Path("/model"), self.uid), endpoint=lambda run: ENDPOINT, tasks=tasks, wake=queue.add,
            )  # fmt: skip
            watched: Any = runs
            reconciler = Reconciler(
                queue=queue, runs=watched, effects=effects, metrics=METRICS, pod_uid=self.uid,
                drain_seconds=DRAIN_SECONDS, endpoint=lambda run: ENDPOINT, draining=self._draining,
                stale=lambda: fence.stale, fenced=lambda: fence.holds,
            )  # fmt: skip
            self._look_at_all = reconciler.look_at_all
            fence = SelfFence(
                kube=kube, registry=registry, metrics=METRICS, namespace="n", pod_uid=self.uid,
                last_renewed=heartbeat.last_renewed, look=lambda held: queue.add(held.key),
                look_at_all=self._fence_changed, tasks=tasks,
            )  # fmt: skip
            self.server.on_back = lambda: self._server_back(process)
            tasks.create_task(heartbeat.run())
            await first_renewal(heartbeat.last_renewed)
            self.calls, self.fence = calls, fence
            tasks.create_task(fence.run())
            tasks.create_task(Sweeper(server=server, home=effects.home, owned=reconciler.owned).run())
            await work(queue, reconciler.reconcile, workers=4)

    def _feed(self, kind: str, type: Any, on_change: Any, match: Any = lambda raw: True) -> Feed:
        feed = Feed(self.world.store, self.process, self.draw, kind=kind, type=type, on_change=on_change, match=match)
        feed.broken(True) if self.cut else None
        self.feeds.append(feed)
        return feed

    def _own_pod(self, key: str) -> None:
        if key == self.key and self.fence is not None:
            self._look_at_all()

    def _fence_changed(self) -> None:
        self.world.look()
        self._look_at_all()

    def _draining(self) -> bool:
        pod = self._pods_seen.store.get(self.key)
        return pod is not None and pod.metadata.uid == self.uid and pod.metadata.deleting

    def _server_back(self, process: Process) -> None:
        if not process.dead:
            for held in self.registry:
                held.function = held.execution = None
                self.queue.add(held.key)

    # ------------------------------------------------------------ its node

    def reach(self, cut: bool) -> None:
        """Cuts its node off, or connects it again."""
        if self.over or cut == self.cut:
            return
        self.cut = cut
        if self.alive and hasattr(self, "client"):
            self.client.cut = cut
            for feed in self.feeds:
                feed.broken(cut)
        loop = asyncio.get_running_loop()
        if cut:
            loop.call_later(UNREACHABLE_SECONDS, lambda: self._mark_ready("False") if self.cut else None)
        else:
            self._mark_ready("True")
            if self.deleting:
                self._terminate()

    def _mark_ready(self, status: str) -> None:
        def mark(raw: Raw) -> None:
            held = [one for one in raw["status"]["conditions"] if one["type"] != "Ready"]
            raw["status"]["conditions"] = [*held, {"type": "Ready", "status": status}]

        self._change(mark)

    def _change(self, change: Any) -> None:
        held = self.world.store.all("pods").get(self.key)
        if held is not None and held.raw["metadata"]["uid"] == self.uid:
            self.world.store.change("pods", self.key, change)

    def delete(self) -> None:
        """Asks for its end, with its grace."""
        if not (self.deleting or self.over):
            self.deleting = True
            self._change(lambda raw: raw["metadata"].update(deletionTimestamp="2027-01-15T08:00:00Z"))
            if not self.cut:
                self._terminate()

    def _terminate(self) -> None:
        """The kubelet's part: preStop, which runtimed answers once it holds nothing, then the end."""
        begun = asyncio.get_running_loop().time()

        def look() -> None:
            if self.over:
                return
            now = asyncio.get_running_loop().time()
            empty = self.alive and self.fence is not None and self._draining() and not len(self.registry)
            if empty or now - begun > GRACE_SECONDS:
                self.end()
            else:
                asyncio.get_running_loop().call_later(1.0, look)

        asyncio.get_running_loop().call_later(1.0, look)

    def end(self, *, told: float = 0.2) -> None:
        """Its processes are gone now; its object is gone after so many seconds."""
        if self.over:
            return
        self.over = True
        self.process.kill()
        self.server.functions.clear()
        self.server.tasks.clear()
        asyncio.get_running_loop().call_later(told, self._forget)

    def _forget(self) -> None:
        held = self.world.store.all("pods").get(self.key)
        if held is not None and held.raw["metadata"]["uid"] == self.uid:
            self.world.store.drop("pods", self.key)


def epoch_of(raw: Raw) -> Epoch:
    """The epoch of a Run as JSON has it."""
    state = raw["status"]
    return Epoch(raw["metadata"]["uid"], state.get("attempt", 0), state.get("assignedPodUID", ""))


def _assigned(uid: str) -> Any:
    return lambda raw: raw.get("status", {}).get("assignedPodUID", "") == uid
