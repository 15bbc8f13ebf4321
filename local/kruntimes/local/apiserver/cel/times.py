"""Durations and points in time, to the nanosecond. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})"
)
FIRST, LAST = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND
"""The years 1 to 9999."""


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time, in nanoseconds."""

    ns: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time, in nanoseconds from 1970."""

    ns: int

    def at(self, zone: str) -> datetime:
        """The calendar in *zone*: a name, an offset such as `-07:00`, or empty for UTC. Raises ValueError."""
        return (_EPOCH + timedelta(microseconds=self.ns // 1000)).astimezone(_zone(zone))


def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    offset = re.fullmatch(r"([+-]?)([0-9]{1,2}):([0-9]{2})", name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as bad:
        raise ValueError(f"unknown time zone {name}") from bad


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339. Raises ValueError."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(text)
    *parts, fraction, zone = match.groups()
    year, month, day, hour, minute, second = map(int, parts)
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    ns = int((moment - _EPOCH).total_seconds()) * SECOND + int((fraction or "").ljust(9, "0"))
    if zone != "Z":
        sign = -1 if zone[0] == "-" else 1
        ns -= sign * (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60) * SECOND
    return checked(ns)


def checked(ns: int) -> Timestamp:
    """The point in time, if it is in the years 1 to 9999. Raises ValueError."""
    if not FIRST <= ns < LAST:
        raise ValueError("timestamp overflow")
    return Timestamp(ns)


def timestamp_text(moment: Timestamp) -> str:
    """RFC 3339 in UTC, with as many digits of the fraction as it has."""
    seconds, rest = divmod(moment.ns, SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    text = text.rjust(len("2006-01-02T15:04:05"), "0")
    return f"{text}.{rest:09d}".rstrip("0") + "Z" if rest else f"{text}Z"
