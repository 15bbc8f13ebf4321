"""Who may lead, decided from what was seen of a Lease. Pure: times are seconds of the caller's own monotonic clock.

No clocks are compared between machines: a candidate counts a Lease's duration from the moment at which *it* saw the
record change, which is never before the holder sent that change; the holder counts from before it sent.
"""

from dataclasses import dataclass

from kruntimes.common.api.views import LeaseSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds. After *renew_deadline* without a renewal the leader stops, and has *stop_grace* to do so; both
    together end before *duration*, after which another may lead. *retry* lies between two tries."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    stop_grace: float = 4.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew_deadline or self.renew_deadline + self.stop_grace >= self.duration:
            raise ValueError("a leader must have stopped before its lease can be taken over")


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease's record, and when this process first saw it so."""

    record: LeaseSpec
    at: float


def observe(seen: Seen | None, record: LeaseSpec, *, now: float) -> Seen:
    """Keeps the time of the first sight while the record is unchanged."""
    return seen if seen is not None and seen.record == record else Seen(record, now)


def may_take(seen: Seen, *, identity: str, now: float, timing: Timing) -> bool:
    """Whether *identity* may write itself into the Lease: nobody holds it, it does itself, or its time has passed."""
    holder = seen.record.holder_identity
    if holder in ("", identity):
        return True
    return now - seen.at > max(seen.record.lease_duration_seconds, timing.duration)
