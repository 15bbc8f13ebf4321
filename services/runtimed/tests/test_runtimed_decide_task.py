"""Every step of a task, and that no attempt can be executed twice."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.transitions import Writer, check
from kruntimes.common.api.views import Endpoint, Run
from kruntimes.runtimed import decisions as d
from kruntimes.runtimed.decide import decide
from kruntimes.runtimed.observed import Ending, Execution, ExecutionState, Local, Moment, Observed, Stage

UID, POD = "run-1", "pod-1"
WALL = 1_800_000_000.0
START = "2027-01-15T08:00:00Z"  # is WALL
NOW = Moment(wall=WALL, mono=1000.0)
EPOCH = Epoch(UID, 1, POD)


def run(phase: str = "Running", /, *, reason: str = "TaskRunning", **changes: Any) -> Run:
    """A claimed task Run on our Pod; *changes* by dotted path, with `__` for the dots."""
    document: dict[str, Any] = {
        "metadata": {"name": "job", "namespace": "demo", "uid": UID, "finalizers": [FINALIZER]},
        "spec": {"runtime": "python", "mode": {"task": {"entrypoint": "main.py"}}},
        "status": {
            "phase": phase,
            "assignedPod": "python-1",
            "assignedPodUID": POD,
            "attempt": 1,
            "startTime": START,
            "conditions": [{"type": "Ready", "status": "False", "reason": reason, "lastTransitionTime": START}],
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = document
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return msgspec.convert(document, Run)


def local(stage: Stage = Stage.REGISTERED, state: ExecutionState | None = None, /, **changes: Any) -> Local:
    """Our side of attempt 1; *state*: what the server said a tenth of a second ago."""
    known: dict[str, Any] = {"epoch": EPOCH, "stage": stage, "since": 999.0}
    if state is not None:
        outputs = {"k": "v"} if state is ExecutionState.SUCCEEDED else {}
        message = "the task exited with status 3" if state is ExecutionState.FAILED else ""
        known["execution"] = Execution(state=state, message=message, outputs=outputs, read_at=999.95)
    return Local(**(known | changes))


def observe(run: Run | None, local: Local | None = None, /, **changes: Any) -> Observed:
    return Observed(run=run, local=local, pod_uid=POD, endpoint=Endpoint(), **changes)


RUNNING, OVER, LOST = ExecutionState.RUNNING, ExecutionState.SUCCEEDED, ExecutionState.FORGOTTEN
FAILED = ExecutionState.FAILED
R, SOON = Stage.REGISTERED, pytest.approx(0.05)
CLOSED = {"open": False, "closed_at": 999.0}
NO_FINALIZER = {"metadata__finalizers": []}
SUCCEEDED, BROKEN = Ending(reason=Reason.TASK_SUCCEEDED), Ending(reason=Reason.TASK_FAILED, message="exit 3")
SUCCESS = d.Finish(phase=Phase.SUCCEEDED, reason=Reason.TASK_SUCCEEDED, outputs={"k": "v"})
RETRY = d.Finish(phase=Phase.PENDING, reason=Reason.TASK_FAILED, message="exit 3", backoff=True)
EXHAUSTED = d.Finish(phase=Phase.FAILED, reason=Reason.RETRIES_EXHAUSTED, message="attempt 1 of 1: TaskFailed: exit 3")
ELAPSED = {"spec__timeout": "10s", "status__startTime": "2027-01-15T07:59:50Z"}
TWO = {"spec__retryPolicy": {"maxAttempts": 2}}
ENDED = {"ending": SUCCEEDED, **CLOSED}

CASES = [
    # towards its execution
    pytest.param(observe(run("Scheduled", status__attempt=0)), d.Claim(), id="claimed-like-a-function"),
    pytest.param(observe(run(reason="Preparing", **NO_FINALIZER)), d.AddFinalizer(), id="held-before-it-runs"),
    pytest.param(observe(run(reason="Preparing")), d.Prepare(EPOCH), id="prepared"),
    pytest.param(observe(run(reason="Preparing"), local(Stage.PREPARED)), d.Begin(), id="said-before-it-runs"),
    pytest.param(observe(run(), local(Stage.PREPARED)), d.Execute(), id="executed"),
    pytest.param(observe(run(), local(Stage.REGISTERING)), d.Wait(), id="while-the-call-is-under-way"),
    pytest.param(observe(run(), local()), d.Poll(), id="asked-for"),
    pytest.param(observe(run(), local(R, RUNNING)), d.Wait(SOON), id="runs"),
    pytest.param(observe(run(), local(R, RUNNING, since=900.0)), d.Wait(pytest.approx(1.95)), id="runs-long"),
    # after a restart of ours
    pytest.param(observe(run()), d.Adopt(EPOCH), id="what-may-run-is-asked-for-and-never-begun-anew"),
    # its end
    pytest.param(observe(run(), local(R, OVER)), d.Close(SUCCEEDED), id="succeeded"),
    pytest.param(observe(run(), local(R, OVER, **ENDED)), d.RemoveFinalizer(), id="lets-go-before-the-last-write"),
    pytest.param(observe(run(**NO_FINALIZER), local(R, OVER, **ENDED)), SUCCESS, id="its-result-is-written"),
    pytest.param(
        observe(run("Succeeded", **NO_FINALIZER), local(R, OVER, **ENDED)), d.Unregister(), id="then-forgotten"
    ),
    pytest.param(
        observe(run("Succeeded", **NO_FINALIZER), local(Stage.RELEASED, OVER, **ENDED)), d.Forget(), id="and-here-too"
    ),
    pytest.param(
        observe(run(), local(R, FAILED)),
        d.Close(Ending(reason=Reason.TASK_FAILED, message="the task exited with status 3")),
        id="failed",
    ),
    pytest.param(observe(run(**NO_FINALIZER, **TWO), local(R, FAILED, ending=BROKEN, **CLOSED)), RETRY, id="again"),
    pytest.param(observe(run(**NO_FINALIZER), local(R, FAILED, ending=BROKEN, **CLOSED)), EXHAUSTED, id="exhausted"),
    pytest.param(
        observe(run(), local(R, LOST)),
        d.Close(
            Ending(reason=Reason.RUNTIME_SERVER_FAILED, message="the Runtime Server was restarted and lost the task")
        ),
        id="lost-with-its-server",
    ),
    pytest.param(
        observe(run(reason="Preparing"), local(Stage.NEW, ending=Ending(reason=Reason.SOURCE_FAILED))),
        d.Close(),
        id="its-source-failed",
    ),
    # what is asked for while it runs, and once it has ended
    pytest.param(observe(run(spec__cancelRequested=True), local(R, RUNNING)), d.Close(), id="cancel-closes"),
    pytest.param(observe(run(spec__cancelRequested=True), local(R, RUNNING, **CLOSED)), d.Unregister(), id="and-stops"),
    pytest.param(
        observe(run(spec__cancelRequested=True, **NO_FINALIZER), local(R, OVER, **ENDED)),
        SUCCESS,
        id="too-late-to-cancel",
    ),
    pytest.param(observe(run(**ELAPSED), local(R, RUNNING)), d.Close(), id="lifetime-closes"),
    pytest.param(
        observe(run(**ELAPSED, **NO_FINALIZER), local(Stage.RELEASED, **CLOSED)),
        d.Finish(phase=Phase.TIMEOUT, reason=Reason.LIFETIME_TIMEOUT, message="lived for 10s"),
        id="lifetime-over",
    ),
    pytest.param(observe(run(**ELAPSED, **NO_FINALIZER), local(R, OVER, **ENDED)), SUCCESS, id="in-time-by-a-hair"),
    pytest.param(
        observe(run(metadata__deletionTimestamp=START), local(R, RUNNING, **CLOSED)),
        d.Unregister(),
        id="deletion-stops",
    ),
    pytest.param(observe(run(), local(R, RUNNING), draining=True), d.Close(), id="drain-closes"),
    pytest.param(observe(run(), local(R, RUNNING, **CLOSED), draining=True), d.Wait(SOON), id="drain-lets-it-go-on"),
    pytest.param(observe(run(), local(R, OVER, **CLOSED), draining=True), d.Close(SUCCEEDED), id="drained-in-time"),
    pytest.param(
        observe(run(), local(R, RUNNING, **CLOSED), draining=True, drain_seconds=1.0), d.Unregister(), id="drained"
    ),
    # the self-fence
    pytest.param(observe(run(), local(), fenced=True), d.CancelInFlight(), id="fenced-stops-what-may-run"),
    pytest.param(observe(run(), local(R, RUNNING), fenced=True), d.CancelInFlight(), id="fenced-stops-what-runs"),
    pytest.param(observe(run(), local(R, RUNNING, cancelled_at=999.0), fenced=True), d.Wait(), id="fenced-once"),
    pytest.param(observe(run(), local(R, OVER), fenced=True), d.Wait(), id="fenced-keeps-a-result"),
    pytest.param(
        observe(run(), local(R, FAILED, cancelled_at=900.0)),
        d.Close(
            Ending(
                reason=Reason.RUNTIME_POD_LOST, message="the heartbeat could not be renewed, so the task was stopped"
            )
        ),
        id="what-the-fence-stopped-is-not-its-own-fault",
    ),
]


@pytest.mark.parametrize(("observed", "expected"), CASES)
def test_decides(observed: Observed, expected: d.Decision) -> None:
    assert decide(observed, NOW) == expected


EXECUTIONS = st.builds(Execution, state=st.sampled_from(ExecutionState), read_at=st.floats(900, 1000))
LOCALS = st.none() | st.builds(
    Local,
    epoch=st.builds(Epoch, st.just(UID), st.integers(1, 2), st.just(POD)),
    stage=st.sampled_from(Stage),
    since=st.floats(900, 1000),
    open=st.booleans(),
    closed_at=st.none() | st.floats(900, 1000),
    cancelled_at=st.none() | st.floats(900, 1000),
    execution=st.none() | EXECUTIONS,
    ending=st.none() | st.sampled_from([SUCCEEDED, BROKEN, Ending(reason=Reason.SOURCE_FAILED)]),
)


@st.composite
def observations(draw: st.DrawFn) -> Observed:
    seen = run(
        draw(st.sampled_from([phase for phase in Phase if phase is not Phase.READY])).value,
        reason=draw(st.sampled_from(["Preparing", "TaskRunning"])),
        status__attempt=draw(st.integers(1, 2)),
        spec__cancelRequested=draw(st.booleans()),
        spec__timeout=draw(st.sampled_from([None, "1s", "1h"])),
        metadata__finalizers=draw(st.sampled_from([[], [FINALIZER]])),
        metadata__deletionTimestamp=draw(st.sampled_from([None, START])),
    )
    flags = {name: draw(st.booleans()) for name in ("draining", "stale", "fenced")}
    held = draw(LOCALS)
    if held is not None and held.ending is SUCCEEDED and (held.execution is None or held.execution.state is not OVER):
        held = None  # an ending of success has a success before it
    return observe(seen, held, **flags)


@given(observations())
def test_every_observation_has_a_safe_decision(observed: Observed) -> None:
    decision, seen, held = decide(observed, NOW), observed.run, observed.local
    assert seen is not None
    begun = seen.status.conditions[0].reason == "TaskRunning"
    if isinstance(decision, d.Wait) and decision.seconds is not None:
        assert decision.seconds > 0, "never wake in the past"
    if isinstance(decision, d.Execute):
        assert begun, "said before it is done"
        assert held is not None
        assert held.stage is Stage.PREPARED, "by the process that said so, so that nothing runs twice"
    if isinstance(decision, d.Execute | d.Begin | d.Prepare):
        assert not (observed.fenced or observed.draining or seen.spec.cancel_requested or seen.metadata.deleting)
    assert not isinstance(decision, d.Register | d.Publish | d.Reopen | d.Announce), "a task is no function"
    if isinstance(decision, d.Finish):
        check(Phase(seen.status.phase), decision.phase, Writer.RUNTIMED)
        assert FINALIZER not in seen.metadata.finalizers
        assert held is None or held.stage is Stage.RELEASED or held.over, "nothing of it runs"
    if isinstance(decision, d.Forget):
        assert held is not None
        assert held.stage is Stage.RELEASED


@pytest.mark.parametrize(
    "asked", [{"spec__cancelRequested": True}, {"spec__timeout": "1s"}], ids=["cancel", "lifetime"]
)
def test_a_task_that_had_ended_is_cleaned_up_by_the_next_process_whatever_is_asked(asked: dict[str, Any]) -> None:
    """Its finalizer had gone when the process before this one did, and its folder had not."""
    late = Moment(wall=WALL + 60.0, mono=1000.0)
    assert decide(observe(run(metadata__finalizers=[], **asked)), late) == d.Adopt(EPOCH)
    released = observe(run(metadata__finalizers=[], **asked), local(Stage.RELEASED))
    assert isinstance(decide(released, late), d.Finish)
