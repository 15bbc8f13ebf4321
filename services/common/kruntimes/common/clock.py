"""The only module that reads a clock. Everything that decides takes `now` as an argument."""

import time
from datetime import UTC, datetime

from kruntimes.common.api.times import parse, rfc3339, rfc3339_micro

__all__ = ["monotonic", "parse", "rfc3339", "rfc3339_micro", "utcnow", "wall"]


def monotonic() -> float:
    """Seconds on a clock that never jumps; for durations and deadlines within this process."""
    return time.monotonic()


def wall() -> float:
    """Seconds since the epoch; for what other machines or people will read."""
    return time.time()  # noqa: TID251 (the one place)


def utcnow() -> datetime:
    """The present moment with its zone."""
    return datetime.now(UTC)  # noqa: TID251 (the one place)
