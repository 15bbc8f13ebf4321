"""Every row of design §5 that runtimed writes, every step of an ending, and that nothing is ever stuck."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.transitions import Writer, check
from kruntimes.common.api.views import Condition, Endpoint, Run
from kruntimes.runtimed import decisions as d
from kruntimes.runtimed.decide import decide
from kruntimes.runtimed.observed import Ending, Function, FunctionState, Local, Moment, Observed, Stage

UID, POD, OTHER = "run-1", "pod-1", "pod-2"
WALL = 1_800_000_000.0
START = "2027-01-15T08:00:00Z"  # is WALL
NOW = Moment(wall=WALL, mono=1000.0)
ENDPOINT = Endpoint(url="https://gateway/f", ca_bundle="Q0E=")


def run(phase: str = "Running", /, **changes: Any) -> Run:
    """A claimed function Run on our Pod; *changes* by dotted path, with `__` for the dots."""
    ready = "True" if phase == "Ready" else "False"
    document: dict[str, Any] = {
        "metadata": {"name": "hello", "namespace": "demo", "uid": UID, "finalizers": [FINALIZER]},
        "spec": {"runtime": "python", "mode": {"function": {"handler": "handler.main"}}},
        "status": {
            "phase": phase,
            "assignedPod": "python-1",
            "assignedPodUID": POD,
            "attempt": 1,
            "startTime": START,
            "conditions": [{"type": "Ready", "status": ready, "reason": "x", "lastTransitionTime": START}],
        },
    }
    if phase == "Ready":
        document["status"]["endpoint"] = msgspec.to_builtins(ENDPOINT)
    if phase == "Scheduled":
        document["status"]["attempt"] = 0
        document["metadata"]["finalizers"] = []
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = document
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return msgspec.convert(document, Run)


def local(stage: Stage = Stage.REGISTERED, /, **changes: Any) -> Local:
    """Our side of attempt 1, registered and ready at the server unless told otherwise."""
    known: dict[str, Any] = {"epoch": Epoch(UID, 1, POD), "stage": stage, "since": 990.0}
    if stage is Stage.REGISTERED:
        known["function"] = function()
    return Local(**(known | changes))


def function(state: FunctionState = FunctionState.READY, /, **changes: Any) -> Function:
    return Function(**({"state": state, "read_at": 999.9} | changes))


def observe(run: Run | None, local: Local | None = None, /, **changes: Any) -> Observed:
    return Observed(run=run, local=local, pod_uid=POD, endpoint=ENDPOINT, **changes)


CLOSED = {"open": False, "closed_at": 999.0}
RELEASED = local(Stage.RELEASED, **CLOSED)
CANCELLED = d.Finish(phase=Phase.CANCELLED, reason=Reason.CANCELLED, message="cancelled on request")
LIFETIME = d.Finish(phase=Phase.TIMEOUT, reason=Reason.LIFETIME_TIMEOUT, message="lived for 10s")
OVER = {"spec__timeout": "10s", "status__startTime": "2027-01-15T07:59:50Z"}
FAILED = Ending(reason=Reason.REGISTRATION_FAILED, message="ImportError: no module")
BEFORE = "2027-01-15T07:59:58Z"
DRAINING = {"type": "Ready", "status": "False", "reason": "Draining", "lastTransitionTime": START}
NO_FINALIZER = {"metadata__finalizers": []}
DELETING = {"metadata__deletionTimestamp": START}
ADOPT = d.Adopt(Epoch(UID, 1, POD))
DRAINED = "the Runtime Pod is being deleted; unregistered"

CASES = [
    # claim, prepare, register, ready
    pytest.param(observe(run("Scheduled")), d.Claim(), id="scheduled-here-is-claimed"),
    pytest.param(observe(run("Scheduled", status__attempt=3)), d.Claim(), id="a-later-attempt-is-claimed-too"),
    pytest.param(observe(run("Scheduled", status__assignedPodUID=OTHER)), d.Wait(), id="scheduled-elsewhere"),
    pytest.param(observe(run("Pending", status__assignedPodUID="")), d.Wait(), id="pending-is-the-scheduler's"),
    pytest.param(observe(run("Scheduled"), fenced=True), d.Wait(), id="nothing-is-claimed-while-fenced"),
    pytest.param(observe(run(**NO_FINALIZER)), d.AddFinalizer(), id="the-finalizer-comes-before-the-source"),
    pytest.param(observe(run("Ready", **NO_FINALIZER)), d.AddFinalizer(), id="a-finalizer-that-was-taken-comes-back"),
    pytest.param(observe(run()), d.Prepare(Epoch(UID, 1, POD)), id="claimed-is-prepared"),
    pytest.param(observe(run("Ready")), d.Prepare(Epoch(UID, 1, POD)), id="after-a-restart-all-is-prepared-again"),
    pytest.param(observe(run(), local(Stage.NEW)), d.Prepare(Epoch(UID, 1, POD)), id="prepared-again-after-a-fault"),
    pytest.param(observe(run(), local(Stage.PREPARED)), d.Register(), id="prepared-is-registered"),
    pytest.param(observe(run("Ready"), local(Stage.PREPARED)), d.Register(), id="after-a-restart-registered-again"),
    pytest.param(observe(run(), local(Stage.REGISTERING)), d.Wait(), id="registering-takes-its-time"),
    pytest.param(
        observe(run(), local(function=function(FunctionState.REGISTERING, read_at=999.0))), d.Poll(), id="initialising"
    ),
    pytest.param(
        observe(run(), local(since=900.0, function=function(FunctionState.REGISTERING))),
        d.Close(Ending(reason=Reason.REGISTRATION_FAILED, message="not ready within 60 s")),
        id="initialising-too-long",
    ),
    pytest.param(observe(run(), local()), d.Publish(), id="registered-is-published"),
    pytest.param(observe(run(), local(), stale=True), d.Wait(), id="nothing-is-published-on-an-old-heartbeat"),
    pytest.param(observe(run("Ready"), local()), d.Wait(pytest.approx(4.9)), id="ready-is-watched"),
    pytest.param(observe(run("Ready"), local(function=None)), d.Poll(), id="ready-and-not-looked-at"),
    pytest.param(observe(run("Ready"), local(function=function(read_at=990.0))), d.Poll(), id="looked-at-again"),
    pytest.param(
        observe(run("Ready", status__endpoint={"url": ENDPOINT.url, "caBundle": "b2xk"}), local()),
        d.Publish(),
        id="a-rotated-bundle-is-published",
    ),
    pytest.param(
        observe(run("Ready", status__conditions=[{"type": "Ready", "status": "False"}]), local()),
        d.Publish(),
        id="withdrawn-by-the-operator-and-alive-after-all",
    ),
    # the Runtime Server was restarted
    pytest.param(
        observe(run("Ready"), local(function=function(FunctionState.FORGOTTEN))), d.Reopen(), id="forgotten-when-ready"
    ),
    pytest.param(
        observe(run(), local(function=function(FunctionState.FORGOTTEN))), d.Register(), id="forgotten-registers-again"
    ),
    pytest.param(
        observe(run("Ready"), local(function=function(FunctionState.DRAINING))),
        d.Wait(pytest.approx(4.9)),
        id="a-server-that-drains-is-waited-for",
    ),
    # registration error, fatal error
    pytest.param(
        observe(run(), local(function=function(FunctionState.FAILED, fatal_error="SyntaxError: line 3"))),
        d.Close(Ending(reason=Reason.REGISTRATION_FAILED, message="SyntaxError: line 3")),
        id="initialisation-failed",
    ),
    pytest.param(
        observe(run("Ready"), local(function=function(FunctionState.FAILED))),
        d.Close(Ending(reason=Reason.RUNTIME_SERVER_FAILED, message="the Runtime Server gave no reason")),
        id="fatal-error-when-ready",
    ),
    pytest.param(observe(run(), local(Stage.PREPARED, ending=FAILED)), d.Close(), id="a-failure-closes-first"),
    pytest.param(
        observe(run(), local(Stage.PREPARED, ending=FAILED, **CLOSED)), d.Unregister(), id="then-it-unregisters"
    ),
    pytest.param(
        observe(run(), local(Stage.RELEASED, ending=FAILED, **CLOSED)),
        d.RemoveFinalizer(),
        id="then-lets-the-object-go",
    ),
    pytest.param(
        observe(
            run(**NO_FINALIZER, spec__retryPolicy={"maxAttempts": 2}), local(Stage.RELEASED, ending=FAILED, **CLOSED)
        ),
        d.Finish(phase=Phase.PENDING, reason=FAILED.reason, message=FAILED.message, backoff=True),
        id="then-pending-with-attempts-left",
    ),
    pytest.param(
        observe(run(**NO_FINALIZER), local(Stage.RELEASED, ending=FAILED, **CLOSED)),
        d.Finish(
            phase=Phase.FAILED,
            reason=Reason.RETRIES_EXHAUSTED,
            message="attempt 1 of 1: RegistrationFailed: ImportError: no module",
        ),
        id="or-failed-when-exhausted",
    ),
    pytest.param(
        observe(
            run(**NO_FINALIZER, spec__retryPolicy={"maxAttempts": 9, "retryableReasons": ["RuntimePodLost"]}),
            local(Stage.RELEASED, ending=FAILED, **CLOSED),
        ),
        d.Finish(
            phase=Phase.FAILED,
            reason=Reason.RETRIES_EXHAUSTED,
            message="attempt 1 of 9: RegistrationFailed: ImportError: no module",
        ),
        id="or-failed-for-a-reason-that-is-not-retried",
    ),
    # cancelRequested
    pytest.param(observe(run("Scheduled", spec__cancelRequested=True)), CANCELLED, id="cancelled-before-the-claim"),
    pytest.param(observe(run("Ready", spec__cancelRequested=True), local()), d.Close(), id="cancel-closes"),
    pytest.param(
        observe(run("Ready", spec__cancelRequested=True), local(in_flight=1, **CLOSED)),
        d.CancelInFlight(),
        id="cancel-does-not-wait-for-calls",
    ),
    pytest.param(
        observe(run("Ready", spec__cancelRequested=True), local(in_flight=1, cancelled_at=998.0, **CLOSED)),
        d.Wait(8.0),
        id="what-was-cancelled-has-ten-seconds",
    ),
    pytest.param(
        observe(run("Ready", spec__cancelRequested=True), local(in_flight=1, cancelled_at=990.0, **CLOSED)),
        d.Unregister(),
        id="and-no-more",
    ),
    pytest.param(
        observe(run("Ready", spec__cancelRequested=True), local(**CLOSED)), d.Unregister(), id="cancel-unregisters"
    ),
    pytest.param(observe(run("Ready", spec__cancelRequested=True), RELEASED), d.RemoveFinalizer(), id="cancel-lets-go"),
    pytest.param(
        observe(run("Ready", spec__cancelRequested=True, **NO_FINALIZER), RELEASED), CANCELLED, id="cancel-ends"
    ),
    pytest.param(
        observe(run(spec__cancelRequested=True), local(Stage.REGISTERING, **CLOSED)),
        d.Unregister(),
        id="cancel-does-not-wait-for-a-registration",
    ),
    pytest.param(
        observe(run("Ready", spec__cancelRequested=True, **NO_FINALIZER)), CANCELLED, id="cancelled-after-a-restart"
    ),
    # deletion
    pytest.param(observe(run("Ready", **DELETING), local()), d.Close(), id="deletion-closes"),
    pytest.param(
        observe(run("Ready", **DELETING), local(in_flight=1, **CLOSED)), d.Wait(7.0), id="deletion-lets-calls-finish"
    ),
    pytest.param(
        observe(run("Ready", **DELETING), local(in_flight=1, open=False, closed_at=992.0)),
        d.CancelInFlight(),
        id="for-eight-seconds",
    ),
    pytest.param(observe(run("Ready", **DELETING), local(**CLOSED)), d.Unregister(), id="deletion-unregisters"),
    pytest.param(observe(run("Ready", **DELETING), RELEASED), d.RemoveFinalizer(), id="deletion-lets-go"),
    # after a restart of ours: what may be registered is unregistered before anything is written
    pytest.param(observe(run("Ready", **DELETING)), ADOPT, id="deletion-with-nothing-held"),
    pytest.param(observe(run("Failed")), ADOPT, id="an-end-that-another-wrote-with-nothing-held"),
    pytest.param(observe(run("Running", spec__cancelRequested=True)), ADOPT, id="cancel-with-nothing-held"),
    pytest.param(observe(run("Running", **OVER)), ADOPT, id="lifetime-over-with-nothing-held"),
    pytest.param(observe(run("Ready", status__conditions=[DRAINING]), draining=True), ADOPT, id="drain-with-nothing"),
    pytest.param(
        observe(run("Ready", **NO_FINALIZER, spec__cancelRequested=True)), CANCELLED, id="what-was-let-go-needs-nothing"
    ),
    pytest.param(
        observe(run("Scheduled", metadata__finalizers=[FINALIZER], **DELETING)),
        d.RemoveFinalizer(),
        id="what-was-never-claimed-needs-nothing",
    ),
    pytest.param(observe(run("Ready", **DELETING, **NO_FINALIZER), RELEASED), d.Wait(), id="deleted-is-about-to-go"),
    pytest.param(observe(run("Scheduled", **DELETING)), d.Wait(), id="deleted-before-the-claim"),
    pytest.param(observe(run(**DELETING, **NO_FINALIZER)), d.Wait(), id="deleted-after-the-claim-is-never-registered"),
    pytest.param(
        observe(run("Failed", **DELETING), RELEASED), d.RemoveFinalizer(), id="a-finalizer-left-on-a-terminal-run"
    ),
    pytest.param(observe(None, local()), d.Close(), id="gone-closes"),
    pytest.param(observe(None, local(in_flight=1, **CLOSED)), d.CancelInFlight(), id="gone-cancels"),
    pytest.param(observe(None, local(**CLOSED)), d.Unregister(), id="gone-unregisters"),
    pytest.param(observe(None, RELEASED), d.Forget(), id="gone-is-forgotten"),
    pytest.param(observe(None), d.Wait(), id="gone-and-nothing-held"),
    # lifetime and idle
    pytest.param(observe(run("Ready", **OVER), local()), d.Close(), id="lifetime-closes"),
    pytest.param(observe(run("Ready", **OVER, **NO_FINALIZER), RELEASED), LIFETIME, id="lifetime-ends"),
    pytest.param(observe(run("Scheduled", **OVER)), LIFETIME, id="lifetime-over-at-a-later-attempt"),
    pytest.param(observe(run(**OVER, **NO_FINALIZER)), LIFETIME, id="lifetime-over-while-preparing"),
    pytest.param(
        observe(run("Ready", spec__timeout="2s"), local()), d.Wait(pytest.approx(2.0)), id="lifetime-is-waited-for"
    ),
    pytest.param(
        observe(run(spec__timeout="2s"), local(Stage.REGISTERING)),
        d.Wait(pytest.approx(2.0)),
        id="lifetime-counts-while-registering",
    ),
    pytest.param(
        observe(run("Ready", spec__timeout="1h", spec__cancelRequested=True, **NO_FINALIZER), RELEASED),
        CANCELLED,
        id="cancel-goes-before-lifetime",
    ),
    pytest.param(
        observe(run("Ready", spec__mode={"function": {"handler": "h.m", "idleTimeoutSeconds": 3}}), local()),
        d.Wait(pytest.approx(4.0)),
        id="idle-counts-from-ready-and-not-from-before",
    ),
    # Pod draining
    pytest.param(observe(run("Ready"), local(), draining=True), d.Announce(), id="draining-withdraws-the-route-first"),
    pytest.param(observe(run(), local(), draining=True), d.Close(), id="draining-closes"),
    pytest.param(
        observe(run("Ready", status__conditions=[DRAINING]), local(), draining=True),
        d.Wait(pytest.approx(2.0)),
        id="draining-serves-until-the-route-is-gone",
    ),
    pytest.param(
        observe(run("Ready", status__conditions=[DRAINING | {"lastTransitionTime": BEFORE}]), local(), draining=True),
        d.Close(),
        id="draining-closes-when-it-is-gone",
    ),
    pytest.param(
        observe(run(), local(in_flight=1, **CLOSED), draining=True, drain_seconds=60.0),
        d.Wait(59.0),
        id="draining-lets-calls-finish",
    ),
    pytest.param(observe(run(), local(**CLOSED), draining=True), d.Unregister(), id="draining-unregisters"),
    pytest.param(observe(run(), RELEASED, draining=True), d.RemoveFinalizer(), id="draining-lets-go"),
    pytest.param(
        observe(run(**NO_FINALIZER, spec__retryPolicy={"maxAttempts": 2}), RELEASED, draining=True),
        d.Finish(phase=Phase.PENDING, reason=Reason.FENCED_UNREGISTERED, message=DRAINED, backoff=True),
        id="draining-acknowledges",
    ),
    pytest.param(
        observe(run(**NO_FINALIZER), RELEASED, draining=True),
        d.Finish(
            phase=Phase.FAILED,
            reason=Reason.RETRIES_EXHAUSTED,
            message=f"attempt 1 of 1: FencedUnregistered: {DRAINED}",
        ),
        id="draining-the-last-attempt",
    ),
    pytest.param(
        observe(run("Scheduled"), draining=True),
        d.Finish(phase=Phase.PENDING, reason=Reason.FENCED_UNREGISTERED, message=DRAINED),
        id="draining-before-the-claim-uses-no-attempt",
    ),
    pytest.param(
        observe(run(**NO_FINALIZER, **OVER), RELEASED, draining=True), LIFETIME, id="lifetime-goes-before-draining"
    ),
    pytest.param(observe(run("Ready", **DELETING), local(), draining=True), d.Close(), id="deletion-before-draining"),
    # self-fence
    pytest.param(
        observe(run("Ready"), local(in_flight=1), fenced=True), d.CancelInFlight(), id="fenced-cancels-what-runs"
    ),
    pytest.param(
        observe(run("Ready"), local(in_flight=1, cancelled_at=999.0), fenced=True), d.Wait(), id="fenced-waits"
    ),
    pytest.param(observe(run(), local(Stage.PREPARED), fenced=True), d.Wait(), id="fenced-registers-nothing"),
    pytest.param(observe(run("Ready", spec__cancelRequested=True), local(), fenced=True), d.Close(), id="fenced-ends"),
    # the epoch is void
    pytest.param(observe(run("Ready", status__assignedPodUID=OTHER), local()), d.Close(), id="assigned-elsewhere"),
    pytest.param(
        observe(run("Ready", status__assignedPodUID=OTHER), RELEASED), d.Forget(), id="assigned-elsewhere-is-forgotten"
    ),
    pytest.param(observe(run(status__attempt=2), local()), d.Close(), id="a-newer-attempt-voids-the-old"),
    pytest.param(observe(run(status__attempt=2), RELEASED), d.Forget(), id="and-is-then-prepared-afresh"),
    pytest.param(observe(run("Scheduled", status__attempt=1), RELEASED), d.Forget(), id="scheduled-here-again"),
    pytest.param(observe(run("Scheduled"), local()), d.Wait(), id="the-watch-is-behind-our-claim"),
    pytest.param(observe(run("Cancelled", **NO_FINALIZER), RELEASED), d.Forget(), id="terminal-is-forgotten"),
    pytest.param(observe(run("Cancelled", **NO_FINALIZER)), d.Wait(), id="terminal-and-nothing-held"),
    pytest.param(observe(run("Succeeded"), RELEASED), d.RemoveFinalizer(), id="terminal-with-our-finalizer"),
]


@pytest.mark.parametrize(("observed", "expected"), CASES)
def test_decides(observed: Observed, expected: d.Decision) -> None:
    assert decide(observed, NOW) == expected


IDLE = {"spec__mode": {"function": {"handler": "h.m", "idleTimeoutSeconds": 3}}}
LATER = Moment(wall=WALL + 10, mono=1010.0)
ENDED = d.Close(Ending(reason=Reason.IDLE_TIMEOUT, message="idle for 3 s"))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param(local(function=function(read_at=1009.5)), ENDED, id="idle-since-ready"),
        pytest.param(local(function=function(read_at=1008.0)), d.Poll(), id="only-on-a-fresh-status"),
        pytest.param(
            local(function=function(read_at=1009.5, last_activity=WALL + 9)),
            d.Wait(pytest.approx(2.0)),
            id="the-server-saw-a-call",
        ),
        pytest.param(
            local(function=function(read_at=1009.5), last_activity=WALL + 9),
            d.Wait(pytest.approx(2.0)),
            id="we-saw-a-call",
        ),
        pytest.param(
            local(function=function(read_at=1009.5), in_flight=1), d.Wait(pytest.approx(4.5)), id="a-call-is-under-way"
        ),
        pytest.param(
            local(function=function(read_at=1009.5, in_flight=1)), d.Wait(pytest.approx(4.5)), id="so-says-the-server"
        ),
    ],
)
def test_the_idle_clock(held: Local, expected: d.Decision) -> None:
    assert decide(observe(run("Ready", **IDLE), held), LATER) == expected


def test_idle_ends_as_timeout() -> None:
    ended = local(Stage.RELEASED, ending=Ending(reason=Reason.IDLE_TIMEOUT, message="idle for 3 s"), **CLOSED)
    got = decide(observe(run("Ready", **IDLE, **NO_FINALIZER), ended), LATER)
    assert got == d.Finish(phase=Phase.TIMEOUT, reason=Reason.IDLE_TIMEOUT, message="idle for 3 s")


LOCALS = st.none() | st.builds(
    Local,
    epoch=st.builds(Epoch, run_uid=st.just(UID), attempt=st.integers(1, 3), pod_uid=st.just(POD)),
    stage=st.sampled_from(Stage),
    since=st.floats(900, 1000),
    open=st.booleans(),
    in_flight=st.integers(0, 1),
    closed_at=st.none() | st.floats(900, 1000),
    cancelled_at=st.none() | st.floats(900, 1000),
    last_activity=st.floats(0, WALL),
    function=st.none()
    | st.builds(
        Function, state=st.sampled_from(FunctionState), in_flight=st.integers(0, 1), read_at=st.floats(900, 1000)
    ),
    ending=st.none() | st.builds(Ending, reason=st.sampled_from([Reason.SOURCE_FAILED, Reason.IDLE_TIMEOUT])),
)


@st.composite
def observations(draw: st.DrawFn) -> Observed:
    seen = run(
        draw(st.sampled_from(Phase)).value,
        status__assignedPodUID=draw(st.sampled_from([POD, OTHER, ""])),
        status__attempt=draw(st.integers(1, 3)),
        spec__cancelRequested=draw(st.booleans()),
        spec__timeout=draw(st.sampled_from([None, "1s", "1h"])),
        metadata__finalizers=draw(st.sampled_from([[], [FINALIZER], ["other/one", FINALIZER]])),
        metadata__deletionTimestamp=draw(st.sampled_from([None, START])),
        spec__mode={"function": {"handler": "h.m", "idleTimeoutSeconds": draw(st.sampled_from([None, 1, 3600]))}},
    )
    flags = {name: draw(st.booleans()) for name in ("draining", "stale", "fenced")}
    return observe(draw(st.none() | st.just(seen)), draw(LOCALS), **flags)


@settings(deadline=None)
@given(observations())
def test_every_observation_has_a_safe_decision(observed: Observed) -> None:
    decision, seen, held = decide(observed, NOW), observed.run, observed.local
    if isinstance(decision, d.Wait) and decision.seconds is not None:
        assert decision.seconds > 0, "never wake in the past"
    if isinstance(
        decision, d.Claim | d.AddFinalizer | d.Publish | d.Reopen | d.Announce | d.RemoveFinalizer | d.Finish
    ):
        assert seen is not None
        assert seen.status.assigned_pod_uid == POD, "no write to a Run that is not ours"
    if isinstance(decision, d.Finish):
        assert seen is not None
        check(Phase(seen.status.phase), decision.phase, Writer.RUNTIMED)
        assert held is None or held.stage is Stage.RELEASED, "nothing ends before it is unregistered"
        assert FINALIZER not in seen.metadata.finalizers, "the finalizer goes before the last write"
    if isinstance(decision, d.RemoveFinalizer | d.Forget):
        assert held is None or held.stage is Stage.RELEASED
    if isinstance(decision, d.RemoveFinalizer):
        assert seen is not None
        assert held is not None or seen.epoch is None or seen.status.phase == Phase.SCHEDULED, "asked before let go"
    if isinstance(decision, d.Unregister):
        assert held is not None
        assert not held.open
    if isinstance(decision, d.Register | d.Prepare | d.Claim | d.Publish):
        assert seen is not None
        assert not seen.metadata.deleting
        assert not observed.draining
        assert not observed.fenced
        assert not seen.spec.cancel_requested
    if isinstance(decision, d.Register | d.Prepare | d.Publish):
        assert seen is not None
        assert FINALIZER in seen.metadata.finalizers, "nothing is registered without the finalizer"


def test_a_condition_is_only_read_by_its_type() -> None:
    conditions = (Condition(type="Backoff", status="True"), Condition(type="Ready", status="False"))
    assert (
        decide(
            observe(
                msgspec.structs.replace(run(), status=msgspec.structs.replace(run().status, conditions=conditions)),
                local(),
                draining=True,
            ),
            NOW,
        )
        == d.Close()
    )
