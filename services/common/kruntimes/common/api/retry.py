"""The shared retry decision: attempts, retryable reasons, back-off (design §4 and §5; first source document)."""

from collections.abc import Collection

from kruntimes.common.api.reasons import Reason

BACKOFF_CAP_SECONDS = 60.0
"""The back-off doubles with each attempt and never passes this."""

_NEVER = frozenset({Reason.CANCELLED, Reason.LIFETIME_TIMEOUT, Reason.IDLE_TIMEOUT})


def may_retry(*, attempt: int, max_attempts: int, reason: Reason, retryable: Collection[str]) -> bool:
    """Whether a Run whose *attempt* (one-based, already counted) failed for *reason* gets another.

    An empty *retryable* means every reason but a cancellation or a time-out, which end a Run by design.
    A Run that was never claimed (attempt 0) has used none of its attempts.
    """
    if reason in _NEVER or attempt >= max_attempts:
        return False
    return not retryable or reason in retryable


def backoff_seconds(*, attempt: int, base: float) -> float:
    """How long the Run waits before it may be scheduled again after its *attempt* failed.

    The first failure waits *base*, each later one twice as long, capped at 60 s; base 0 does not wait.
    """
    if base <= 0:
        return 0.0
    return min(BACKOFF_CAP_SECONDS, base * 2.0 ** min(max(attempt, 1) - 1, 32))
