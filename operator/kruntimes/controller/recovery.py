"""The lifecycle's shell: builds what is observed of a Run, asks `lifecycle.decide`, and carries out the answer.

Level-triggered: each effect is one write with its precondition, and the watch brings the Run back for the next.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kruntimes.common import clock
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import RunCondition
from kruntimes.common.api.views import Pod
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import Missing
from kruntimes.common.kube.queue import After, Done, WorkQueue, work
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.controller import writes
from kruntimes.controller.announce import Announcer, about
from kruntimes.controller.book import Book
from kruntimes.controller.lifecycle import (
    Collect,
    Decision,
    Move,
    Nothing,
    Observed,
    PodSight,
    ProveGone,
    RemoveFinalizer,
    Wait,
    Withdraw,
    decide,
)
from kruntimes.controller.metrics import Metrics
from kruntimes.controller.views import ControlledRun, EndpointSlice

log = logging.getLogger(__name__)

WORKERS = 16
"""Runs that are recovered at once: a lost node takes many with it, each of which costs a few small requests."""

DOUBT_SECONDS = 300.0
"""For so long a Pod that left a Run unclaimed is the last choice for others; then it is tried like any other."""


@dataclass(frozen=True, slots=True)
class _Unclaimed:
    """Since when (monotonic seconds) a Run was seen unclaimed on one Pod."""

    pod_uid: str
    since: float


class Recovery:
    """Does the operator's part of every Run's lifecycle. silence: of a Pod's heartbeat, in seconds."""

    def __init__(
        self,
        kube: Kube,
        book: Book,
        *,
        runs: Reflector[ControlledRun],
        served: Callable[[], Mapping[str, int]],
        silence: Callable[[Pod], float],
        announcer: Announcer,
        metrics: Metrics,
    ) -> None:
        self._kube = kube
        self._book = book
        self._runs = runs
        self._served = served
        self._silence = silence
        self._announcer = announcer
        self._metrics = metrics
        self._unclaimed: dict[str, _Unclaimed] = {}
        self._doubted: dict[str, float] = {}
        self._deleting: dict[str, set[str]] = {}
        self._deleting_on: dict[str, str] = {}
        self._queue = WorkQueue()

    def run_changed(self, key: str) -> None:
        """A Run appeared, changed or went."""
        run = self._runs.store.get(key)
        if run is None or run.state.phase != Phase.SCHEDULED:
            self._unclaimed.pop(key, None)
        elif (known := self._unclaimed.get(key)) is None or known.pod_uid != run.state.assigned_pod_uid:
            self._unclaimed[key] = _Unclaimed(run.state.assigned_pod_uid, clock.monotonic())
        self._note_deleting(key, run)
        if run is None:
            return
        if run.metadata.deleting or run.phase_class.assigned or run.retention_ends is not None:
            self._queue.add(key)

    def pod_changed(self, uid: str) -> None:
        """What is known of the Pod *uid* changed: itself, its heartbeat, or whether it is served."""
        for key in {*self._book.occupants(uid), *self._deleting.get(uid, ())}:
            self._queue.add(key)

    def _note_deleting(self, key: str, run: ControlledRun | None) -> None:
        """A Run that ended takes no capacity, yet its finalizer may have to wait for news of the Pod that it had."""
        held = run is not None and run.metadata.deleting and run.holds_finalizer
        uid = run.state.assigned_pod_uid if run is not None and held else ""
        before = self._deleting_on.pop(key, "")
        if before and before != uid:
            self._deleting[before].discard(key)
            if not self._deleting[before]:
                del self._deleting[before]
        if uid:
            self._deleting_on[key] = uid
            self._deleting.setdefault(uid, set()).add(key)

    def doubtful(self, pod: Pod) -> bool:
        """Whether the Pod's runtimed has lately left a Run unclaimed though it lives."""
        return clock.monotonic() - self._doubted.get(pod.metadata.uid, float("-inf")) < DOUBT_SECONDS

    async def run(self) -> None:
        """Recovers until cancelled."""
        await work(self._queue, self._reconcile, workers=WORKERS)

    async def _reconcile(self, key: str) -> Done | After:
        run = self._runs.store.get(key)
        if run is None:
            return Done()
        now = clock.wall()
        observed = self._observe(run)
        decision = decide(observed, now)
        if isinstance(decision, ProveGone):
            proven = await self._prove_gone(run, observed)
            decision = decide(proven, now)
        if isinstance(decision, Wait):
            return After(decision.seconds)
        if not isinstance(decision, Nothing | ProveGone):
            await self._carry_out(run, decision, now)
        return Done()

    def _observe(self, run: ControlledRun) -> Observed:
        state = run.state
        ready = run.condition(RunCondition.READY)
        pod = self._book.pod_by_uid(state.assigned_pod_uid)
        return Observed(
            phase=Phase(state.phase or Phase.PENDING),
            deleting=run.metadata.deleting,
            finalizer=run.holds_finalizer,
            assigned=bool(state.assigned_pod_uid),
            attempt=state.attempt,
            max_attempts=run.spec.retry_policy.max_attempts,
            retryable=run.spec.retry_policy.retryable_reasons,
            cancel=run.spec.cancel_requested,
            reachable=ready is not None and ready.status == "True",
            explained="" if ready is None else ready.reason,
            lifetime_ends=run.lifetime_ends,
            retention_ends=run.retention_ends,
            pod=PodSight.MISSING if pod is None else PodSight.PRESENT,
            pod_deleting=pod is not None and pod.metadata.deleting,
            pod_ended=pod is not None and pod.ended,
            serving=state.assigned_pod_uid in self._served(),
            silence=0.0 if pod is None else self._silence(pod),
            waited=self._waited(run),
        )

    def _waited(self, run: ControlledRun) -> float:
        """Seconds for which this assignment was seen unclaimed while the watch could have shown a claim."""
        known, healthy = self._unclaimed.get(run.metadata.key), self._runs.healthy_since()
        if known is None or healthy is None:
            return 0.0
        return max(0.0, clock.monotonic() - max(known.since, healthy))

    async def _prove_gone(self, run: ControlledRun, observed: Observed) -> Observed:
        """Asks the API server about the assigned UID; a Pod of the same name with another UID is another Pod."""
        try:
            pod = await self._kube.get(paths.pods(run.metadata.namespace, run.state.assigned_pod), Pod)
        except Missing:
            return replace(observed, pod=PodSight.GONE)
        if pod.metadata.uid != run.state.assigned_pod_uid:
            return replace(observed, pod=PodSight.GONE)
        return replace(
            observed,
            pod=PodSight.PRESENT,
            pod_deleting=pod.metadata.deleting,
            pod_ended=pod.ended,
            silence=self._silence(pod),
        )

    async def _carry_out(self, run: ControlledRun, decision: Decision, now: float) -> None:
        meta = run.metadata
        if isinstance(decision, Collect):
            await self._collect(run)
            return
        reason = ""
        if isinstance(decision, RemoveFinalizer):
            patch, sub = writes.remove_finalizer(run), None
        elif isinstance(decision, Withdraw):
            patch, sub = writes.withdraw(run, now=now), "status"
        elif isinstance(decision, Move):
            patch, sub, reason = writes.move(run, decision, now=now), "status", decision.reason.value
        else:
            raise TypeError(f"nothing to write for {type(decision).__name__}")
        try:
            await self._kube.patch_json(paths.runs(meta.namespace, meta.name, sub), patch, ControlledRun)
        except Missing:
            return
        name = type(decision).__name__
        self._metrics.decisions.labels(decision=name, reason=reason).inc()
        extra = {"run_uid": meta.uid, "runtime": run.runtime_key, "attempt": run.state.attempt}
        log.info("run recovered", extra=extra | {"decision": name, "reason": reason, "pod": run.state.assigned_pod})
        if isinstance(decision, Withdraw):
            message = f"Runtime Pod {run.state.assigned_pod} is lost"
            self._announcer.say(about(run), reason="RuntimePodLost", message=message, warning=True)
        elif isinstance(decision, Move):
            message = f"{decision.target.value}: {writes.why(run, decision)}"
            self._announcer.say(about(run), reason=reason, message=message, warning=True)
            if decision.fence is None:
                self._doubt(run.state.assigned_pod_uid)

    def _doubt(self, pod_uid: str) -> None:
        now = clock.monotonic()
        self._doubted = {uid: since for uid, since in self._doubted.items() if now - since < DOUBT_SECONDS}
        self._doubted[pod_uid] = now

    async def _collect(self, run: ControlledRun) -> None:
        """Deletes a Run that has ended; the version is the precondition, since its time to live may be changed."""
        meta = run.metadata
        try:
            await self._kube.delete(
                paths.runs(meta.namespace, meta.name), uid=meta.uid, resource_version=meta.resource_version
            )
        except Missing:
            return
        self._metrics.decisions.labels(decision=Collect.__name__, reason="").inc()
        log.info(
            "run deleted after its time to live",
            extra={"run_uid": meta.uid, "runtime": run.runtime_key, "attempt": run.state.attempt},
        )


class Served:
    """Which Pods' UIDs an EndpointSlice still serves, kept as slices change. Counts: a Pod may be in several."""

    def __init__(self, slices: Reflector[EndpointSlice]) -> None:
        self._slices = slices
        self._by_slice: dict[str, frozenset[str]] = {}
        self._count: dict[str, int] = {}

    def __call__(self) -> Mapping[str, int]:
        """The UIDs that are served."""
        return self._count

    def slice_changed(self, key: str) -> frozenset[str]:
        """A slice appeared, changed or went; returns the UIDs for which it may have changed something."""
        found = self._slices.store.get(key)
        new = frozenset() if found is None else _serving(found)
        old = self._by_slice.pop(key, frozenset())
        if found is not None:
            self._by_slice[key] = new
        for uid in new - old:
            self._count[uid] = self._count.get(uid, 0) + 1
        for uid in old - new:
            self._count[uid] -= 1
            if not self._count[uid]:
                del self._count[uid]
        return new ^ old


def _serving(found: EndpointSlice) -> frozenset[str]:
    return frozenset(
        one.target_ref.uid
        for one in found.endpoints
        if one.target_ref is not None and one.target_ref.kind == "Pod" and one.conditions.serving is not False
    )
