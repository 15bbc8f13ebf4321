"""The loop around `decide`: observe one Run, carry out one decision, observe again (style, "Lifecycle")."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kruntimes.common import clock
from kruntimes.common.api.views import Endpoint, Run
from kruntimes.common.kube.queue import After, Done, WorkQueue
from kruntimes.common.kube.reflector import Reflector
from kruntimes.runtimed.decide import decide
from kruntimes.runtimed.decisions import Publish, Wait
from kruntimes.runtimed.effects import Effects
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.metrics import Metrics
from kruntimes.runtimed.observed import Moment, Observed
from kruntimes.runtimed.orphans import claims

MAX_STEPS = 32
"""Steps for one key in a row, several times the longest way there is; beyond it others get their turn."""
REWRITE_SECONDS = 0.25
"""Between two Ready Runs whose endpoint is written anew: a rotated CA bundle must not flood the API server."""


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Reconciles the Runs that are assigned to our Pod. runs: exactly these, by `namespace/name`.

    draining, stale, fenced: as of now. endpoint: what a Run's status should publish.
    """

    queue: WorkQueue
    runs: Reflector[Run]
    effects: Effects
    metrics: Metrics
    pod_uid: str
    drain_seconds: float
    endpoint: Callable[[Run], Endpoint]
    draining: Callable[[], bool]
    stale: Callable[[], bool]
    fenced: Callable[[], bool]
    _rewritten: float = field(default=float("-inf"))

    async def reconcile(self, key: str) -> Done | After:
        """Brings everything that has or had the name *key* as far as it can come now."""
        run = self._seen(key)
        uids = {held.epoch.run_uid for held in self.effects.registry.named(key)}
        if run is not None:
            uids.add(run.metadata.uid)
        waits = [wait for uid in sorted(uids) if (wait := await self._drive(key, uid)) is not None]
        return After(max(0.0, min(waits))) if waits else Done()

    async def _drive(self, key: str, uid: str) -> float | None:
        """Steps on one UID until there is nothing to do; returns the seconds after which there may be."""
        for _ in range(MAX_STEPS):
            run = self._seen(key)
            if run is not None and run.metadata.uid != uid:
                run = None
            held = self.effects.registry.get(uid)
            decision = decide(self._observe(run, held), Moment(wall=clock.wall(), mono=clock.monotonic()))
            if isinstance(decision, Wait):
                return decision.seconds
            if isinstance(decision, Publish) and run is not None and run.ready and (wait := self._turn()) > 0:
                return wait
            self.metrics.decisions.labels(type(decision).__name__).inc()
            await self.effects.carry_out(decision, run, held)
            self.metrics.registered.set(len(self.effects.registry))
        return 0.0

    def _observe(self, run: Run | None, held: Held | None) -> Observed:
        slots = self.effects.dispatcher.slots
        return Observed(
            run=run,
            pod_uid=self.pod_uid,
            endpoint=self.endpoint(run) if run is not None else Endpoint(),
            local=held.view(in_flight=slots.in_flight(held.epoch.run_uid)) if held is not None else None,
            draining=self.draining(),
            stale=self.stale(),
            fenced=self.fenced(),
            drain_seconds=self.drain_seconds,
        )

    def _seen(self, key: str) -> Run | None:
        """The Run as the watch or one of our own writes has it, whichever is newer."""
        run, written = self.runs.store.get(key), self.effects.fresh.get(key)
        if written is None:
            return run
        if run is None or run.metadata.uid != written.metadata.uid or not _newer(written, run):
            del self.effects.fresh[key]
            return run
        return written

    def _turn(self) -> float:
        """Seconds until a Ready Run may be written anew; 0 takes the turn."""
        now = clock.monotonic()
        left = self._rewritten + REWRITE_SECONDS - now
        if left <= 0:
            self._rewritten = now
        return max(0.0, left)

    def owned(self) -> frozenset[str]:
        """The UIDs of the Runs that are taken care of here."""
        mine = {run.metadata.uid for run in self.runs.store.values() if claims(run)}
        return frozenset(mine | {held.epoch.run_uid for held in self.effects.registry})

    def look_at(self, keys: Iterable[str]) -> None:
        """Queues *keys*."""
        for key in keys:
            self.queue.add(key)

    def look_at_all(self) -> None:
        """Queues everything that is assigned or held: something changed that concerns all."""
        self.look_at({*self.runs.store, *(held.key for held in self.effects.registry)})


def _newer(one: Run, other: Run) -> bool:
    """Whether *one* is later than *other*; versions of one resource are numbers that grow (Kubernetes 1.35)."""
    try:
        return int(one.metadata.resource_version) > int(other.metadata.resource_version)
    except ValueError:
        return False
