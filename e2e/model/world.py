"""A small world with one Run: an API server, an operator, Pods with a runtimed and a Runtime Server each, and time.

The deciding halves are the product's own: both `decide` functions, every status patch, the transition table. Around
them each actor is a few lines: it looks at a version of the Run that may be old, decides once, and carries out one
effect, which may meet a conflict, lose its answer, or be the last thing its process does.
"""

import copy
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import TERMINAL, Phase
from kruntimes.common.api.reasons import Reason, RunCondition
from kruntimes.common.api.views import Endpoint, RouteRun, Run
from kruntimes.controller import lifecycle, writes
from kruntimes.controller.schedule import Assign
from kruntimes.controller.views import ControlledRun
from kruntimes.runtimed import decisions as d
from kruntimes.runtimed import status
from kruntimes.runtimed.confirm import ours
from kruntimes.runtimed.decide import decide
from kruntimes.runtimed.heartbeat import Pulse, pulse
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.observed import Ending, Function, FunctionState, Local, Moment, Observed, Stage

ENDPOINT = Endpoint(url="https://gateway/f")
START = 1_800_000_000.0
BEAT_SECONDS = 10.0


class Conflict(Exception):
    """The precondition of a write did not hold, or its object is not there."""


class Lost(Exception):
    """No answer came; what was asked may have been done."""


@dataclass
class Api:
    """One Run, every version of it, and None as the last once it is gone."""

    versions: list[dict[str, Any] | None]

    @property
    def run(self) -> dict[str, Any] | None:
        return copy.deepcopy(self.versions[-1])

    def patch(self, ops: list[Any]) -> dict[str, Any]:
        """A JSON patch, whole or not at all. Raises Conflict."""
        if (run := self.run) is None:
            raise Conflict
        for op in ops:
            *parents, last = op["path"].split("/")[1:]
            place: Any = run
            for part in parents:
                place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
            key: Any = int(last) if isinstance(place, list) else last
            held = place[key] if (isinstance(place, list) and key < len(place)) else None
            if isinstance(place, dict):
                held = place.get(key, "")
            if op["op"] == "test":
                if held != op["value"]:
                    raise Conflict
            elif op["op"] == "remove":
                del place[key]
            else:
                added = FINALIZER in op["value"] if last == "finalizers" else False
                if added and run["metadata"].get("deletionTimestamp"):
                    raise Conflict
                place[key] = op["value"]
        return self.keep(run)

    def keep(self, run: dict[str, Any]) -> dict[str, Any]:
        run["metadata"]["resourceVersion"] = str(len(self.versions) + 1)
        gone = bool(run["metadata"].get("deletionTimestamp")) and not run["metadata"].get("finalizers")
        self.versions.append(None if gone else run)
        return run


@dataclass
class Pod:
    """One Pod with its node. seen: the version that its watch has come to. fresh: its own last write.

    functions: what its Runtime Server has, by attempt. cut: its node reaches nobody. skew: of its wall clock.
    """

    uid: str
    skew: float
    beat: float
    deleting: bool = False
    cut: bool = False
    up: bool = True
    ready: bool = True
    seen: int = 0
    fresh: Run | None = None
    local: Local | None = None
    functions: set[int] = field(default_factory=set)
    doubtful: bool = False


@dataclass
class World:
    """Everything at one moment. gone: UIDs of Pods that are no more. heard: when the operator last saw a heartbeat."""

    seed: int
    now: float = START
    pods: dict[str, Pod] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    heard: dict[str, float] = field(default_factory=dict)
    seen: int = 0
    made: int = 0
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        attempts = self.draw.choice([1, 2, 4])
        spec: dict[str, Any] = {
            "runtime": "python",
            "mode": {"function": {"handler": "h.m"}},
            "retryPolicy": {"maxAttempts": attempts},
        }
        if self.draw.random() < 0.2:
            spec["timeout"] = "400s"
        run = {"metadata": {"name": "f", "namespace": "n", "uid": "u", "finalizers": []}, "spec": spec, "status": {}}
        self.api = Api([])
        self.api.keep(run)
        for _ in range(2):
            self.add_pod()

    # --- what is true, whoever knows it

    def add_pod(self) -> None:
        self.made += 1
        pod = Pod(uid=f"pod-{self.made}", skew=self.draw.uniform(-5, 5), beat=self.now, seen=self.last)
        self.pods[pod.uid] = pod
        self.heard[pod.uid] = self.now

    @property
    def last(self) -> int:
        return len(self.api.versions) - 1

    def fenced(self, pod: Pod) -> bool:
        return pulse(last_renewed=pod.beat, now=self.now) is Pulse.FENCED

    def silent(self, pod: Pod) -> bool:
        """Whether the self-fence holds: the heartbeat is old, or nothing was confirmed since it was."""
        return pod.doubtful or self.fenced(pod)

    def serving(self, pod: Pod) -> bool:
        """Whether an invocation that reaches the Pod would run there."""
        local = pod.local
        return (
            pod.up
            and local is not None
            and local.open
            and local.stage is Stage.REGISTERED
            and local.function is not None
            and local.function.state is FunctionState.READY
            and local.epoch.attempt in pod.functions
            and not self.silent(pod)
        )

    def decode(self, index: int, kind: Any) -> Any:
        run = self.api.versions[index]
        return None if run is None else msgspec.convert(run, kind)

    # --- time and watches

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for pod in self.pods.values():
            pod.doubtful = pod.doubtful or self.fenced(pod)
            if pod.up and not pod.cut:
                pod.beat = self.now  # it renews every ten seconds, and nothing here depends on the phase of that
                self.heard[pod.uid] = self.now

    def deliver(self, *, all_of_it: bool = False) -> None:
        """Watches bring what they bring: something, everything, or nothing yet."""

        def moved(at: int) -> int:
            return self.last if all_of_it else self.draw.randint(at, self.last)

        self.seen = moved(self.seen)
        for pod in self.pods.values():
            if pod.up and not pod.cut:
                pod.seen = moved(pod.seen)

    def write(self, ops: list[Any], *, cut: bool = False) -> dict[str, Any]:
        """A write by somebody who may not hear of its success. Raises Conflict or Lost."""
        if cut:
            raise Lost
        written = self.api.patch(ops)
        if self.draw.random() < 0.05:
            raise Lost
        return written

    # --- the operator

    def operate(self) -> None:
        """The scheduler's and the recovery's turn, on what the operator has seen."""
        run: ControlledRun | None = self.decode(self.seen, ControlledRun)
        if run is None:
            return
        try:
            if (run.state.phase or "Pending") == Phase.PENDING and not run.metadata.deleting:
                self._schedule(run)
            else:
                self._recover(run)
        except (Conflict, Lost):
            return

    def _schedule(self, run: ControlledRun) -> None:
        if run.spec.cancel_requested:
            self.write(writes.end(run, Phase.CANCELLED, Reason.CANCELLED, now=self.now))
            return
        live = [p for p in self.pods.values() if not p.deleting and self.now - self.heard[p.uid] < 30.0]
        if live:
            pod = self.draw.choice(live)
            self.write(writes.assign(run, Assign(key=run.metadata.key, pod=pod.uid, pod_uid=pod.uid), now=self.now))
            self.log.append(f"assigned {pod.uid}")

    def _recover(self, run: ControlledRun) -> None:
        pod, uid = self.pods.get(run.state.assigned_pod_uid), run.state.assigned_pod_uid
        ready = run.condition(RunCondition.READY)
        sight = lifecycle.PodSight.PRESENT if pod is not None else lifecycle.PodSight.MISSING
        observed = lifecycle.Observed(
            phase=Phase(run.state.phase or Phase.PENDING), deleting=run.metadata.deleting,
            finalizer=run.holds_finalizer, assigned=bool(uid), attempt=run.state.attempt,
            max_attempts=run.spec.retry_policy.max_attempts, cancel=run.spec.cancel_requested,
            reachable=ready is not None and ready.status == "True", explained=ready.reason if ready else "",
            lifetime_ends=run.lifetime_ends, pod=sight, pod_deleting=pod is not None and pod.deleting,
            serving=pod is not None and not pod.cut and pod.up, silence=self.now - self.heard.get(uid, self.now),
        )  # fmt: skip
        decision = lifecycle.decide(observed, self.now)
        if isinstance(decision, lifecycle.ProveGone):
            decision = lifecycle.decide(replace(observed, pod=lifecycle.PodSight.GONE), self.now)
        if isinstance(decision, lifecycle.RemoveFinalizer):
            self.write(writes.remove_finalizer(run))
        elif isinstance(decision, lifecycle.Withdraw):
            self.write(writes.withdraw(run, now=self.now))
        elif isinstance(decision, lifecycle.Move):
            self.write(writes.move(run, decision, now=self.now))
        self.log.append(f"operator {type(decision).__name__}")

    # --- a runtimed

    def step(self, pod: Pod) -> bool:
        """One decision of *pod*'s runtimed, carried out; False where it waits."""
        if pod.doubtful and not pod.cut and not self.fenced(pod):
            self._confirm(pod)
        run: Run | None = self.decode(pod.seen, Run)
        if pod.fresh is not None:
            if run is None or int(run.metadata.resource_version) >= int(pod.fresh.metadata.resource_version):
                pod.fresh = None
            else:
                run = pod.fresh
        age = pulse(last_renewed=pod.beat, now=self.now)
        observed = Observed(
            run=run, pod_uid=pod.uid, endpoint=ENDPOINT, local=pod.local, draining=pod.deleting and not pod.cut,
            stale=age >= Pulse.STALE, fenced=self.silent(pod), drain_seconds=30.0,
        )  # fmt: skip
        decision = decide(observed, Moment(wall=self.now + pod.skew, mono=self.now))
        if isinstance(decision, d.Wait):
            return False
        self.log.append(f"{pod.uid} {type(decision).__name__}")
        try:
            self._carry_out(pod, decision, run)
        except (Conflict, Lost):
            return False
        return True

    def _confirm(self, pod: Pod) -> None:
        """As `kruntimes.runtimed.confirm`, with its own rule."""
        run: RouteRun | None = self.decode(self.last, RouteRun)
        mine = {run.metadata.uid: run} if run is not None and run.status.assigned_pod_uid == pod.uid else {}
        if pod.local is not None and pod.local.open and not ours(held_of(pod), mine):
            pod.local = replace(pod.local, open=False, closed_at=self.now)
        pod.doubtful = False

    def _carry_out(self, pod: Pod, decision: d.Decision, run: Run | None) -> None:
        def put(ops: Any) -> None:
            pod.fresh = msgspec.convert(self.write(list(ops), cut=pod.cut), Run)

        def hold(**changes: Any) -> None:
            pod.local = replace(pod.local, **changes)

        now = datetime.fromtimestamp(self.now + pod.skew, UTC)
        match decision:
            case d.Claim():
                put(status.patch(_given(run), status.claimed(_given(run), now=now)))
            case d.AddFinalizer():
                put(status.finalizer_added(_given(run)))
            case d.Adopt(epoch) | d.Prepare(epoch):
                pod.local = Local(epoch=epoch, stage=Stage.PREPARED, since=self.now)
            case d.Register():
                attempt = pod.local.epoch.attempt
                if self.draw.random() < 0.1:
                    ending = Ending(reason=Reason.REGISTRATION_FAILED, message="told to")
                    hold(ending=ending)
                else:
                    pod.functions.add(attempt)
                    hold(stage=Stage.REGISTERED, function=self._function(pod, attempt))
            case d.Poll():
                hold(function=self._function(pod, pod.local.epoch.attempt))
            case d.Publish():
                put(status.patch(_given(run), status.published(_given(run), ENDPOINT, now=now)))
            case d.Reopen():
                put(status.patch(_given(run), status.reopened(_given(run), now=now)))
            case d.Announce():
                put(status.patch(_given(run), status.announced(_given(run), now=now)))
            case d.Close(ending):
                hold(open=False, closed_at=self.now, ending=pod.local.ending or ending)
            case d.CancelInFlight():
                hold(cancelled_at=self.now)
            case d.Unregister():
                pod.functions.discard(pod.local.epoch.attempt)
                hold(stage=Stage.RELEASED)
            case d.RemoveFinalizer():
                assert not pod.functions, "the finalizer leaves before the function"
                put(status.finalizer_removed(_given(run)))
            case d.Finish():
                put(status.patch(_given(run), status.finished(_given(run), decision, now=now)))
            case d.Forget():
                pod.local = None

    def _function(self, pod: Pod, attempt: int) -> Function:
        known = attempt in pod.functions
        return Function(state=FunctionState.READY if known else FunctionState.FORGOTTEN, read_at=self.now)


def held_of(pod: Pod) -> Held:
    """What `ours` is asked of."""
    assert pod.local is not None
    return Held(key="n/f", epoch=pod.local.epoch, since=0.0)


def _given(run: Run | None) -> Run:
    assert run is not None
    return run


def ended(run: dict[str, Any] | None) -> bool:
    """Whether the Run is in a terminal phase, or gone."""
    return run is None or run["status"].get("phase") in TERMINAL
