"""The last activity of each function, kept beside the sockets so that it outlives this process (design §5).

A Runtime Server that was killed is started again in the same Pod, and its functions are registered anew under the
same attempt; their idle clocks go on. Written once a second at most, and never while a call waits for it.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

from kruntimes.runtime.registry import MAX_FUNCTIONS, Wanted

log = logging.getLogger(__name__)

FILE = "activity.json"
INTERVAL_SECONDS = 1.0
"""An idle limit counts whole seconds, so nobody can tell a clock that is this much behind."""
MAX_BYTES = 1024 * 1024
"""Above what MAX_FUNCTIONS entries can have; a file that is larger is not ours."""


def key_of(wanted: Wanted) -> str:
    """What makes a registration the same one after a restart."""
    return f"{wanted.run_uid}/{wanted.attempt}/{wanted.digest}"


class Clock:
    """When a function was last active: the last start or end of a call, in nanoseconds since the epoch; 0: never."""

    __slots__ = ("last_nanos",)

    def __init__(self, last_nanos: int) -> None:
        self.last_nanos = last_nanos

    def touch(self, now_nanos: int) -> None:
        """There is activity; the clock never goes back, whatever the wall's does."""
        if now_nanos > self.last_nanos:
            self.last_nanos = now_nanos


class Activity:
    """The file in *folder*. What it said when the process began is known; a file that cannot be read says nothing."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._found = _read(self._path)
        self._written: dict[str, int] = {}

    def take(self, wanted: Wanted, *, now_nanos: int) -> int:
        """When *wanted* was last active before this process began, 0 if it was not; asked once.

        User code can write the file, so a time that is still to come counts as now.
        """
        return min(self._found.pop(key_of(wanted), 0), now_nanos)

    async def follow(self, current: Callable[[], dict[str, int]]) -> None:
        """Writes what *current* gives, by key in nanoseconds, whenever it has changed; until cancelled."""
        try:
            while True:
                await asyncio.sleep(INTERVAL_SECONDS)
                await asyncio.to_thread(self._write, current())
        finally:
            self._write(current())

    def _write(self, values: dict[str, int]) -> None:
        kept = {**self._found, **values}
        if kept == self._written:
            return
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_text(json.dumps(kept))
            os.replace(temporary, self._path)
        except OSError as error:
            if not self._written:
                log.warning("idle clocks will not outlive this process", extra={"error": error.strerror})
        self._written = kept


def _read(path: Path) -> dict[str, int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            document = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    items = ((key, value) for key, value in document.items() if type(value) is int and value >= 0)
    return dict(list(items)[:MAX_FUNCTIONS])
