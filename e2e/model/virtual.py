"""Virtual time: an event loop that never waits, and processes that end between any two of their steps.

A schedule depends on nothing but its seed: time moves when nothing else is left to do, and the order of what happens
is the order of the delays that were drawn.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from typing import Any

import pytest

from kruntimes.common import clock
from kruntimes.common.kube import backoff

START = 1_800_000_000.0
"""Seconds since the epoch at which each schedule begins."""
STEP_SECONDS = 1e-6
"""What a turn of the loop takes at least: without it a wait that rounding made too short would never end."""
SKEW: ContextVar[float] = ContextVar("skew", default=0.0)
"""By how much the wall clock of a process is ahead."""


class _Nothing:
    """What the loop waits with: time passes at once."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        assert timeout is not None, "nothing can ever happen again"
        self._loop.now += timeout + STEP_SECONDS
        return []

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio without sockets, threads, and waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector = _Nothing(self)

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _process_events(self, events: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class Process:
    """Tasks that end together, at once, and of which nothing is heard after that. skew: of its wall clock."""

    def __init__(self, name: str, *, skew: float = 0.0) -> None:
        self.name, self.dead = name, False
        self._context = copy_context()
        self._context.run(SKEW.set, skew)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(work, context=self._context))

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls something in this process, unless that has ended by then."""
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, lambda: None if self.dead else call(), context=self._context)

    def kill(self) -> None:
        self.dead = True
        for task in self._tasks:
            task.cancel()

    async def gone(self) -> None:
        """Waits until none of its tasks is left; raises what one of them has ended with."""
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


@contextmanager
def clocks(loop: VirtualLoop, draw: Callable[[], float]) -> Iterator[None]:
    """Every clock and every dice of the product are the schedule's own within the block."""

    def wall() -> float:
        return START + loop.now + SKEW.get()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(clock, "monotonic", loop.time)
        patched.setattr(clock, "wall", wall)
        patched.setattr(clock, "utcnow", lambda: datetime.fromtimestamp(wall(), UTC))
        patched.setattr(backoff, "draw", draw)
        yield
