"""The writes: what each changes, what it leaves, and under which conditions."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.transitions import ForbiddenTransition
from kruntimes.common.api.views import Endpoint, Run
from kruntimes.runtimed import status
from kruntimes.runtimed.decisions import Finish

NOW = datetime(2027, 1, 15, 8, 0, 0, tzinfo=UTC)
BOTH = ["a/b", FINALIZER]
BEFORE = "2027-01-15T07:00:00Z"


def run(phase: str, **changes: Any) -> Run:
    document: dict[str, Any] = {
        "metadata": {"name": "hello", "namespace": "demo", "uid": "u", "resourceVersion": "7", "generation": 1},
        "status": {"phase": phase, "assignedPod": "p", "assignedPodUID": "pu"} | changes,
    }
    return msgspec.convert(document, Run)


def changes(before: Run, after: Any) -> dict[str, Any]:
    """What the patch sets, by field; None where it removes one."""
    ops = [op for op in status.patch(before, after) if op["op"] != "test"]
    return {str(op["path"]).removeprefix("/status/"): op.get("value") for op in ops}


def test_every_status_write_has_its_preconditions() -> None:
    before = run("Scheduled")
    tests = {
        op["path"]: op["value"] for op in status.patch(before, status.claimed(before, now=NOW)) if op["op"] == "test"
    }
    assert tests == {
        "/metadata/uid": "u",
        "/metadata/resourceVersion": "7",
        "/status/phase": "Scheduled",
        "/status/assignedPodUID": "pu",
    }


def test_a_claim_counts_the_attempt_and_sets_the_start_once() -> None:
    before = run("Scheduled")
    got = changes(before, status.claimed(before, now=NOW))
    assert (got["phase"], got["attempt"], got["startTime"]) == ("Running", 1, "2027-01-15T08:00:00Z")
    assert [(c["type"], c["status"], c["reason"]) for c in got["conditions"]] == [("Ready", "False", "Preparing")]


def test_a_later_claim_keeps_the_start_and_ends_the_back_off() -> None:
    conditions = [{"type": "Backoff", "status": "True", "reason": "SourceFailed", "lastTransitionTime": BEFORE}]
    before = run("Scheduled", attempt=1, startTime=BEFORE, conditions=conditions)
    got = changes(before, status.claimed(before, now=NOW))
    assert got["attempt"] == 2
    assert "startTime" not in got
    backoff = next(c for c in got["conditions"] if c["type"] == "Backoff")
    assert (backoff["status"], backoff["lastTransitionTime"]) == ("False", "2027-01-15T08:00:00Z")


def test_ready_publishes_the_endpoint_without_an_empty_bundle() -> None:
    before = run("Running", attempt=1, message="old")
    got = changes(before, status.published(before, Endpoint(url="https://g/x"), now=NOW))
    assert got["endpoint"] == {"protocol": "HTTPS", "url": "https://g/x"}
    assert got["message"] is None
    assert got["conditions"][0]["reason"] == "FunctionRegistered"


def test_a_rewritten_endpoint_does_not_move_the_transition_time() -> None:
    ready = [{"type": "Ready", "status": "True", "reason": "FunctionRegistered", "lastTransitionTime": BEFORE}]
    before = run("Ready", attempt=1, conditions=ready, endpoint={"url": "https://g/x", "caBundle": "b2xk"})
    after = status.published(before, Endpoint(url="https://g/x", ca_bundle="bmV3"), now=NOW)
    assert after.conditions[0].last_transition_time == BEFORE


def test_pending_clears_the_assignment_and_keeps_the_endpoint() -> None:
    before = run("Ready", attempt=1, startTime=BEFORE, endpoint={"url": "https://g/x"})
    end = Finish(phase=Phase.PENDING, reason=Reason.RUNTIME_SERVER_FAILED, message="m" * 5000, backoff=True)
    got = changes(before, status.finished(before, end, now=NOW))
    assert got["assignedPod"] is None
    assert got["assignedPodUID"] is None
    assert "endpoint" not in got
    assert "completionTime" not in got
    assert len(got["message"]) == status.MESSAGE_CHARS
    assert {c["type"]: c["status"] for c in got["conditions"]} == {"Ready": "False", "Backoff": "True"}


def test_a_terminal_phase_keeps_its_history() -> None:
    before = run("Ready", attempt=1)
    end = Finish(phase=Phase.CANCELLED, reason=Reason.CANCELLED)
    got = changes(before, status.finished(before, end, now=NOW))
    assert got["completionTime"] == "2027-01-15T08:00:00Z"
    assert "assignedPod" not in got


def test_a_step_that_is_not_ours_never_leaves_the_process() -> None:
    before = run("Pending")
    with pytest.raises(ForbiddenTransition):
        status.patch(before, status.claimed(before, now=NOW))


def test_the_finalizer_is_added_to_others_and_alone_removed() -> None:
    meta = {"uid": "u", "resourceVersion": "7", "finalizers": ["a/b"]}
    before = msgspec.convert({"metadata": meta}, Run)
    assert status.finalizer_added(before)[-1] == {
        "op": "add",
        "path": "/metadata/finalizers",
        "value": ["a/b", FINALIZER],
    }
    held = msgspec.convert({"metadata": meta | {"finalizers": BOTH}}, Run)
    assert status.finalizer_removed(held)[-3:] == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": held.metadata.resource_version},
        {"op": "test", "path": "/metadata/finalizers/1", "value": FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]
