"""One slot for each Run, freed by its own end and by nothing else."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kruntimes.common.api.epoch import Epoch
from kruntimes.runtimed.slots import Busy, Slot, Slots

OLD, NEW, OTHER = Epoch("run-1", 1, "pod-1"), Epoch("run-1", 2, "pod-1"), Epoch("run-2", 1, "pod-1")


def test_an_overlap_is_busy_and_says_with_what() -> None:
    slots = Slots()
    first = slots.take(OLD, "1")
    assert isinstance(first, Slot)
    assert slots.take(OLD, "2") == Busy(first)
    slots.ended(first)
    assert slots.take(OLD, "3") == Slot(OLD, "3")


def test_work_of_an_older_epoch_still_counts() -> None:
    slots = Slots()
    first = slots.take(OLD, "1")
    assert isinstance(first, Slot)
    assert slots.take(NEW, "2") == Busy(first)


def test_runs_do_not_hinder_each_other() -> None:
    slots = Slots()
    slots.take(OLD, "1")
    assert isinstance(slots.take(OTHER, "2"), Slot)
    assert (len(slots), slots.in_flight("run-1"), slots.in_flight("run-3")) == (2, 1, 0)


def test_a_late_end_frees_nothing_that_was_taken_since() -> None:
    slots = Slots()
    first = slots.take(OLD, "1")
    assert isinstance(first, Slot)
    slots.ended(first)
    second = slots.take(OLD, "2")
    slots.ended(first)
    assert slots.of("run-1") == second


class SlotsMachine(RuleBasedStateMachine):
    """Random takes and ends: at most one slot for each Run, and exactly those that were taken and not ended."""

    def __init__(self) -> None:
        super().__init__()
        self.slots, self.held, self.old, self.count = Slots(), {}, [], 0

    @rule(epoch=st.sampled_from([OLD, NEW, OTHER]))
    def take(self, epoch: Epoch) -> None:
        self.count += 1
        got = self.slots.take(epoch, str(self.count))
        assert isinstance(got, Busy) == (epoch.run_uid in self.held)
        if isinstance(got, Slot):
            self.held[epoch.run_uid] = got

    @rule(uid=st.sampled_from(["run-1", "run-2"]))
    def end(self, uid: str) -> None:
        if slot := self.held.pop(uid, None):
            self.slots.ended(slot)
            self.old.append(slot)

    @rule(data=st.data())
    def end_again(self, data: st.DataObject) -> None:
        if self.old:
            self.slots.ended(data.draw(st.sampled_from(self.old)))

    @invariant()
    def exact(self) -> None:
        assert {uid: self.slots.of(uid) for uid in ("run-1", "run-2") if self.slots.in_flight(uid)} == self.held


TestSlotsMachine = SlotsMachine.TestCase
TestSlotsMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
