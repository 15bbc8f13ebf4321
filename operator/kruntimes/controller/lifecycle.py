"""The operator's rows of the Run lifecycle: claim deadline, lost Pods, fences, finalizers, retention.

One frozen `Observed`, one `decide`, one `Decision`; the first match wins and the order is the priority. Each
effect may be repeated safely, and none is written that the transition table does not hold.

Source: design §5, the rows of writer "operator", "Lost", "Fences" and "Self-fence"; first source document,
"Ownership Epoch and Fencing" and "Cleanup and Finalization".
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from kruntimes.common.api.phases import ASSIGNED, Phase
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.retry import may_retry

CLAIM_SECONDS = 30.0
"""A Run that a live runtimed has not claimed by then goes back: nothing was registered, for a claim comes first."""
LOST_SECONDS = 30.0
"""Three missed renewals of a heartbeat: no new Runs, and what is ready there is taken out of reach."""
FENCE_SECONDS = 75.0
"""A runtimed that cannot renew stops itself after 60 s and has its hosts killed within 10 s; 5 s are for skew."""

DECISIONS_TOTAL = "kruntimes_operator_lifecycle_decisions_total"
"""Counts decisions that were carried out, by decision and reason."""


class PodSight(Enum):
    """What is known of the assigned Pod, which is one UID and never a name.

    MISSING: the watch does not show it, which may be the watch's own lag. GONE: the API server has said so.
    """

    PRESENT = "present"
    MISSING = "missing"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that a decision about one Run depends on.

    phase, deleting, finalizer, assigned, attempt, max_attempts, retryable, cancel, reachable, explained: of the
    Run; reachable is condition Ready=True, explained its reason. lifetime_ends, retention_ends (of a Run that has
    ended and is not to be kept): seconds since the epoch.
    pod, pod_deleting, pod_ended, serving: of the Pod with the assigned UID; ended: its node said that all of its
    containers have stopped for good (evicted, or shut down with the node); serving: an EndpointSlice still serves it.
    silence: seconds for which its heartbeat was not seen to change while its watch was healthy.
    waited: seconds for which this assignment was seen unclaimed. Both on the operator's own monotonic clock.
    """

    phase: Phase
    deleting: bool = False
    finalizer: bool = False
    assigned: bool = True
    attempt: int = 1
    max_attempts: int = 1
    retryable: Collection[str] = ()
    cancel: bool = False
    reachable: bool = False
    explained: str = ""
    lifetime_ends: float | None = None
    retention_ends: float | None = None
    pod: PodSight = PodSight.PRESENT
    pod_deleting: bool = False
    pod_ended: bool = False
    serving: bool = True
    silence: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Nothing:
    """It is someone else's turn; a watch brings us back."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing yet; look again after that many seconds (above 0)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ProveGone:
    """Ask the API server whether the assigned UID still exists, then decide again."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Ready=False/RuntimePodLost in the same phase: routes go, the assignment stays until a fence is proved."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Nothing that the finalizer guards can still be serving."""


@dataclass(frozen=True, slots=True)
class Collect:
    """Delete the Run: it has ended, and ttlSecondsAfterFinished is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One write of phase and reason; *release* clears the assignment (a terminal Run keeps it, as its history).

    fence: what proved that the old registration cannot serve, None where none was ever made.
    """

    target: Phase
    reason: Reason
    fence: Reason | None
    release: bool


Decision = Nothing | Wait | ProveGone | Withdraw | RemoveFinalizer | Collect | Move


def decide(observed: Observed, now: float) -> Decision:
    """What the operator does about one Run; *now* is seconds since the epoch."""
    if observed.deleting:
        return _decide_deleting(observed)
    if observed.retention_ends is not None:
        return Collect() if observed.retention_ends <= now else Wait(observed.retention_ends - now)
    if observed.phase not in ASSIGNED or not observed.assigned:
        return Nothing()
    if _lost(observed):
        return _decide_lost(observed, now)
    if observed.phase is Phase.SCHEDULED:
        return _decide_unclaimed(observed)
    return Nothing()


def _decide_deleting(observed: Observed) -> Decision:
    if not observed.finalizer:
        return Nothing()
    if not observed.assigned:
        return RemoveFinalizer()
    if not _lost(observed):
        return Nothing()
    if observed.pod is PodSight.MISSING:
        return ProveGone()
    if _fence(observed) is not None:
        return RemoveFinalizer()
    return _until_fence(observed)


def _decide_lost(observed: Observed, now: float) -> Decision:
    if observed.reachable:
        return Withdraw()
    if observed.pod is PodSight.MISSING:
        return ProveGone()
    fence = _fence(observed)
    if fence is None:
        explained = observed.pod_deleting or observed.explained == Reason.RUNTIME_POD_LOST
        return _until_fence(observed) if explained else Withdraw()
    if observed.finalizer:
        return RemoveFinalizer()
    return _after_fence(observed, fence, now)


def _decide_unclaimed(observed: Observed) -> Decision:
    if observed.waited < CLAIM_SECONDS:
        return Wait(CLAIM_SECONDS - observed.waited)
    if observed.finalizer:
        return RemoveFinalizer()
    return Move(target=Phase.PENDING, reason=Reason.UNSCHEDULED, fence=None, release=True)


def _after_fence(observed: Observed, fence: Reason, now: float) -> Move:
    """A cancel or a time-out that came meanwhile ends the Run; an attempt counts only once it was claimed."""
    if observed.cancel:
        return Move(target=Phase.CANCELLED, reason=Reason.CANCELLED, fence=fence, release=False)
    if observed.lifetime_ends is not None and observed.lifetime_ends <= now:
        return Move(target=Phase.TIMEOUT, reason=Reason.LIFETIME_TIMEOUT, fence=fence, release=False)
    unclaimed = observed.phase is Phase.SCHEDULED
    if unclaimed or may_retry(
        attempt=observed.attempt,
        max_attempts=observed.max_attempts,
        reason=Reason.RUNTIME_POD_LOST,
        retryable=observed.retryable,
    ):
        return Move(target=Phase.PENDING, reason=fence, fence=fence, release=True)
    return Move(target=Phase.FAILED, reason=Reason.RETRIES_EXHAUSTED, fence=fence, release=False)


def _lost(observed: Observed) -> bool:
    going = observed.pod_deleting or observed.pod_ended
    return observed.pod is not PodSight.PRESENT or going or observed.silence >= LOST_SECONDS


def _fence(observed: Observed) -> Reason | None:
    """The proof that the old assignment cannot serve any more.

    A Pod whose containers have all ended is as good as gone: kubelet reports phase Failed or Succeeded only once
    nothing of it runs, nothing starts it again, and the object may stay for days. A stale heartbeat or an unready
    Pod alone proves nothing. The third fence, runtimed's own word, is the write with which runtimed releases the
    Run, so it never comes here.
    """
    if observed.pod is PodSight.GONE or (observed.pod is PodSight.PRESENT and observed.pod_ended):
        return Reason.FENCED_POD_GONE
    if (
        observed.pod is PodSight.PRESENT
        and observed.pod_deleting
        and not observed.serving
        and observed.silence >= FENCE_SECONDS
    ):
        return Reason.FENCED_OUT_OF_ENDPOINTS
    return None


def _until_fence(observed: Observed) -> Decision:
    """Only a deleting Pod can be fenced by time; every other step towards a fence is an event of a watch."""
    if observed.pod_deleting and observed.silence < FENCE_SECONDS:
        return Wait(FENCE_SECONDS - observed.silence)
    return Nothing()
