"""What is due when: one heap for all calls, so that a call costs no timer of its own. Pure.

What became pointless stays in the heap until it is due or half of the heap is like that; it is then swept out,
which costs a constant for each entry over its life.
"""

import heapq
import itertools
from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, TypeVar

T = TypeVar("T")

_SWEEP_FROM = 256
"""Below this a sweep saves nothing."""


class Due(Enum):
    """What happens at a time."""

    DEADLINE = auto()
    DEADLINE_GRACE = auto()
    CANCEL_GRACE = auto()
    AWAITING_WARNING = auto()


class Agenda(Generic[T]):
    """Entries (time, what, whom). pointless: whether an entry of somebody need not be kept any more."""

    def __init__(self, pointless: Callable[[T], bool]) -> None:
        self._heap: list[tuple[float, int, Due, T]] = []
        self._numbers = itertools.count()
        self._pointless = pointless
        self._sweep_at = _SWEEP_FROM

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, due: Due, whom: T) -> None:
        """Notes that *due* happens to *whom* at *when*."""
        heapq.heappush(self._heap, (when, next(self._numbers), due, whom))
        if len(self._heap) > self._sweep_at:
            self._heap = [entry for entry in self._heap if not self._pointless(entry[3])]
            heapq.heapify(self._heap)
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._heap))

    def pop(self, now: float) -> tuple[Due, T] | None:
        """Takes the first entry that is due at *now*, passing over pointless ones; None where nothing is due."""
        while self._heap and self._heap[0][0] <= now:
            _, _, due, whom = heapq.heappop(self._heap)
            if not self._pointless(whom):
                return due, whom
        return None

    def first(self) -> float | None:
        """When the next entry is due that is not pointless."""
        while self._heap and self._pointless(self._heap[0][3]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
