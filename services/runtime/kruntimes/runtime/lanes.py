"""Slots: one invocation in flight per function, decided here and nowhere else (design §6, §13).

A slot is owned by the work, not by whoever asked for it: it ends when the work has ended. Nothing waits; an
overlapping request is refused. Source: first source document, "Invoke Contract".
"""

from dataclasses import dataclass

MAX_IN_FLIGHT = 1
"""Per function; the first source document fixes it for this version of the API."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The right to run one invocation: *tx* on *lane*."""

    lane: str
    tx: str


@dataclass(frozen=True, slots=True)
class Busy:
    """The lane is taken, by *tx*."""

    lane: str
    tx: str


@dataclass(frozen=True, slots=True)
class Activity:
    """What FunctionStatus tells of a lane. last_nanos: of the last start or end since the epoch, 0 for none."""

    in_flight: int
    last_nanos: int


class Lanes:
    """Every lane's slot and its clock of activity. The times are nanoseconds since the epoch, given by the caller."""

    def __init__(self) -> None:
        self._taken: dict[str, Slot] = {}
        self._last: dict[str, int] = {}

    def take(self, lane: str, tx: str, now_nanos: int) -> Slot | Busy:
        """Takes the lane's slot, or says who has it. A refused request is no activity."""
        if (holder := self._taken.get(lane)) is not None:
            return Busy(lane, holder.tx)
        slot = self._taken[lane] = Slot(lane, tx)
        self._last[lane] = max(now_nanos, self._last.get(lane, 0))
        return slot

    def ended(self, slot: Slot, now_nanos: int) -> bool:
        """Gives *slot* back once its work has ended; False where it was given back already, and nothing changed."""
        if self._taken.get(slot.lane) != slot:
            return False
        del self._taken[slot.lane]
        self._last[slot.lane] = max(now_nanos, self._last.get(slot.lane, 0))
        return True

    def activity(self, lane: str) -> Activity:
        """The lane's figures; those of an unknown lane are zero."""
        return Activity(int(lane in self._taken), self._last.get(lane, 0))

    def resume(self, lane: str, last_nanos: int) -> None:
        """Sets the clock of a lane that had activity before this process began; it never goes back."""
        if last_nanos > 0:
            self._last[lane] = max(last_nanos, self._last.get(lane, 0))

    def forget(self, lane: str) -> None:
        """Drops the clock of a lane that will not be used again; a slot in use stays until its work has ended."""
        self._last.pop(lane, None)

    def in_flight(self) -> int:
        """How many slots are taken over all lanes."""
        return len(self._taken)
