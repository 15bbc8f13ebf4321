"""One invocation at a time for each Run, and when the next may come (design §6 and §13).

A slot is owned by the life of the work, not by the request that asked for it: whoever calls `ended` must know
that the Runtime Server has ended the work. A caller that leaves early changes nothing here. The lane in the
Runtime Server is the authority; this is the place where an overlap is refused without a call.
"""

from dataclasses import dataclass

import msgspec

from kruntimes.common.api.epoch import Epoch


class Slot(msgspec.Struct, frozen=True):
    """The right to have work of *epoch* under way. tx: unique in this process, never the caller's id."""

    epoch: Epoch
    tx: str


@dataclass(frozen=True, slots=True)
class Busy:
    """Refused: the slot *held* has not ended."""

    held: Slot


class Slots:
    """Which Runs have work under way. One slot for each Run UID, whatever its epoch: an older epoch's work counts."""

    def __init__(self) -> None:
        self._held: dict[str, Slot] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, epoch: Epoch, tx: str) -> Slot | Busy:
        """Takes the Run's slot, or says who has it."""
        held = self._held.get(epoch.run_uid)
        if held is not None:
            return Busy(held)
        slot = Slot(epoch, tx)
        self._held[epoch.run_uid] = slot
        return slot

    def ended(self, slot: Slot) -> None:
        """Frees *slot*; a repeated or late call for a slot that is no longer held changes nothing."""
        if self._held.get(slot.epoch.run_uid) == slot:
            del self._held[slot.epoch.run_uid]

    def of(self, run_uid: str) -> Slot | None:
        """The slot that the Run has taken, or None."""
        return self._held.get(run_uid)

    def in_flight(self, run_uid: str) -> int:
        """0 or 1: how much work of the Run is under way."""
        return 1 if run_uid in self._held else 0
