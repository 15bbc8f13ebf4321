"""Lanes and workers: order, turns, routes, and when a lane opens again."""

import pytest
from tests.engine_world import Nothing, World

from kruntimes.functions.engine import Admission
from kruntimes.functions.routes import OverlappingPrefix


def test_one_worker_by_default() -> None:
    world = World(("a", "b"))
    world.call("t1", "a")
    world.call("t2", "b")
    assert world.log == ["t1 started"]
    world.done("t1")
    assert world.log == ["t1 started", "t1 200", "t2 started"]


def test_calls_of_one_key_run_one_after_another_in_their_order() -> None:
    world = World(workers=4)
    for uid in ("t1", "t2", "t3"):
        world.call(uid)
    for uid in ("t1", "t2", "t3"):
        assert list(world.started)[-1] == uid
        world.done(uid)


def test_calls_of_different_keys_run_at_once_up_to_the_workers() -> None:
    world = World(("a", "b", "c"), workers=2)
    for name in "abc":
        world.call(f"t{name}", name)
    assert list(world.started) == ["ta", "tb"]
    world.done("tb")
    assert list(world.started) == ["ta", "tb", "tc"]


def test_the_key_of_a_prefix_is_its_own() -> None:
    world = World((), workers=4)
    for prefix in ("jobs:", "nodes:"):
        world.engine.register_prefix("fn", prefix, Nothing())
    world.call("t1", "fn", "jobs:one")
    world.call("t2", "fn", "jobs:two")
    world.call("t3", "fn", "nodes:one")
    assert list(world.started) == ["t1", "t3"]
    assert world.started["t1"].route.key == "fn|jobs:"
    assert world.call("t4", "fn", "other") is Admission.ANSWERED
    assert world.codes("t4") == [501]


def test_the_key_of_a_direct_function_is_its_name() -> None:
    world = World()
    world.engine.register_prefix("fn", "p", Nothing())
    world.call("t1", "fn", "other")
    assert world.started["t1"].route.key == "fn"


@pytest.mark.parametrize(("first", "second"), [("a", "ab"), ("ab", "a")])
def test_overlapping_prefixes_are_refused_and_change_nothing(first: str, second: str) -> None:
    world = World(())
    world.engine.register_prefix("fn", first, Nothing())
    before = world.engine.routes.resolve("fn", ("ab",))
    with pytest.raises(OverlappingPrefix, match="overlaps"):
        world.engine.register_prefix("fn", second, Nothing())
    assert world.engine.routes.resolve("fn", ("ab",)) is before
    world.engine.register_prefix("fn", first, Nothing())
    world.engine.register_prefix("other", second, Nothing())


@pytest.mark.parametrize("name", ["", "a b", "a|b"])
def test_a_name_that_no_call_or_key_can_carry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        World().engine.register(name, Nothing())


def test_a_lane_opens_only_when_its_call_is_answered_and_its_work_has_ended() -> None:
    world = World(workers=4)
    world.call("t1")
    world.call("t2")
    world.answer("t1")
    assert "t2" not in world.started
    world.ended("t1")
    assert "t2" in world.started
    world.call("t3")
    world.ended("t2")
    assert "t3" not in world.started, "unanswered, so the lane is held"
    world.answer("t2")
    assert "t3" in world.started


def test_a_worker_is_free_when_its_work_has_ended_though_the_answer_is_to_come() -> None:
    world = World(("a", "b"))
    world.call("t1", "a")
    world.call("t2", "b")
    world.ended("t1")
    assert "t2" in world.started


def test_a_flooding_key_holds_nobody_back_but_itself() -> None:
    world = World(("flood", "calm"), queue_size=4)
    for number in range(200):
        world.call(f"f{number}", "flood")
    world.call("c", "calm")
    world.done("f0")
    assert list(world.started) == ["f0", "c"]


def test_lanes_take_turns() -> None:
    world = World(("a", "b", "c"))
    for number in range(4):
        for name in "abc":
            world.call(f"{name}{number}", name)
    for _ in range(12):
        world.done(list(world.started)[-1])
    order = [uid[0] for uid in world.started]
    assert sorted(order[:3]) == ["a", "b", "c"]
    assert order == order[:3] * 4


def test_what_is_registered_or_withdrawn_later_changes_nothing_for_an_admitted_call() -> None:
    world = World()
    world.call("t1")
    world.call("t2")
    route = world.started["t1"].route
    world.engine.unregister("fn")
    assert world.call("t3") is Admission.ANSWERED
    assert world.codes("t3") == [501]
    world.done("t1")
    assert world.started["t2"].route is route
    world.done("t2")
    assert world.codes("t2") == [200]
    assert world.engine.scheduler.lanes == 0


def test_a_function_that_comes_back_keeps_its_lane() -> None:
    world = World(workers=2)
    world.call("t1")
    world.engine.unregister("fn")
    world.engine.register("fn", Nothing())
    world.call("t2")
    assert "t2" not in world.started, "the old work still runs"
    world.done("t1")
    world.done("t2")
    assert world.engine.scheduler.lanes == 1


def test_withdrawing_prefixes() -> None:
    world = World(())
    for prefix in ("a", "b"):
        world.engine.register_prefix("fn", prefix, Nothing())
    world.engine.unregister("fn", "a")
    world.engine.unregister("fn", "a")
    world.engine.unregister("nowhere", "a")
    assert world.call("t1", "fn", "a") is Admission.ANSWERED
    assert world.call("t2", "fn", "b") is Admission.ADMITTED
    world.engine.unregister("fn")
    assert world.engine.routes.names() == []
