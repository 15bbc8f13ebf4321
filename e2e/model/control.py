"""The operator of the model: the product's scheduler, recovery and heartbeats on watches that lag."""

import asyncio
from random import Random
from typing import Any

from model.store import Client, Feed, Store, Trouble
from model.virtual import Process
from prometheus_client import CollectorRegistry

from kruntimes.common.api.views import Lease, Pod, condition
from kruntimes.controller.book import Book, runtime_key
from kruntimes.controller.main import HEARTBEAT_WATCH_SECONDS
from kruntimes.controller.metrics import Metrics
from kruntimes.controller.pods import Pods
from kruntimes.controller.recovery import Recovery
from kruntimes.controller.scheduler import Scheduler
from kruntimes.controller.views import ControlledRun

METRICS = Metrics(CollectorRegistry())


class Quiet:
    """Where Events go."""

    def say(self, *args: Any, **more: Any) -> None:
        pass


class OperatorWorld:
    """One term of leadership, wired as `kruntimes.controller.main` wires it."""

    def __init__(self, store: Store, draw: Random, trouble: Trouble, *, skew: float) -> None:
        self._store, self._draw = store, draw
        self.process = Process("operator", skew=skew)
        self.client: Any = Client(store, self.process, draw, trouble)
        self.book = Book()
        self.feeds: list[Feed] = []
        self.process.start(self._run())

    async def _run(self) -> None:
        quiet: Any = Quiet()
        later: list[Any] = []
        runs: Any = self._feed("runs", ControlledRun, lambda key: later[0](key))
        pods: Any = self._feed("pods", Pod, lambda key: later[1](key))
        leases: Any = self._feed("leases", Lease, lambda key: later[2](key), silence=HEARTBEAT_WATCH_SECONDS)

        def life_changed(pod: Pod) -> None:
            scheduler.wake(runtime_key(pod))
            recovery.pod_changed(pod.metadata.uid)

        lives = Pods(self.client, self.book, leases, on_change=life_changed)
        recovery = Recovery(
            self.client, self.book, runs=runs, served=lambda: _served(pods), silence=lives.silence, announcer=quiet,
            metrics=METRICS,
        )  # fmt: skip
        scheduler = Scheduler(
            self.client, self.book, alive=lives.alive, retiring=lambda pod: False, doubtful=recovery.doubtful,
            exists=lambda runtime: True, announcer=quiet, metrics=METRICS,
        )  # fmt: skip

        def run_changed(key: str) -> None:
            run, old = runs.store.get(key), self.book.run(key)
            if self.book.see_run(key, run):
                for one in (old, run):
                    if one is not None:
                        scheduler.wake(one.runtime_key)
            recovery.run_changed(key)

        def pod_changed(key: str) -> None:
            pod = pods.store.get(key)
            old = self.book.put_pod(key, pod)
            lives.pod_changed(key, old)
            for one in (old, pod):
                if one is not None:
                    life_changed(one)

        later += [run_changed, pod_changed, lives.lease_changed]
        async with asyncio.TaskGroup() as group:
            for controller in (lives, recovery, scheduler):
                group.create_task(controller.run())

    def _feed(self, kind: str, type: Any, on_change: Any, **more: Any) -> Feed:
        feed = Feed(self._store, self.process, self._draw, kind=kind, type=type, on_change=on_change, **more)
        self.feeds.append(feed)
        return feed

    def reach(self, cut: bool) -> None:
        """Cuts it off the API server, or connects it again."""
        if self.client.cut != cut and not self.process.dead:
            self.client.cut = cut
            for feed in self.feeds:
                feed.broken(cut)


def _served(pods: Feed) -> dict[str, int]:
    """EndpointSlices follow readiness, and a deleting Pod that is ready still answers."""
    return {pod.metadata.uid: 1 for pod in pods.store.values() if _ready(pod)}


def _ready(pod: Pod) -> bool:
    held = condition(pod.status.conditions, "Ready")
    return held is not None and held.status == "True"
