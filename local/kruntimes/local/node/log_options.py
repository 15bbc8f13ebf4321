"""What `kubectl logs` asks of a log, and what it gets of it. Pure: query and bytes in, bytes out (design §10).

The options are those of `PodLogOptions`; times are nanoseconds since 1970, as they stand beside the log.
"""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass

NANOS = 1_000_000_000


class BadOptions(ValueError):
    """The message is a sentence; status: 400 where an option cannot be read, 422 where it makes no sense."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """tail: lines from the end, None for all. since: lines before it are left out. limit: bytes, None for all."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: int = 0
    limit: int | None = None


def parse(query: Mapping[str, str], *, now: float) -> LogOptions:
    """Reads the query as kubelet does; now: seconds since 1970. Raises BadOptions."""
    if "sinceTime" in query and "sinceSeconds" in query:
        raise BadOptions("at most one of `sinceTime` or `sinceSeconds` may be specified", status=422)
    seconds = _number(query, "sinceSeconds", least=1)
    since = 0 if seconds is None else max(0, int((now - seconds) * NANOS))
    if "sinceTime" in query:
        since = _moment(query["sinceTime"])
    return LogOptions(
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        timestamps=_flag(query, "timestamps"),
        tail=_number(query, "tailLines", least=0),
        since=since,
        limit=_number(query, "limitBytes", least=1),
    )


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "false").lower() not in ("false", "0")


def _number(query: Mapping[str, str], name: str, *, least: int) -> int | None:
    if name not in query:
        return None
    try:
        number = int(query[name])
    except ValueError:
        raise BadOptions(f"{name}: not a whole number", status=400) from None
    if number < least:
        raise BadOptions(f"{name}: Invalid value: {number}: must be greater than or equal to {least}", status=422)
    return number


def _moment(text: str) -> int:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadOptions("sinceTime: not a time as RFC 3339 writes it", status=400)
    passed = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return ((passed.days * 86400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1000


def stamp(when: int) -> str:
    """A time as kubelet writes it before a line: RFC 3339 with nine digits."""
    second = datetime.datetime.fromtimestamp(when // NANOS, datetime.UTC)
    return f"{second:%Y-%m-%dT%H:%M:%S}.{when % NANOS:09d}Z"


class Lines:
    """What of a log is sent, piece by piece. Give it one file from the beginning of a line on."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._left = options.limit
        self._fresh, self._kept = True, True

    @property
    def full(self) -> bool:
        """Whether as many bytes were sent as were asked for."""
        return self._left == 0

    def take(self, data: bytes, *, at: int, written: Callable[[int], int]) -> bytes:
        """What is sent of *data*, which stands at *at* in its file. written: when the byte at an offset was."""
        if self._options.timestamps or self._options.since:
            data = b"".join(self._some(data, at, written))
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        return data

    def _some(self, data: bytes, at: int, written: Callable[[int], int]) -> list[bytes]:
        found: list[bytes] = []
        begin = 0
        while begin < len(data):
            end = data.find(b"\n", begin) + 1 or len(data)
            if self._fresh:
                when = written(at + begin)
                self._kept = when >= self._options.since
                if self._kept and self._options.timestamps:
                    found.append(f"{stamp(when)} ".encode())
            if self._kept:
                found.append(data[begin:end])
            self._fresh = data[end - 1] == 0x0A
            begin = end
        return found
