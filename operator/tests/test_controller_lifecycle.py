"""The operator's rows of the lifecycle: a table, and what must hold for every input."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.api.phases import ASSIGNED, TERMINAL, Phase
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.transitions import Writer, check
from kruntimes.controller.lifecycle import (
    CLAIM_SECONDS,
    FENCE_SECONDS,
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

NOW = 1_800_000_000.0


def ready(**more: Any) -> Observed:
    return Observed(**({"phase": Phase.READY, "reachable": True, "explained": "FunctionRegistered"} | more))


def lost(**more: Any) -> Observed:
    """Withdrawn already, finalizer gone: only the fence is missing."""
    return Observed(**({"phase": Phase.RUNNING, "explained": "RuntimePodLost", "pod": PodSight.GONE} | more))


def recovered(**more: Any) -> Move:
    return Move(
        **(
            {
                "target": Phase.PENDING,
                "reason": Reason.FENCED_POD_GONE,
                "fence": Reason.FENCED_POD_GONE,
                "release": True,
            }
            | more
        )
    )


EXHAUSTED = recovered(target=Phase.FAILED, reason=Reason.RETRIES_EXHAUSTED, release=False)
DELETING = {"pod": PodSight.PRESENT, "pod_deleting": True, "serving": False}

CASES = [
    pytest.param(Observed(phase=Phase.PENDING, assigned=False), Nothing(), id="pending-is-the-schedulers"),
    pytest.param(ready(), Nothing(), id="all-is-well"),
    pytest.param(ready(cancel=True, lifetime_ends=NOW - 1), Nothing(), id="a-live-pod-ends-its-own-runs"),
    *[
        pytest.param(
            Observed(phase=phase, pod=PodSight.GONE, finalizer=True), Nothing(), id=f"{phase.value}-stays-terminal"
        )
        for phase in sorted(TERMINAL)
    ],
    # retention
    *[
        pytest.param(Observed(phase=phase, retention_ends=NOW), Collect(), id=f"{phase.value}-is-deleted-in-time")
        for phase in sorted(TERMINAL)
    ],
    pytest.param(Observed(phase=Phase.FAILED, retention_ends=NOW + 9), Wait(9), id="ended-and-kept-for-now"),
    pytest.param(
        Observed(phase=Phase.FAILED, retention_ends=NOW - 9, deleting=True, finalizer=True, assigned=False),
        RemoveFinalizer(),
        id="deleted-already",
    ),
    # claim deadline
    pytest.param(Observed(phase=Phase.SCHEDULED, waited=10), Wait(20), id="waits-for-the-claim"),
    pytest.param(
        Observed(phase=Phase.SCHEDULED, waited=30, attempt=0),
        Move(target=Phase.PENDING, reason=Reason.UNSCHEDULED, fence=None, release=True),
        id="not-claimed-in-time",
    ),
    pytest.param(
        Observed(phase=Phase.SCHEDULED, waited=30, finalizer=True), RemoveFinalizer(), id="finalizer-goes-first"
    ),
    pytest.param(
        Observed(phase=Phase.SCHEDULED, waited=60, silence=30), Withdraw(), id="unclaimed-on-a-silent-pod-is-lost"
    ),
    pytest.param(Observed(phase=Phase.RUNNING, waited=600), Nothing(), id="a-claimed-run-has-no-claim-deadline"),
    # lost, before the fence
    pytest.param(ready(silence=29.9), Nothing(), id="two-missed-beats-are-not-lost"),
    pytest.param(ready(silence=30), Withdraw(), id="silent-pod-is-withdrawn"),
    pytest.param(ready(pod_deleting=True), Withdraw(), id="deleting-pod-is-withdrawn"),
    pytest.param(ready(pod=PodSight.MISSING), Withdraw(), id="missing-pod-is-withdrawn-before-it-is-proven-gone"),
    pytest.param(ready(reachable=False, explained="RuntimePodLost", silence=500), Nothing(), id="silence-is-no-fence"),
    pytest.param(
        ready(reachable=False, explained="RuntimePodLost", silence=500, serving=False),
        Nothing(),
        id="an-unready-silent-pod-is-no-fence",
    ),
    pytest.param(
        ready(reachable=False, explained="Draining", pod_deleting=True), Wait(FENCE_SECONDS), id="runtimed-is-draining"
    ),
    pytest.param(lost(pod=PodSight.MISSING), ProveGone(), id="the-watch-is-no-proof"),
    pytest.param(lost(**DELETING, silence=74), Wait(1), id="self-fence-not-over"),
    pytest.param(lost(**(DELETING | {"serving": True}), silence=80), Nothing(), id="still-served"),
    # the fence, and what follows
    pytest.param(lost(finalizer=True), RemoveFinalizer(), id="finalizer-before-the-phase"),
    pytest.param(lost(max_attempts=2), recovered(), id="pod-gone-is-a-fence"),
    pytest.param(
        lost(max_attempts=2, **DELETING, silence=75),
        recovered(reason=Reason.FENCED_OUT_OF_ENDPOINTS, fence=Reason.FENCED_OUT_OF_ENDPOINTS),
        id="deleting-unserved-and-silent-is-a-fence",
    ),
    pytest.param(ready(pod_ended=True), Withdraw(), id="ended-pod-is-withdrawn"),
    pytest.param(lost(pod=PodSight.PRESENT, pod_ended=True, max_attempts=2), recovered(), id="ended-pod-is-a-fence"),
    pytest.param(lost(), EXHAUSTED, id="no-attempt-left"),
    pytest.param(lost(max_attempts=9, retryable=("SourceFailed",)), EXHAUSTED, id="not-among-the-retryable-reasons"),
    pytest.param(lost(max_attempts=9, retryable=("RuntimePodLost",)), recovered(), id="among-the-retryable-reasons"),
    pytest.param(
        lost(phase=Phase.SCHEDULED, attempt=0, retryable=("SourceFailed",)),
        recovered(),
        id="never-claimed-costs-nothing",
    ),
    pytest.param(
        lost(max_attempts=9, cancel=True, lifetime_ends=NOW - 1),
        recovered(target=Phase.CANCELLED, reason=Reason.CANCELLED, release=False),
        id="cancelled-meanwhile",
    ),
    pytest.param(
        lost(max_attempts=9, lifetime_ends=NOW),
        recovered(target=Phase.TIMEOUT, reason=Reason.LIFETIME_TIMEOUT, release=False),
        id="lifetime-over-meanwhile",
    ),
    # deletion
    pytest.param(ready(deleting=True), Nothing(), id="deleting-without-finalizer-goes-by-itself"),
    pytest.param(ready(deleting=True, finalizer=True), Nothing(), id="its-runtimed-cleans-up"),
    pytest.param(
        Observed(phase=Phase.PENDING, assigned=False, deleting=True, finalizer=True),
        RemoveFinalizer(),
        id="deleting-unassigned",
    ),
    pytest.param(
        Observed(phase=Phase.FAILED, assigned=False, deleting=True, finalizer=True),
        RemoveFinalizer(),
        id="deleting-terminal-unassigned",
    ),
    pytest.param(lost(deleting=True, finalizer=True), RemoveFinalizer(), id="deleting-and-the-pod-is-gone"),
    pytest.param(
        lost(deleting=True, finalizer=True, pod=PodSight.MISSING), ProveGone(), id="deleting-and-the-pod-is-missing"
    ),
    pytest.param(
        ready(deleting=True, finalizer=True, silence=500), Nothing(), id="deleting-on-a-silent-pod-waits-for-a-fence"
    ),
    pytest.param(lost(deleting=True, finalizer=True, **DELETING, silence=75), RemoveFinalizer(), id="deleting-fenced"),
]


@pytest.mark.parametrize(("observed", "expected"), CASES)
def test_the_decision(observed: Observed, expected: Decision) -> None:
    assert decide(observed, NOW) == expected


everything = st.builds(
    Observed,
    phase=st.sampled_from(Phase),
    deleting=st.booleans(),
    finalizer=st.booleans(),
    assigned=st.booleans(),
    attempt=st.integers(0, 3),
    max_attempts=st.integers(1, 3),
    retryable=st.sampled_from([(), ("RuntimePodLost",), ("SourceFailed",)]),
    cancel=st.booleans(),
    reachable=st.booleans(),
    explained=st.sampled_from(["", "RuntimePodLost", "Draining", "FunctionRegistered"]),
    lifetime_ends=st.sampled_from([None, NOW - 1, NOW + 1]),
    pod=st.sampled_from(PodSight),
    pod_deleting=st.booleans(),
    pod_ended=st.booleans(),
    serving=st.booleans(),
    silence=st.sampled_from([0.0, 29.0, 30.0, 74.0, 75.0, 1e6]),
    waited=st.sampled_from([0.0, 29.0, CLAIM_SECONDS, 1e6]),
)


@given(everything)
def test_every_move_is_in_the_table(observed: Observed) -> None:
    decision = decide(observed, NOW)
    if isinstance(decision, Move):
        check(observed.phase, decision.target, Writer.OPERATOR)
        assert decision.release == (decision.target is Phase.PENDING)


@given(everything)
def test_nothing_is_reassigned_before_a_fence(observed: Observed) -> None:
    decision = decide(observed, NOW)
    if not isinstance(decision, Move):
        return
    assert not observed.finalizer
    assert not observed.reachable or observed.phase is Phase.SCHEDULED
    if decision.fence is None:
        assert observed.phase is Phase.SCHEDULED
        assert observed.pod is PodSight.PRESENT
        assert observed.silence < 30
    elif decision.fence is Reason.FENCED_OUT_OF_ENDPOINTS:
        assert observed.pod_deleting
        assert not observed.serving
        assert observed.silence >= FENCE_SECONDS
    else:
        assert observed.pod is PodSight.GONE or observed.pod_ended


@given(everything)
def test_terminal_stays_terminal_and_a_finalizer_falls_only_where_nothing_can_serve(observed: Observed) -> None:
    decision = decide(observed, NOW)
    if observed.phase not in ASSIGNED:
        assert isinstance(decision, Nothing | ProveGone | RemoveFinalizer | Wait)
    if isinstance(decision, RemoveFinalizer):
        over = observed.pod is PodSight.GONE or observed.pod_ended
        fenced = over or (observed.pod_deleting and observed.silence >= FENCE_SECONDS)
        assert not observed.assigned or fenced or observed.phase is Phase.SCHEDULED


@given(everything)
def test_no_wait_is_over_before_it_begins(observed: Observed) -> None:
    decision = decide(observed, NOW)
    assert not isinstance(decision, Wait) or decision.seconds > 0
