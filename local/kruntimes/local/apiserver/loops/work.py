"""How every loop works: writes name keys, and each key is reconciled by itself. Shell.

The core is synchronous and in this process, so a reconciliation reads what is true at this moment and its writes are
there when it returns: no caches, no expectations. Nothing polls; a loop that waits for a time says for how long.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.status import StatusError
from kruntimes.local.apiserver.store import Event

Key = TypeVar("Key")

FIRST_BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 30.0
SLICE_SECONDS = 0.005
"""How long a loop works before requests get their turn: a long queue of keys must not be felt by them."""

log = logging.getLogger(__name__)


class Keys(Generic[Key]):
    """What is to be looked at: now, in the order asked for and once however often asked, or at a later time."""

    def __init__(self) -> None:
        self._now: dict[Key, None] = {}
        self._later: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._order = 0

    def add(self, key: Key) -> None:
        """As soon as possible."""
        self._now[key] = None
        self._due.pop(key, None)

    def add_at(self, key: Key, when: float) -> None:
        """At *when*, unless it is asked for before; the last word about a key counts."""
        self._due[key] = when
        self._order += 1
        heapq.heappush(self._later, (when, self._order, key))

    def take(self, now: float) -> Key | None:
        """The next key that is due, or None."""
        while self._later and self._later[0][0] <= now:
            when, _, key = heapq.heappop(self._later)
            if self._due.get(key) == when:
                self.add(key)
        for key in self._now:
            del self._now[key]
            return key
        return None

    def wait(self, now: float) -> float | None:
        """Seconds until a key is due; None while there is none."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        if self._now:
            return 0.0
        return max(self._later[0][0] - now, 0.0) if self._later else None

    def __len__(self) -> int:
        return len(self._now) + len(self._due)


async def follow(
    api: Api,
    *,
    keys: Callable[[Event], Iterable[Key]],
    reconcile: Callable[[Key], float | None],
    start: Iterable[Key] = (),
) -> None:
    """Runs until it is cancelled. A key is reconciled after each write that *keys* names it for.

    reconcile: brings what the key stands for to where it should be; the seconds it returns are when to look again, and
    it must be able to be repeated at any time. What it raises is logged and repeated with back-off. start: what to
    look at first.
    """
    pending: Keys[Key] = Keys()
    failures: dict[Key, int] = {}
    wake = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wrote(event: Event) -> None:
        try:
            found = list(keys(event))
        except Exception:  # a fault of a loop is not one of whoever writes
            log.exception("write not understood", extra={"resource": "/".join(event.resource)})
            return
        for key in found:
            pending.add(key)
            wake.set()

    for key in start:
        pending.add(key)
    end = api.listen(wrote)
    try:
        while True:
            turn = loop.time() + SLICE_SECONDS
            while loop.time() < turn and (taken := pending.take(loop.time())) is not None:
                wait = _attempt(reconcile, taken, failures)
                if wait is not None:
                    pending.add_at(taken, loop.time() + wait)
            wake.clear()
            rest = pending.wait(loop.time())
            if rest == 0.0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(rest):
                    await wake.wait()
            except TimeoutError:
                continue
    finally:
        end()


def _attempt(reconcile: Callable[[Key], float | None], key: Key, failures: dict[Key, int]) -> float | None:
    """One reconciliation; the seconds after which the key is looked at again."""
    try:
        wait: float | None = reconcile(key)
    except Exception as error:
        failed = failures[key] = failures.get(key, 0) + 1
        told = logging.DEBUG if isinstance(error, StatusError) else logging.ERROR
        log.log(told, "reconciliation failed", extra={"key": str(key)}, exc_info=True)
        return float(min(FIRST_BACKOFF_SECONDS * 2 ** min(failed - 1, 16), LONGEST_BACKOFF_SECONDS))
    failures.pop(key, None)
    return wait
