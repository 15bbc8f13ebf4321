"""Durations as Kubernetes writes them: `30s`, `5m`, `1h30m`, `250ms` (Go's time.ParseDuration)."""

import re
from fractions import Fraction

_NANOS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MAX_NANOS = 2**63 - 1
"""Go counts nanoseconds in an int64: a little over 292 years."""


def seconds(text: str) -> float:
    """Returns the seconds that *text* means.

    Raises ValueError for anything that Go would refuse, and for what is below zero: nothing in this API
    lasts a negative time. Fractions of a nanosecond are cut off, as Go does.
    """
    body = text.removeprefix("+")
    if body == "0":
        return 0.0
    nanos, at = 0, 0
    for part in _PART.finditer(body):
        if part.start() != at:
            break
        nanos += int(Fraction(_padded(part[1])) * _NANOS[part[2]])
        at = part.end()
    if at == 0 or at != len(body) or nanos > _MAX_NANOS:
        raise ValueError(f"not a duration: {text[:40]!r}")
    return nanos / 1e9


def _padded(number: str) -> str:
    """Go takes `1.` and `.5`; Fraction wants a digit on both sides."""
    return f"0{number}0" if "." in number else number
