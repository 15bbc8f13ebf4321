"""What a function prints: a bounded tail, and a bounded stream of lines for the Runtime Server's own log.

Pure: bytes and `now` in, text out. A flood costs what these bounds say and no more.
"""

from dataclasses import dataclass

TAIL_BYTES = 64 * 1024
"""Kept per invocation: enough for a traceback and what led to it."""
LINE_BYTES = 4 * 1024
"""The longest forwarded line; what follows in the same line is cut off, with a marker."""
LINES_PER_SECOND = 50.0
BURST_LINES = 200.0
"""A function that prints more has the rest counted, not forwarded: one function must not drown the others' logs."""
CUT = " […]"
_RETURN = ord("\r")


class LogTail:
    """The last TAIL_BYTES of what was fed since the last `clear`."""

    def __init__(self, size: int = TAIL_BYTES) -> None:
        self._size = size
        self._kept = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        """Appends *data*, dropping the oldest bytes over the size."""
        if len(data) >= self._size:
            self._dropped += len(self._kept) + len(data) - self._size
            self._kept[:] = data[-self._size :]
            return
        self._kept += data
        if (over := len(self._kept) - self._size) > 0:
            self._dropped += over
            del self._kept[:over]

    def clear(self) -> None:
        """Forgets everything."""
        self._kept.clear()
        self._dropped = 0

    def text(self) -> str:
        """The tail as text, with a first line that says how much is missing; bytes that are not UTF-8 are replaced."""
        tail = self._kept.decode("utf-8", "replace")
        return f"[{self._dropped} bytes before this are not kept]\n{tail}" if self._dropped else tail


@dataclass(frozen=True, slots=True)
class Lines:
    """lines: to forward. suppressed: how many were not, told once the stream may flow again."""

    lines: tuple[str, ...]
    suppressed: int


class LineForwarder:
    """Cuts a stream into lines at a bounded rate.

    A carriage return begins the line anew, as on a terminal: of `1%\\r2%\\r3%\\n` the line `3%` is forwarded.
    """

    def __init__(self, now: float) -> None:
        self._line = bytearray()
        self._cut = self._returned = False
        self._tokens = BURST_LINES
        self._at = now
        self._suppressed = 0

    def feed(self, data: bytes, now: float) -> Lines:
        """Takes *data* at *now* (seconds, monotonic) and gives the lines that it completes."""
        self._tokens = min(BURST_LINES, self._tokens + (now - self._at) * LINES_PER_SECOND)
        self._at = now
        suppressed = 0
        if self._suppressed and self._tokens >= 1:
            suppressed, self._suppressed = self._suppressed, 0
        lines: list[str] = []
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            if self._tokens < 1:
                self._suppressed += data.count(b"\n", at)
                at = data.rfind(b"\n") + 1
                self._begin()
                break
            self._tokens -= 1
            self._add(data, at, end)
            lines.append(self._take())
            at = end + 1
        self._add(data, at, len(data))
        return Lines(tuple(lines), suppressed)

    def flush(self) -> Lines:
        """What is left at the end of the stream."""
        suppressed, self._suppressed = self._suppressed, 0
        return Lines((self._take(),) if self._line else (), suppressed)

    def _begin(self) -> None:
        self._line.clear()
        self._cut = self._returned = False

    def _add(self, data: bytes, at: int, end: int) -> None:
        """Appends data[at:end], which holds no line feed. A return at its very end waits for what follows."""
        if at == end:
            return
        if self._returned:
            self._begin()
        returned = data[end - 1] == _RETURN
        end -= returned
        if (restart := data.rfind(b"\r", at, end)) >= 0:
            self._begin()
            at = restart + 1
        room = LINE_BYTES - len(self._line)
        self._line += data[at : min(end, at + room)]
        self._cut = self._cut or end - at > room
        self._returned = returned

    def _take(self) -> str:
        text = self._line.decode("utf-8", "replace") + (CUT if self._cut else "")
        self._begin()
        return text
