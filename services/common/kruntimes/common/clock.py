"""The only module that reads a clock. Everything that decides takes `now` as an argument."""

import time
from datetime import UTC, datetime


def monotonic() -> float:
    """Seconds on a clock that never jumps; for durations and deadlines within this process."""
    return time.monotonic()


def wall() -> float:
    """Seconds since the epoch; for what other machines or people will read."""
    return time.time()


def utcnow() -> datetime:
    """The present moment with its zone."""
    return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """Kubernetes' metav1.Time: whole seconds, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """Kubernetes' metav1.MicroTime, which Leases use."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime:
    """Reads an RFC 3339 time; raises ValueError."""
    return datetime.fromisoformat(text)
