"""Ages and durations as kubectl writes them. Pure."""

from datetime import datetime

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def age(created: str, now: datetime, *, seconds: int | None = None) -> str:
    """How long ago *created* was: `45s`, `3m10s`, `5h`, `12d`, `2y40d`; or *seconds* as such a duration."""
    if seconds is None:
        try:
            seconds = int((now - datetime.fromisoformat(created)).total_seconds())
        except (TypeError, ValueError):
            return "<unknown>"
    if seconds < 0:
        return "0s"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds, _MINUTE, "m", 1, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two(seconds, _HOUR, "h", _MINUTE, "m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _two(seconds, _DAY, "d", _HOUR, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _two(seconds, _YEAR, "y", _DAY, "d")
    return f"{seconds // _YEAR}y"


def _two(seconds: int, unit: int, name: str, lesser: int, lesser_name: str) -> str:
    """Two units, the lesser one only where there is something of it."""
    rest = seconds % unit // lesser
    return f"{seconds // unit}{name}" + (f"{rest}{lesser_name}" if rest else "")
