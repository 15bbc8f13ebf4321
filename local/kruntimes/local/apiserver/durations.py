"""Durations as text, in Go's spelling: `1h30m`, `1.5s`, `-20ms`. Pure.

Counted in nanoseconds in 64 bits, as the API server does: some 292 years either way.
"""

import re

NANOSECOND = 1
UNITS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}  # fmt: skip
LIMIT = 1 << 63
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(r"[+-]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")


class BadDuration(ValueError):
    """The text is no duration, or one that does not fit."""


def parse_duration(text: str) -> int:
    """Nanoseconds. Raises BadDuration."""
    if not _WHOLE.fullmatch(text):
        raise BadDuration(text)
    total = 0
    for whole, fraction, unit in _PART.findall(text):
        scale = UNITS[unit]
        total += int(whole or "0") * scale
        if fraction:
            total += int(fraction) * scale // 10 ** len(fraction)
    total = -total if text.startswith("-") else total
    if not -LIMIT <= total < LIMIT:
        raise BadDuration(text)
    return total


def duration_text(nanoseconds: int) -> str:
    """The duration as CEL's string() writes it: seconds with a fraction."""
    sign = "-" if nanoseconds < 0 else ""
    seconds, rest = divmod(abs(nanoseconds), UNITS["s"])
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{sign}{seconds}{fraction}s"
