"""Handlers made of plain and `async` functions (second source document, "worker transitions"; design §7).

    Plain(function, threads)         runs it on a thread, so that it may block
    Asynchronous(function, tasks)    runs it as a task; being told to stop cancels it
    Inline(function)                 runs it right there: for what takes microseconds

The function takes the Invocation and returns its answer, or None: then the call awaits one, by `finish` or
`Manager.answer`, and holds its lane until then. What it raises is answered 500. A thread, and a task that does not
heed its cancellation, cannot be ended from outside: their lane stays closed until they end by themselves. A host
process can be; it is a Handler by itself.
"""

import asyncio
import inspect
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from kruntimes.functions import failures
from kruntimes.functions.invocation import Handler, Invocation, Why
from kruntimes.functions.wire.events import Result

log = logging.getLogger(__name__)

PlainFunction = Callable[[Invocation], Result | None]
AsyncFunction = Callable[[Invocation], Coroutine[Any, Any, Result | None]]


def settle(invocation: Invocation, outcome: object) -> None:
    """Ends *invocation* with what its function returned."""
    if isinstance(outcome, Result) and outcome.uid == invocation.call.uid:
        invocation.complete(outcome)
    elif outcome is None:
        invocation.end()
    else:
        invocation.fail(failures.NOT_AN_ANSWER)


def panic(invocation: Invocation) -> None:
    """Ends *invocation* for the exception that is being handled; its text goes to the log only."""
    log.exception("handler failed", extra={"function": invocation.call.function})
    invocation.fail(failures.PANIC)


class Inline:
    """Runs a function on the manager's own thread. It must not wait for anything."""

    def __init__(self, function: PlainFunction) -> None:
        self._function = function

    def start(self, invocation: Invocation) -> None:
        """Runs the call to its end."""
        settle(invocation, self._function(invocation))

    def stop(self, invocation: Invocation, why: Why) -> None:
        """There is no moment at which it could be told."""

    def kill(self, invocation: Invocation) -> None:
        """There is nothing to end."""


class Threads:
    """Threads that run plain functions; as many as were ever needed at once, at most *most*.

    most: at least the manager's workers, or calls wait here unseen. The threads do not keep the process alive.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0

    def run(self, work: Callable[[], None]) -> None:
        """Runs *work*, which raises nothing, on one of them."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._count < self._most:
                self._count += 1
                threading.Thread(target=self._loop, name=f"function-{self._count}", daemon=True).start()
        self._work.put(work)

    def close(self) -> None:
        """Lets every thread end once it has nothing to do."""
        for _ in range(self._count):
            self._work.put(None)

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._idle += 1


class Plain:
    """Runs a function on a thread. It may ask `invocation.cancelled` whether it should end."""

    def __init__(self, function: PlainFunction, threads: Threads) -> None:
        self._function = function
        self._threads = threads

    def start(self, invocation: Invocation) -> None:
        """Hands the call to a thread."""
        self._threads.run(lambda: self._run(invocation))

    def stop(self, invocation: Invocation, why: Why) -> None:
        """The invocation says so itself; a thread cannot be told otherwise."""

    def kill(self, invocation: Invocation) -> None:
        """A thread cannot be ended; its lane stays closed until it has."""

    def _run(self, invocation: Invocation) -> None:
        try:
            outcome = self._function(invocation)
        except BaseException:
            # SystemExit too: it would end the thread without a word.
            panic(invocation)
        else:
            settle(invocation, outcome)


class Asynchronous:
    """Runs a coroutine function as a task of *tasks*, on the manager's loop."""

    def __init__(self, function: AsyncFunction, tasks: asyncio.TaskGroup) -> None:
        self._function = function
        self._tasks = tasks
        self._running: dict[Invocation, asyncio.Task[None]] = {}

    def start(self, invocation: Invocation) -> None:
        """Starts the task."""
        task = self._running[invocation] = self._tasks.create_task(self._run(invocation))
        task.add_done_callback(lambda _: self._ended(invocation))

    def stop(self, invocation: Invocation, why: Why) -> None:
        """Cancels the task, the first time."""
        if invocation in self._running and invocation.why is why:
            self._running[invocation].cancel()

    def kill(self, invocation: Invocation) -> None:
        """Cancels the task again, in case it swallowed the first."""
        if invocation in self._running:
            self._running[invocation].cancel()

    async def _run(self, invocation: Invocation) -> None:
        try:
            outcome = await self._function(invocation)
        except asyncio.CancelledError:
            if invocation.why is None:
                invocation.fail(failures.CANCELLED_AT_STOP)  # not the manager's doing: the program ends
                raise
            invocation.fail(failures.CANCELLED)
        except Exception:
            panic(invocation)
        else:
            settle(invocation, outcome)

    def _ended(self, invocation: Invocation) -> None:
        self._running.pop(invocation, None)
        if invocation.working:
            invocation.fail(failures.CANCELLED)  # before its first step, so that `_run` never began


def adapt(function: object, *, threads: Threads, tasks: asyncio.TaskGroup) -> Handler:
    """A handler of whatever can be one: a Handler, a coroutine function, a plain function. Raises TypeError."""
    if all(callable(getattr(function, name, None)) for name in ("start", "stop", "kill")):
        return function  # type: ignore[return-value]
    if inspect.iscoroutinefunction(function):
        return Asynchronous(function, tasks)
    if callable(function):
        return Plain(function, threads)
    raise TypeError(f"{type(function).__name__} is no handler")
