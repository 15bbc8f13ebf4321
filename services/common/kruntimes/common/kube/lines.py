"""Splits a stream of bytes into lines, with a bound. Pure.

`StreamReader.readline` has a limit of its own, beyond which it raises and then hands over the rest of the line as
if it were a new one; a watch event carries a source of up to 256 KiB, escaped, so lines of megabytes are normal.
"""

MAX_LINE_BYTES = 16 * 1024 * 1024
"""etcd keeps objects of up to 1.5 MiB; escaped anew and wrapped in an event they stay far below this."""


class LineTooLong(Exception):
    """More bytes than the bound without a line end."""


class Lines:
    """Collects pieces and gives back whole lines, without their ends. What is left over at the end is dropped."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Returns the lines that *piece* completes; empty lines are left out. Raises LineTooLong."""
        head, *rest = piece.split(b"\n")
        if not rest:
            self._hold(head)
            return []
        self._hold(head)
        lines = [b"".join(self._parts), *rest[:-1]]
        self._parts, self._held = [], 0
        self._hold(rest[-1])
        return [line for line in lines if line.strip()]

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._held += len(piece)
        if self._held > self._limit:
            raise LineTooLong(f"a line of more than {self._limit} bytes")
        self._parts.append(piece)
