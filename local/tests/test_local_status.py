"""What the node says of a Pod, by table."""

from typing import Any

import pytest

from kruntimes.local.node.plan import Ending, Kind, Life, Part, Restart, Stage
from kruntimes.local.node.pods import Container, Gate, NodePod, NodePodSpec, NodePodStatus
from kruntimes.local.node.status import Report, document, settled

INIT = Part(name="init", kind=Kind.INIT, restart=Restart.ON_FAILURE)
SIDE = Part(name="side", kind=Kind.SIDECAR, restart=Restart.ALWAYS)
MAIN = Part(name="main", kind=Kind.MAIN, restart=Restart.ALWAYS)
SPEC = NodePodSpec(
    init_containers=(Container(name="init", image="i"), Container(name="side", image="i")),
    containers=(Container(name="main", image="i"),),
)
DONE = Life(stage=Stage.ENDED, code=0)
FAILED = Life(stage=Stage.ENDED, code=3)
STARTING = Life(stage=Stage.RUNNING, pid=7)
UP = Life(stage=Stage.RUNNING, started=True, ready=True, pid=7)
STOPPING = Life(stage=Stage.STOPPING, pid=7)
WAITING = Life()


def report(
    init: Life, side: Life, main: Life, *, over: Ending | None = None, pod: NodePod | None = None, **more: Any
) -> Report:
    given: dict[str, Any] = {"prepared": True, "trouble": "", "troubles": {}} | more
    return Report(
        pod=pod or NodePod(spec=SPEC), parts=(INIT, SIDE, MAIN), lives={"init": init, "side": side, "main": main},
        moments={}, pod_ip="127.77.0.2", host_ip="127.0.0.1", began="T0", now="T1", over=over, **given,
    )  # fmt: skip


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in found["conditions"]}


@pytest.mark.parametrize(
    ("given", "phase", "initialized", "ready"),
    [
        pytest.param(report(WAITING, WAITING, WAITING), "Pending", "False", "False", id="nothing-yet"),
        pytest.param(report(DONE, STARTING, WAITING), "Pending", "False", "False", id="sidecar-starts"),
        pytest.param(report(DONE, UP, STARTING), "Running", "True", "False", id="main-starts"),
        pytest.param(report(DONE, UP, UP), "Running", "True", "True", id="all-up"),
        pytest.param(report(DONE, UP, FAILED), "Running", "True", "False", id="main-ended"),
        pytest.param(
            report(DONE, UP, STOPPING, over=Ending.DELETING), "Running", "True", "False", id="main-is-stopping"
        ),
        pytest.param(
            report(DONE, UP, UP, over=Ending.DELETING), "Running", "True", "True", id="deleting-still-answers"
        ),
        pytest.param(report(DONE, UP, UP, over=Ending.LOST), "Running", "True", "False", id="lost-answers-no-more"),
        pytest.param(report(DONE, DONE, DONE, over=Ending.SUCCEEDED), "Succeeded", "True", "False", id="succeeded"),
        pytest.param(report(DONE, DONE, FAILED, over=Ending.FAILED), "Failed", "True", "False", id="failed"),
    ],
)
def test_phase_and_conditions(given: Report, phase: str, initialized: str, ready: str) -> None:
    found = document(given)
    assert found["phase"] == phase
    assert conditions(found)["Initialized"] == initialized
    assert conditions(found)["Ready"] == ready


@pytest.mark.parametrize(("gate", "ready"), [("True", "True"), ("False", "False"), (None, "False")])
def test_a_readiness_gate_decides_ready_and_is_left_alone(gate: str | None, ready: str) -> None:
    kind = "example.com/Gate"
    theirs = ({"type": kind, "status": gate, "reason": "Theirs"},) if gate else ()
    spec = NodePodSpec(
        init_containers=SPEC.init_containers, containers=SPEC.containers, readiness_gates=(Gate(condition_type=kind),)
    )
    found = document(report(DONE, UP, UP, pod=NodePod(spec=spec, status=NodePodStatus(conditions=theirs))))
    assert conditions(found)["ContainersReady"] == "True"
    assert conditions(found)["Ready"] == ready
    assert [c for c in found["conditions"] if c["type"] == kind] == list(theirs)


def test_a_transition_time_changes_only_with_the_status() -> None:
    before = ({"type": "Initialized", "status": "True", "lastTransitionTime": "T-old"},)
    found = document(report(DONE, UP, UP, pod=NodePod(spec=SPEC, status=NodePodStatus(conditions=before))))
    times = {c["type"]: c["lastTransitionTime"] for c in found["conditions"]}
    assert times["Initialized"] == "T-old"
    assert times["Ready"] == "T1"


def test_what_holds_a_pod_up_is_said() -> None:
    found = document(report(WAITING, WAITING, WAITING, prepared=False, trouble="ConfigMap x does not exist"))
    assert found["containerStatuses"][0]["state"]["waiting"]["message"] == "ConfigMap x does not exist"
    found = document(report(FAILED, WAITING, WAITING, troubles={"init": "No such file: nonsense"}))
    ended = found["initContainerStatuses"][0]["state"]["terminated"]
    assert (ended["reason"], ended["message"], ended["exitCode"]) == ("StartError", "No such file: nonsense", 3)


def test_a_status_that_somebody_else_has_changed_is_not_settled() -> None:
    written = document(report(DONE, UP, UP))
    shown = NodePodStatus(phase="Running", conditions=tuple(written["conditions"]))
    assert settled(NodePod(status=shown), written)
    changed = tuple(c | {"status": "False"} if c["type"] == "Ready" else c for c in written["conditions"])
    assert not settled(NodePod(status=NodePodStatus(phase="Running", conditions=changed)), written)
