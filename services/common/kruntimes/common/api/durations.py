"""Durations as Kubernetes writes them: `30s`, `5m`, `1h30m`, `250ms` (Go's time.ParseDuration)."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")


def seconds(text: str) -> float:
    """Returns the seconds that *text* means; raises ValueError for anything that Go would refuse, or below zero."""
    if text == "0":
        return 0.0
    total, at = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != at:
            break
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if at == 0 or at != len(text):
        raise ValueError(f"not a duration: {text[:40]!r}")
    return total
