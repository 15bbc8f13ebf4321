"""Standard input and output as a manager's caller: a reader and a writer on threads of their own.

Threads, because descriptors may be pipes, files or terminals, and because making them non-blocking would do so for
every process that shares them. Reading stops while too much waits (second source document, "queue full"), and
while the other side does not take what is written.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable

READ_BYTES = 64 * 1024
"""What a pipe holds."""
UNWRITTEN_BYTES = 64 * 1024 * 1024
"""Answers that the caller has not taken; above it none of its calls is read, so that they cannot pile up for ever."""


class Reader:
    """Reads a descriptor; what it read goes to *arrived* on the loop, one chunk at a time, b"" at its end.

    The next chunk is read once `more` was called.
    """

    def __init__(self, fd: int, arrived: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._arrived = arrived
        self._loop = asyncio.get_running_loop()
        self._go = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()
        self.more()

    def more(self) -> None:
        """Asks for the next chunk."""
        self._go.release()

    def _run(self) -> None:
        data = b"-"
        while data:
            self._go.acquire()
            try:
                data = os.read(self._fd, READ_BYTES)
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._arrived, data)
            except RuntimeError:
                return  # the loop has ended


class Writer:
    """Writes whole frames to a descriptor, in order. on_change: told on the loop when `full` or `broken` may differ.

    A frame that could be written only in part makes the stream worthless: nothing more is written then.
    """

    def __init__(self, fd: int, on_change: Callable[[], None]) -> None:
        self._fd = fd
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._frames: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self.unwritten = 0
        self.broken = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether the caller takes less than it asks for."""
        return self.unwritten > UNWRITTEN_BYTES

    def write(self, frame: bytes) -> None:
        """Queues *frame*; dropped once the other side has gone."""
        with self._changed:
            if not self.broken and not self._closing:
                self._frames.append(frame)
                self.unwritten += len(frame)
                self._changed.notify()

    def close(self, seconds: float) -> bool:
        """Writes what is queued, for at most *seconds*; whether all of it was taken. Blocks."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive() and not self.broken

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._frames and not self._closing:
                    self._changed.wait()
                if not self._frames:
                    return
                frame = self._frames.popleft()
            try:
                view = memoryview(frame)
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError:
                self._broke()
                return
            with self._changed:
                was_full = self.full
                self.unwritten -= len(frame)
                tell = was_full and not self.full
            if tell:
                self._tell()

    def _broke(self) -> None:
        with self._changed:
            self.broken = True
            self._frames.clear()
            self.unwritten = 0
        self._tell()

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._on_change)
        except RuntimeError:
            return  # the loop has ended
