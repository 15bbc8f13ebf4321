"""From the API server to the publisher: three watches, gathered per turn of the event loop (design §6, "Routing").

Nothing is published before all three are synced: half a world would withdraw routes that are good. When the API
server is away, what was published last stays.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from kruntimes.common import clock
from kruntimes.common.api.names import RUNTIME_LABEL
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.views import Pod, RouteRun, Runtime
from kruntimes.common.kube import paths
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.router.ads import Publisher
from kruntimes.router.compile import Options, Routes
from kruntimes.router.metrics import Metrics

SLICE = 5_000
"""Runs compiled before other work gets its turn, a tenth of a second. Smaller ones would assemble the shards of a first
list over and over."""

T = TypeVar("T")


class _Watch(Protocol):
    synced: asyncio.Event

    @property
    def undecodable(self) -> int: ...

    def healthy_since(self) -> float | None: ...

    async def run(self) -> None: ...


class Informers:
    """Watches Ready Runs, Runtimes and their Pods in all namespaces and publishes what they mean."""

    def __init__(self, kube: Kube, *, options: Options, publisher: Publisher, metrics: Metrics) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._routes = Routes(options)
        self._wake = asyncio.Event()
        self._dirty_runs: set[str] = set()
        self._dirty_runtimes: set[str] = set()
        self._dirty_pods: set[str] = set()
        self._runs = Reflector(
            kube,
            paths.runs(None),
            RouteRun,
            field_selector=f"status.phase={Phase.READY}",
            on_change=self._noting(self._dirty_runs),
        )
        self._runtimes = Reflector(kube, paths.runtimes(None), Runtime, on_change=self._noting(self._dirty_runtimes))
        self._pods = Reflector(
            kube, paths.pods(None), Pod, label_selector=RUNTIME_LABEL, on_change=self._noting(self._dirty_pods)
        )
        watches = self._watches()
        metrics.watch(
            age_of={kind: _age_of(watch) for kind, watch in watches.items()},
            undecodable={kind: _undecodable(watch) for kind, watch in watches.items()},
        )

    async def run(self) -> None:
        """Watches and publishes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches().values():
                group.create_task(watch.run())
            await self._feed()

    async def _feed(self) -> None:
        for watch in self._watches().values():
            await watch.synced.wait()
        while True:
            self._wake.clear()
            await self._flush()
            await self._wake.wait()

    async def _flush(self) -> None:
        """Compiles everything that was noted and publishes it at once; Runs in slices, since a first list is long."""
        changed = self._routes.apply(
            runtimes=_taken(self._dirty_runtimes, self._runtimes.store),
            pods=_taken(self._dirty_pods, self._pods.store),
        )
        while runs := _taken(self._dirty_runs, self._runs.store, limit=SLICE):
            changed |= self._routes.apply(runs=runs)
            if self._dirty_runs:
                await asyncio.sleep(0)
        if changed or not self._publisher.serving:
            self._publisher.publish(self._routes.snapshot, changed)
        self._metrics.published(self._routes.snapshot, self._routes.counts)

    def _watches(self) -> dict[str, _Watch]:
        return {"runs": self._runs, "runtimes": self._runtimes, "pods": self._pods}

    def _noting(self, dirty: set[str]) -> Callable[[str], None]:
        def note(key: str) -> None:
            dirty.add(key)
            self._wake.set()

        return note


def _taken(dirty: set[str], store: Mapping[str, T], *, limit: int | None = None) -> dict[str, T | None]:
    """Takes up to *limit* keys out of *dirty*, each with its object, None where it is gone."""
    keys: Iterable[str] = list(dirty) if limit is None else [dirty.pop() for _ in range(min(limit, len(dirty)))]
    if limit is None:
        dirty.clear()
    return {key: store.get(key) for key in keys}


def _age_of(watch: _Watch) -> Callable[[], float]:
    def age() -> float:
        since = watch.healthy_since()
        return 0.0 if since is None else clock.monotonic() - since

    return age


def _undecodable(watch: _Watch) -> Callable[[], float]:
    return lambda: watch.undecodable
