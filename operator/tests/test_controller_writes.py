"""The patches on a Run: their preconditions, what they set, and what they can never say."""

from typing import Any

import msgspec
import pytest

from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.transitions import ForbiddenTransition
from kruntimes.controller import writes
from kruntimes.controller.lifecycle import Move
from kruntimes.controller.schedule import Assign, Explain
from kruntimes.controller.views import ControlledRun

NOW = 1767225600.0
STAMP = "2026-01-01T00:00:00Z"
EARLIER = "2025-01-01T00:00:00Z"
TEST = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


def run(status: dict[str, Any] | None, **metadata: Any) -> ControlledRun:
    fields = {"metadata": {"name": "r", "namespace": "n", "resourceVersion": "7", "generation": 1} | metadata}
    return msgspec.convert(fields | ({} if status is None else {"status": status}), ControlledRun)


def condition(kind: str, status: str, reason: str, at: str = EARLIER) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}


def applied(patch: writes.Patch) -> dict[str, Any]:
    """What a patch leaves of the status fields that it names; None for one that it removes."""
    assert patch[0] == TEST
    values: dict[str, Any] = {}
    for op in patch[1:]:
        name = op["path"].removeprefix("/status").removeprefix("/")
        values |= op["value"] if not name else {name: op.get("value")}
    values["conditions"] = {one["type"]: one for one in values["conditions"]}
    return values


READY = run(
    {
        "phase": "Ready",
        "assignedPod": "p",
        "assignedPodUID": "u",
        "attempt": 1,
        "conditions": [
            condition("Ready", "True", "FunctionRegistered"),
            condition("Backoff", "False", "Claimed"),
            condition("Foreign", "True", "Kept"),
        ],
    },
    uid="run-uid",
)


def test_an_assignment_sets_both_fields_at_once() -> None:
    values = applied(writes.assign(run({"phase": "Pending"}), Assign("n/r", "p", "u"), now=NOW))
    assert (values["phase"], values["assignedPod"], values["assignedPodUID"]) == ("Scheduled", "p", "u")
    assert values["conditions"]["Ready"]["reason"] == "Scheduled"
    assert values["conditions"]["Ready"]["status"] == "False"


def test_a_run_without_status_gets_a_whole_one() -> None:
    patch = writes.explain(run(None), Explain("n/r", Reason.NO_READY_POD, "none"), now=NOW)
    assert patch[1]["path"] == "/status"
    assert applied(patch)["phase"] == "Pending"


def test_an_end_has_its_time() -> None:
    values = applied(writes.end(run({"phase": "Pending"}), Phase.CANCELLED, Reason.CANCELLED, now=NOW))
    assert values["completionTime"] == STAMP
    assert values["message"]


def test_a_withdrawal_touches_neither_phase_nor_assignment() -> None:
    values = applied(writes.withdraw(READY, now=NOW))
    assert values.keys() == {"phase", "conditions"}
    assert values["phase"] == "Ready"
    ready = values["conditions"]["Ready"]
    assert (ready["status"], ready["reason"], ready["lastTransitionTime"]) == ("False", "RuntimePodLost", STAMP)
    assert values["conditions"]["Foreign"]["reason"] == "Kept"


def test_a_return_to_pending_clears_the_assignment_and_starts_the_backoff() -> None:
    back = Move(target=Phase.PENDING, reason=Reason.FENCED_POD_GONE, fence=Reason.FENCED_POD_GONE, release=True)
    values = applied(writes.move(READY, back, now=NOW))
    assert values["phase"] == "Pending"
    assert values["assignedPod"] is None
    assert values["assignedPodUID"] is None
    backoff = values["conditions"]["Backoff"]
    assert (backoff["status"], backoff["lastTransitionTime"]) == ("True", STAMP)
    assert backoff["message"] == "attempt 1 of 1 is over; the next may begin after 0 s"


def test_a_failure_names_the_fence_and_keeps_the_assignment_as_history() -> None:
    spent = Move(target=Phase.FAILED, reason=Reason.RETRIES_EXHAUSTED, fence=Reason.FENCED_POD_GONE, release=False)
    values = applied(writes.move(READY, spent, now=NOW))
    assert "assignedPod" not in values
    assert "FencedPodGone" in values["message"]
    assert "epoch run-uid/1/u)" in values["message"]
    assert values["completionTime"] == STAMP
    assert values["conditions"]["Ready"]["reason"] == "RetriesExhausted"


def test_a_transition_time_stays_while_the_status_does() -> None:
    waiting = run({"phase": "Pending", "conditions": [condition("Ready", "False", "NoReadyPod")]})
    values = applied(writes.explain(waiting, Explain("n/r", Reason.INSUFFICIENT_CAPACITY, "full"), now=NOW))
    assert values["conditions"]["Ready"]["lastTransitionTime"] == EARLIER
    assert values["conditions"]["Ready"]["reason"] == "InsufficientCapacity"


def test_only_our_finalizer_falls() -> None:
    held = run({"phase": "Ready"}, finalizers=["other/a", FINALIZER, "other/b"])
    assert writes.remove_finalizer(held) == [
        TEST,
        {"op": "replace", "path": "/metadata/finalizers", "value": ["other/a", "other/b"]},
    ]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Timeout", "Cancelled", "Running"])
def test_what_the_table_does_not_hold_is_never_written(phase: str) -> None:
    held = run({"phase": phase})
    with pytest.raises(ForbiddenTransition):
        writes.assign(held, Assign("n/r", "p", "u"), now=NOW)
    with pytest.raises(ForbiddenTransition):
        writes.end(held, Phase.CANCELLED, Reason.CANCELLED, now=NOW)


UNCLAIMED = run({"phase": "Scheduled", "assignedPod": "p", "assignedPodUID": "u"})


def test_a_run_that_a_live_runtimed_left_unclaimed_backs_off() -> None:
    back = Move(target=Phase.PENDING, reason=Reason.UNSCHEDULED, fence=None, release=True)
    values = applied(writes.move(UNCLAIMED, back, now=NOW))
    assert values["phase"] == "Pending"
    assert values["assignedPod"] is None
    backoff = values["conditions"]["Backoff"]
    assert (backoff["status"], backoff["reason"], backoff["lastTransitionTime"]) == ("True", "Unscheduled", STAMP)
    assert backoff["message"] == "may be assigned anew after 60 s"
    assert "Pod p" in values["conditions"]["Ready"]["message"]


def test_a_run_whose_pod_went_before_the_claim_does_not_back_off() -> None:
    back = Move(target=Phase.PENDING, reason=Reason.FENCED_POD_GONE, fence=Reason.FENCED_POD_GONE, release=True)
    values = applied(writes.move(UNCLAIMED, back, now=NOW))
    assert values["phase"] == "Pending"
    assert values["assignedPod"] is None
    assert "Backoff" not in values["conditions"]
