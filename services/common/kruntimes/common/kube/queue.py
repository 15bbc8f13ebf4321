"""A queue of keys to reconcile, and the loop that works on it: key in, `Done` or `After` out.

Level-triggered: a key says only that something changed; the worker reads the store and decides anew.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kruntimes.common.errors import Busy, KruntimesError, Terminal
from kruntimes.common.kube.backoff import wait_after
from kruntimes.common.kube.errors import Conflict

log = logging.getLogger(__name__)

MAX_KEYS = 200_000
"""Keys waiting at once: several times the largest installation we measure; beyond it something leaks keys."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.05, 30.0
"""Back-off of one key after errors."""
QUIET_CONFLICTS = 5
"""A conflict is daily business; so many in a row for one key are not: the write itself may never fit."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True, slots=True)
class After:
    """Look again after so many seconds, even if nothing changes."""

    seconds: float


class WorkQueue:
    """Keys waiting for work: each at most once, and none worked on twice at the same time.

    A key added while it is worked on comes again after `done`.
    """

    def __init__(self, *, max_keys: int = MAX_KEYS) -> None:
        self._max = max_keys
        self._ready: deque[str] = deque()
        self._wanted: set[str] = set()
        self._active: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """How many keys are ready and not yet taken."""
        return len(self._ready)

    def add(self, key: str) -> None:
        """Asks for work on *key*, once, however often it is asked. Raises Busy beyond the bound."""
        if key in self._wanted:
            return
        if len(self._wanted) + len(self._timers) >= self._max:
            raise Busy(f"more than {self._max} keys wait for work")
        self._wanted.add(key)
        if key not in self._active:
            self._ready.append(key)
            self._wake()

    def add_after(self, key: str, seconds: float) -> None:
        """Asks for work on *key* in *seconds*; of several such wishes the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= loop.time() + seconds:
                return
            known.cancel()
        elif len(self._wanted) + len(self._timers) >= self._max:
            raise Busy(f"more than {self._max} keys wait for work")
        self._timers[key] = loop.call_later(seconds, self._due, key)

    async def get(self) -> str:
        """Waits for a key and takes it; `done` must follow."""
        while not self._ready:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # Woken and cancelled at once: the key is somebody else's to take.
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
        key = self._ready.popleft()
        self._wanted.discard(key)
        self._active.add(key)
        return key

    def done(self, key: str) -> None:
        """Work on *key* has ended; if it was added meanwhile, it is ready again."""
        self._active.discard(key)
        if key in self._wanted:
            self._ready.append(key)
            self._wake()

    def close(self) -> None:
        """Drops the timers, so that nothing fires after the end."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


Reconcile = Callable[[str], Awaitable[Done | After]]


async def work(queue: WorkQueue, reconcile: Reconcile, *, workers: int) -> None:
    """Reconciles keys until cancelled, *workers* at a time.

    An exception means: again, with a back-off per key that doubles, or after what the server asked for; `Terminal`
    means: not before something changes. Each outcome of a key is logged once, however often it repeats.
    """
    trouble: dict[str, tuple[int, str]] = {}
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(_worker(queue, reconcile, trouble))
    finally:
        queue.close()


async def _worker(queue: WorkQueue, reconcile: Reconcile, trouble: dict[str, tuple[int, str]]) -> None:
    while True:
        key = await queue.get()
        wait: float | None = None
        try:
            result = await reconcile(key)
            wait = result.seconds if isinstance(result, After) else None
            if trouble.pop(key, (0, ""))[1]:
                log.info("reconciled again", extra={"key": key})
        except Terminal as error:
            trouble.pop(key, None)
            log.error("given up until it changes", extra={"key": key, "error": str(error)})
        except Exception as error:
            wait = _failed(key, error, trouble)
        finally:
            queue.done(key)
        if wait is not None:
            queue.add_after(key, wait)


def _failed(key: str, error: Exception, trouble: dict[str, tuple[int, str]]) -> float:
    """Notes one failure and returns the seconds to wait."""
    failures, told = trouble.get(key, (0, ""))
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, Conflict) and failures < QUIET_CONFLICTS:
        # Somebody else wrote first: the watch brings the new object, and no one needs to hear of it.
        text = told
    elif text != told:
        foreign = None if isinstance(error, KruntimesError) else error
        log.warning("reconcile failed", extra={"key": key, "error": text}, exc_info=foreign)
    trouble[key] = (failures + 1, text)
    return wait_after(error, failures=failures + 1, first=FIRST_WAIT_SECONDS, cap=LONGEST_WAIT_SECONDS)
