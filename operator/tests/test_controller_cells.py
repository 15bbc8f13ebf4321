"""Every event in every phase: what operator and scheduler make of it is the table's row, and nothing where none is."""

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kruntimes.common.api.phases import Phase
from kruntimes.common.api.transitions import Event, Writer, row
from kruntimes.controller import schedule, writes
from kruntimes.controller.lifecycle import CLAIM_SECONDS, LOST_SECONDS, Move, Observed, PodSight, decide
from kruntimes.controller.schedule import Assign, Cancel, Expire, Offer, pending
from kruntimes.controller.views import ControlledRun

NOW = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""

SIGHTS: Mapping[Event, Mapping[str, Any]] = {
    Event.UNCLAIMED: {"waited": CLAIM_SECONDS},
    Event.POD_LOST: {"pod": PodSight.GONE, "attempt": 1, "max_attempts": 2},
    Event.POD_LOST_EXHAUSTED: {"pod": PodSight.GONE, "attempt": 2, "max_attempts": 2},
    Event.POD_LOST_CANCELLED: {"pod": PodSight.GONE, "max_attempts": 2, "cancel": True},
    Event.POD_LOST_LIFETIME: {"pod": PodSight.GONE, "max_attempts": 2, "lifetime_ends": NOW},
    # What others write looks like this to the operator, or like nothing at all.
    Event.CANCEL_REQUESTED: {"cancel": True},
    Event.CANCEL_REQUESTED_WAITING: {"cancel": True},
    Event.LIFETIME_OVER: {"lifetime_ends": NOW - 1},
    Event.LIFETIME_OVER_WAITING: {"lifetime_ends": NOW - 1},
    Event.DRAINED: {"pod_deleting": True, "max_attempts": 2},
    Event.DRAINED_EXHAUSTED: {"pod_deleting": True},
    Event.FORGOTTEN: {"silence": LOST_SECONDS - 1},
}
CELLS = [pytest.param(*cell, id=f"{cell[0].value}-{cell[1].name.lower()}") for cell in itertools.product(Phase, Event)]


@pytest.mark.parametrize(("phase", "event"), CELLS)
def test_what_the_operator_makes_of_an_event(phase: Phase, event: Event) -> None:
    sight = SIGHTS.get(event, {})
    decision = decide(Observed(phase=phase, assigned=phase is not Phase.PENDING, **sight), NOW)
    found = row(phase, event)
    if found is None or found.writer is not Writer.OPERATOR:
        assert not isinstance(decision, Move)
        return
    if (phase, event) == (Phase.SCHEDULED, Event.POD_LOST_EXHAUSTED):
        # A Run that was not claimed has used none of its attempts: it is as if there were one left.
        found = row(phase, Event.POD_LOST)
        assert found is not None
    assert isinstance(decision, Move)
    assert decision.target is found.target
    assert decision.reason in found.reasons


def seen(phase: Phase, event: Event) -> ControlledRun:
    """A Run in *phase* in which *event* holds, as far as an object shows it."""
    late = event in (Event.LIFETIME_OVER, Event.LIFETIME_OVER_WAITING, Event.POD_LOST_LIFETIME)
    cancelled = event in (Event.CANCEL_REQUESTED, Event.CANCEL_REQUESTED_WAITING, Event.POD_LOST_CANCELLED)
    status = {"phase": phase.value, "startTime": "2025-12-31T00:00:00Z", "attempt": 1}
    if phase is not Phase.PENDING:
        status |= {"assignedPod": "p", "assignedPodUID": "u"}
    spec = {"runtime": "python", "timeout": "1m" if late else "999h", "cancelRequested": cancelled}
    metadata = {"name": "r", "namespace": "n", "resourceVersion": "7", "creationTimestamp": "2025-12-31T00:00:00Z"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, ControlledRun)


@pytest.mark.parametrize(("phase", "event"), CELLS)
def test_what_the_scheduler_makes_of_an_event(phase: Phase, event: Event) -> None:
    run = seen(phase, event)
    waiting = pending(run)
    found = row(phase, event)
    if phase is not Phase.PENDING:
        assert waiting is None, "what is assigned or has ended is not the scheduler's business"
        assert found is None or found.writer is not Writer.SCHEDULER
        return
    assert waiting is not None
    room = [Offer(name="p", uid="u", capacity={"runs": 1}, used={})] if event is Event.POD_HAS_ROOM else []
    moves = [
        action for action in schedule.schedule([waiting], room, NOW) if isinstance(action, Assign | Cancel | Expire)
    ]
    if found is None:
        by_itself = {Event.CANCEL_REQUESTED, Event.POD_LOST_CANCELLED, Event.LIFETIME_OVER, Event.POD_LOST_LIFETIME}
        assert not moves or event in by_itself, "only a cancel or a time-out means something while a Run waits, too"
        return
    (action,) = moves
    patch = writes.of(run, action, now=NOW)
    written = {op["path"]: op["value"] for op in patch if op["op"] != "test"}
    assert written["/status/phase"] == found.target.value
    ready = next(one for one in written["/status/conditions"] if one["type"] == "Ready")
    assert ready["reason"] in found.reasons
