"""One in flight per function: the slot's rules, and that no order of events miscounts."""

from hypothesis import given
from hypothesis import strategies as st

from kruntimes.runtime.lanes import Activity, Busy, Lanes, Slot


def test_a_taken_lane_refuses_and_names_the_holder() -> None:
    lanes = Lanes()
    slot = lanes.take("a", "c1", 10)
    assert slot == Slot("a", "c1")
    assert lanes.take("a", "c2", 20) == Busy("a", "c1")
    assert lanes.activity("a") == Activity(in_flight=1, last_nanos=10)  # a refusal is no activity


def test_the_end_of_the_work_frees_the_slot_once() -> None:
    lanes = Lanes()
    slot = lanes.take("a", "c1", 10)
    assert isinstance(slot, Slot)
    assert lanes.ended(slot, 30)
    assert lanes.activity("a") == Activity(in_flight=0, last_nanos=30)
    second = lanes.take("a", "c2", 40)
    assert not lanes.ended(slot, 50)  # the first one's, again
    assert lanes.take("a", "c3", 60) == Busy("a", "c2")
    assert isinstance(second, Slot)


def test_lanes_do_not_know_each_other() -> None:
    lanes = Lanes()
    assert isinstance(lanes.take("a", "c1", 1), Slot)
    assert isinstance(lanes.take("b", "c2", 1), Slot)
    assert lanes.in_flight() == 2
    assert lanes.activity("c") == Activity(0, 0)


def test_the_activity_clock_never_goes_back() -> None:
    lanes = Lanes()
    slot = lanes.take("a", "c1", 100)
    assert isinstance(slot, Slot)
    lanes.ended(slot, 50)
    assert lanes.activity("a").last_nanos == 100
    lanes.forget("a")
    assert lanes.activity("a") == Activity(0, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_whatever_comes_the_count_is_exact(steps: list[tuple[str, bool]]) -> None:
    lanes = Lanes()
    held: dict[str, Slot] = {}
    for number, (lane, take) in enumerate(steps):
        if take:
            got = lanes.take(lane, str(number), number)
            assert isinstance(got, Busy) == (lane in held)
            if isinstance(got, Slot):
                held[lane] = got
        elif lane in held:
            assert lanes.ended(held.pop(lane), number)
        assert lanes.in_flight() == len(held)
