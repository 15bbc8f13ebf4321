"""Log lines of a Runtime Pod: whose they are, and how a person reads them. Pure: text in, text out (design §9, §12)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

OUTPUT, ENDED = frozenset(("function log", "task log")), "invocation ended"
"""The messages of a line that user code printed, and of the one that tells an invocation's outcome."""
ACCEPTED = 202
"""The status of a request that cancels an invocation, whose id it carries."""
TWICE = frozenset((ENDED, "function ready", "function unregistered"))
ID_WIDTH = 8
"""Of an invocation's id beside each line; the line with the outcome has all of it."""
KNOWN = frozenset(
    ("time", "level", "component", "logger", "message", "runtime", "run_uid", "invocation_id", "attempt", "traceback")
)


@dataclass(frozen=True, slots=True)
class Line:
    """One JSON line of a service's log. raw: as it stood there."""

    fields: Mapping[str, Any]
    raw: str

    @property
    def time(self) -> str:
        """When, as it is written; such texts sort by time."""
        return str(self.fields.get("time", ""))


def read(raw: str) -> Line | None:
    """Reads a line; None for what is no JSON object of ours."""
    if not raw.startswith("{"):
        return None
    try:
        fields = json.loads(raw)
    except ValueError:
        return None
    return Line(fields, raw) if isinstance(fields, dict) and "message" in fields else None


def wanted(line: Line, *, uid: str, invocation: str | None) -> bool:
    """Whether *line* belongs to the Run with *uid* and, where one is named, to that invocation of it.

    The Runtime Server tells of registrations and failed invocations as runtimed does: of such pairs one is shown.
    """
    fields = line.fields
    if fields.get("run_uid") != uid or (invocation is not None and fields.get("invocation_id") != invocation):
        return False
    return fields["message"] in OUTPUT or fields.get("component") != "runtime" or fields["message"] not in TWICE


def text(line: Line, *, zone: tzinfo | None) -> str:
    """*line* for a person: time of day, invocation, and what the function printed or what became of it."""
    fields = line.fields
    invocation = str(fields.get("invocation_id") or "")
    if fields["message"] in OUTPUT:
        said = str(fields.get("line", ""))
    elif fields["message"] == ENDED and fields.get("status") == ACCEPTED:
        said = "-- cancellation asked for"
    elif fields["message"] == ENDED:
        said = f"-- {fields.get('outcome')}, status {fields.get('status')}, {fields.get('ms')} ms"
        said += f", invocation {invocation}" if len(invocation) > ID_WIDTH else ""
    else:
        more = " ".join(f"{key}={value}" for key, value in fields.items() if key not in KNOWN)
        said = f"-- {fields['message']}" + (f" ({more})" if more else "")
        if fields.get("traceback"):
            said += f"\n{str(fields['traceback']).rstrip()}"
    return f"{_clock(line.time, zone)}  {invocation[:ID_WIDTH]:<{ID_WIDTH}}  {said}".rstrip()


def _clock(time: str, zone: tzinfo | None) -> str:
    try:
        return datetime.fromisoformat(time).astimezone(zone).strftime("%H:%M:%S.%f")[:-3]
    except ValueError:
        return time
