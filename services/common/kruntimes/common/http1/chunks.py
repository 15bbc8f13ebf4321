"""The body of a request that comes in chunks (RFC 9112, section 7.1), read strictly. Pure.

Where a sender's idea of a chunk's end may differ from ours, the request is refused: what one of two readers takes for
body, the other takes for the next request.
"""

import re
from enum import Enum, auto

MAX_SIZE_LINE_BYTES = 256
"""A size has at most eight digits; the rest of the line is extensions, which nobody uses and everybody ignores."""
MAX_TRAILER_BYTES = 8 * 1024
"""Trailer fields are read over and dropped."""

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[\t -~\x80-\xff]*)?")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*")


class BadChunk(ValueError):
    """The bytes are not chunks."""


class TooLarge(Exception):
    """The chunks hold more than allowed."""


class _State(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()


class Chunks:
    """Takes chunks from the front of a buffer. limit: bytes that the body may have."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._state = _State.SIZE
        self._left = 0
        self._trailer = 0
        self._body = bytearray()

    def take(self, buffer: bytearray) -> bytes | None:
        """The whole body once its end is there, None before; what it has read is removed from *buffer*.

        Raises BadChunk and TooLarge.
        """
        while True:
            if self._state is _State.SIZE:
                line = _line(buffer, MAX_SIZE_LINE_BYTES)
                if line is None:
                    return None
                self._size(line)
            elif self._state is _State.DATA:
                piece = buffer[: self._left]
                if not piece:
                    return None
                self._body += piece
                self._left -= len(piece)
                del buffer[: len(piece)]
                if self._left == 0:
                    self._state = _State.DATA_END
            elif self._state is _State.DATA_END:
                if len(buffer) < 2 and b"\r\n".startswith(buffer):
                    return None
                if not buffer.startswith(b"\r\n"):
                    raise BadChunk("a chunk does not end where its size says")
                del buffer[:2]
                self._state = _State.SIZE
            else:
                line = _line(buffer, MAX_TRAILER_BYTES - self._trailer)
                if line is None:
                    return None
                if not line:
                    return bytes(self._body)
                self._field(line)

    def _size(self, line: bytes) -> None:
        match = _SIZE.fullmatch(line)
        if match is None:
            raise BadChunk("a chunk's size is not a hexadecimal number")
        self._left = int(match[1], 16)
        if len(self._body) + self._left > self._limit:
            raise TooLarge
        self._state = _State.DATA if self._left else _State.TRAILER

    def _field(self, line: bytes) -> None:
        self._trailer += len(line) + 2
        if self._trailer > MAX_TRAILER_BYTES or _FIELD.fullmatch(line) is None:
            raise BadChunk("what follows the chunks is no trailer")


def _line(buffer: bytearray, limit: int) -> bytes | None:
    """The first line, without its end, taken from *buffer*; None where it has not come whole."""
    end = buffer.find(b"\r\n", 0, limit + 2)
    if end < 0:
        if len(buffer) >= limit + 2:
            raise BadChunk("a line between chunks is too long")
        return None
    line = bytes(buffer[:end])
    del buffer[: end + 2]
    return line
