"""Every event in every phase: where runtimed's own steps lead is the table's row, and nowhere new where none is its."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import TERMINAL, Phase
from kruntimes.common.api.reasons import Reason, RunCondition
from kruntimes.common.api.transitions import Event, ForbiddenTransition, Writer, row
from kruntimes.common.api.views import Endpoint, Run, RunStatus, condition
from kruntimes.runtimed import decisions as d
from kruntimes.runtimed import status
from kruntimes.runtimed.decide import decide
from kruntimes.runtimed.observed import (
    Ending,
    Execution,
    ExecutionState,
    Function,
    FunctionState,
    Local,
    Moment,
    Observed,
    Stage,
)

UID, POD = "run-1", "pod-1"
WALL = 1_800_000_000.0
START = "2027-01-15T07:00:00Z"  # an hour before WALL
NOW, WHEN = Moment(wall=WALL, mono=1000.0), datetime.fromtimestamp(WALL, UTC)
LONG_AGO = 1.0
"""Monotonic: every grace that began then is over."""
ENDPOINT = Endpoint(url="https://gateway/f")
MOST_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Sight:
    """How an event looks: in the Run's spec, in what is held of a claimed one, and around it."""

    spec: Mapping[str, Any]
    local: Mapping[str, Any]
    around: Mapping[str, Any]


def sight(*, spec: Mapping[str, Any] | None = None, around: Mapping[str, Any] | None = None, **local: Any) -> Sight:
    return Sight(spec=spec or {}, local=local, around=around or {})


def executed(state: ExecutionState, attempts: int = 1) -> Sight:
    spec = {"mode": {"task": {}}, "retryPolicy": {"maxAttempts": attempts}}
    return sight(spec=spec, function=None, execution=Execution(state=state, read_at=NOW.mono))


TWICE = {"retryPolicy": {"maxAttempts": 2}}
FAILED = Ending(reason=Reason.REGISTRATION_FAILED, message="m")
IDLE = {"mode": {"function": {"handler": "h.m", "idleTimeoutSeconds": 30}}}
SIGHTS: Mapping[Event, Sight] = {
    Event.FORGOTTEN: sight(function=Function(state=FunctionState.FORGOTTEN, read_at=NOW.mono)),
    Event.REGISTRATION_FAILED: sight(spec=TWICE, ending=FAILED),
    Event.REGISTRATION_EXHAUSTED: sight(ending=FAILED),
    Event.CANCEL_REQUESTED: sight(spec={"cancelRequested": True}),
    Event.CANCEL_REQUESTED_WAITING: sight(spec={"cancelRequested": True}),
    Event.DRAINED: sight(spec=TWICE, around={"draining": True}),
    Event.DRAINED_EXHAUSTED: sight(around={"draining": True}),
    Event.LIFETIME_OVER: sight(spec={"timeout": "1m"}),
    Event.LIFETIME_OVER_WAITING: sight(spec={"timeout": "1m"}),
    Event.IDLE: sight(spec=IDLE),
    Event.TASK_SUCCEEDED: executed(ExecutionState.SUCCEEDED),
    Event.TASK_FAILED: executed(ExecutionState.FAILED, 2),
    Event.TASK_EXHAUSTED: executed(ExecutionState.FAILED),
}
"""The others are the operator's to see, or what happens when nothing else does."""
ALIKE = {
    Event.CANCEL_REQUESTED_WAITING: Event.CANCEL_REQUESTED,
    Event.LIFETIME_OVER_WAITING: Event.LIFETIME_OVER,
}
"""A Run that was assigned before it was seen is not waiting any more."""
TASKS = (Event.TASK_SUCCEEDED, Event.TASK_FAILED, Event.TASK_EXHAUSTED)


def observed(phase: Phase, event: Event) -> Observed:
    """*event* in *phase*, with all that had to be done before it."""
    seen = SIGHTS.get(event, sight())
    claimed = phase in (Phase.RUNNING, Phase.READY)
    state: dict[str, Any] = {"phase": phase.value, "attempt": 1 if claimed else 0, "startTime": START}
    if phase is not Phase.PENDING:
        state |= {"assignedPod": "p", "assignedPodUID": POD}
    if claimed:
        reason = "TaskRunning" if event in TASKS else "x"
        ready = {"status": "True" if phase is Phase.READY else "False", "reason": reason}
        state["conditions"] = [{"type": "Ready", "lastTransitionTime": START, **ready}]
        state["endpoint"] = msgspec.to_builtins(ENDPOINT) if phase is Phase.READY else None
    metadata = {"name": "r", "namespace": "n", "uid": UID, "finalizers": [FINALIZER] if claimed else []}
    spec = {"runtime": "python", "mode": {"function": {"handler": "h.m"}}, **seen.spec}
    run = msgspec.convert({"metadata": metadata, "spec": spec, "status": state}, Run)
    held = Local(epoch=Epoch(UID, 1, POD), stage=Stage.REGISTERED, since=LONG_AGO, function=_ready())
    local = replace(held, **seen.local) if claimed else None
    return Observed(run=run, pod_uid=POD, endpoint=ENDPOINT, local=local, drain_seconds=30.0, **seen.around)


def _ready() -> Function:
    return Function(state=FunctionState.READY, read_at=NOW.mono, last_activity=WALL - 3600.0)


def led(start: Observed) -> Run:
    """Carries out what is decided, as if each step went well, until the phase has changed or nothing is left to do."""
    assert start.run is not None
    seen, before = start, start.run.status.phase
    for _ in range(MOST_STEPS):
        decision = decide(seen, NOW)
        if isinstance(decision, d.Wait):
            break
        seen = step(seen, decision)
        assert seen.run is not None
        if seen.run.status.phase != before:
            break
    assert seen.run is not None
    return seen.run


def step(seen: Observed, decision: d.Decision) -> Observed:
    """What is observed after *decision*. Raises ForbiddenTransition."""
    run, local = seen.run, seen.local
    assert run is not None

    def held(**changes: Any) -> Observed:
        assert local is not None
        return replace(seen, local=replace(local, **changes))

    def written(new: RunStatus) -> Observed:
        status.patch(run, new)
        return replace(seen, run=msgspec.structs.replace(run, status=new))

    def kept(*finalizers: str) -> Observed:
        metadata = msgspec.structs.replace(run.metadata, finalizers=finalizers)
        return replace(seen, run=msgspec.structs.replace(run, metadata=metadata))

    match decision:
        case d.Claim():
            return written(status.claimed(run, now=WHEN))
        case d.Publish():
            return written(status.published(run, ENDPOINT, now=WHEN))
        case d.Reopen():
            return written(status.reopened(run, now=WHEN))
        case d.Announce():
            return written(status.announced(run, now=datetime.fromtimestamp(WALL - 60.0, UTC)))
        case d.Begin():
            return written(status.begun(run, now=WHEN))
        case d.Finish():
            return written(status.finished(run, decision, now=WHEN))
        case d.AddFinalizer():
            return kept(FINALIZER)
        case d.RemoveFinalizer():
            return kept()
        case d.Prepare(epoch) | d.Adopt(epoch):
            return replace(seen, local=Local(epoch=epoch, stage=Stage.PREPARED, since=NOW.mono))
        case d.Register() | d.Poll():
            return held(stage=Stage.REGISTERED, function=_ready())
        case d.Close(ending):
            return held(open=False, closed_at=LONG_AGO, ending=(local.ending if local else None) or ending)
        case d.CancelInFlight():
            return held(cancelled_at=LONG_AGO)
        case d.Unregister():
            return held(stage=Stage.RELEASED)
        case d.Forget():
            return replace(seen, local=None)
    raise AssertionError(f"{decision} leads nowhere from here")


CELLS = [pytest.param(*cell, id=f"{cell[0].value}-{cell[1].name.lower()}") for cell in itertools.product(Phase, Event)]


@pytest.mark.parametrize(("phase", "event"), CELLS)
def test_what_runtimed_makes_of_an_event(phase: Phase, event: Event) -> None:
    if (phase, event) == (Phase.READY, Event.TASK_SUCCEEDED):
        with pytest.raises(ForbiddenTransition):  # a task is never Ready; if one were, nothing of it would be written
            led(observed(phase, event))
        return
    if phase is Phase.READY and event in TASKS:  # as impossible; its attempt is over as any other's
        lost = Phase.PENDING if event is Event.TASK_FAILED else Phase.FAILED
        assert led(observed(phase, event)).status.phase == lost
        return
    found, end = row(phase, event), led(observed(phase, event))
    if found is None and phase is not Phase.PENDING:
        found = row(phase, ALIKE.get(event, event))
    if (phase, event) == (Phase.SCHEDULED, Event.DRAINED_EXHAUSTED):
        # A Run that was not claimed has used none of its attempts: it is as if there were one left.
        found = row(phase, Event.DRAINED)
    if found is None or found.writer is not Writer.RUNTIMED:
        usual = led(observed(phase, Event.POD_HAS_ROOM))
        if phase in (*TERMINAL, Phase.PENDING):
            assert end.status.phase == phase
        assert end.status.phase == usual.status.phase
        return
    if (phase, event) == (Phase.RUNNING, Event.FORGOTTEN):
        assert isinstance(decide(observed(phase, event), NOW), d.Register), "Running still; nothing to write of that"
        return
    ready = condition(end.status.conditions, RunCondition.READY)
    assert end.status.phase == found.target
    assert ready is not None
    assert ready.reason in found.reasons
