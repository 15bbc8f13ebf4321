"""Bytes that arrived and were not yet understood.

Each byte is searched for a line end once, however the input is cut, so reading stays linear.
"""

_COMPACT_BYTES = 64 * 1024
"""Consumed bytes are given back once they are this many: often enough to stay small, rarely enough to be cheap."""


class Inbox:
    """A growing buffer with a reading position. It holds what was pushed and not taken; the decoder bounds that."""

    __slots__ = ("_at", "_data", "_searched")

    def __init__(self) -> None:
        self._data: bytes | bytearray = b""
        self._at = 0
        self._searched = 0

    def __len__(self) -> int:
        return len(self._data) - self._at

    def push(self, data: bytes) -> None:
        """Appends *data*; where nothing is left of what came before, it is not copied."""
        if self._at == len(self._data):
            self._data = data
            self._at = self._searched = 0
            return
        if not isinstance(self._data, bytearray):
            self._data = bytearray(memoryview(self._data)[self._at :])
            self._searched = max(0, self._searched - self._at)
            self._at = 0
        elif self._at > _COMPACT_BYTES:
            del self._data[: self._at]
            self._searched -= self._at
            self._at = 0
        self._data += data

    def line(self) -> bytes | None:
        """Takes the next line without its line feed, or None where none is complete."""
        end = self._data.find(b"\n", max(self._searched, self._at))
        if end < 0:
            self._searched = len(self._data)
            return None
        line = self._slice(end)
        self._at = self._searched = end + 1
        return line

    def take(self, count: int) -> bytes | None:
        """Takes exactly *count* bytes, or None where fewer are there."""
        if len(self._data) - self._at < count:
            return None
        taken = self._slice(self._at + count)
        self._at += count
        return taken

    def some(self, most: int) -> bytes:
        """Takes what is there, at most *most* bytes."""
        count = min(most, len(self))
        taken = self._slice(self._at + count)
        self._at += count
        return taken

    def _slice(self, end: int) -> bytes:
        """Up to *end*; of a bytearray through a view, so that it is copied once."""
        data = self._data
        return data[self._at : end] if type(data) is bytes else bytes(memoryview(data)[self._at : end])
