"""How calls end: one finalizer, cancellation in each state, deadlines, the warning, the end of the manager."""

import pytest
from tests.engine_world import Nothing, World

from kruntimes.functions.engine import Cancelled
from kruntimes.functions.invocation import State
from kruntimes.functions.wire.events import Progress

# --- states and the finalizer


def test_a_call_goes_from_queued_to_running_to_awaiting_result_to_terminal() -> None:
    world = World()
    world.call("t0")
    world.call("t1")
    queued = world.engine.ledger.active["t1"]
    states = [queued.state]
    world.done("t0")
    states.append(queued.state)
    world.ended("t1")
    states.append(queued.state)
    assert world.engine.ledger.awaiting == 1
    world.answer("t1")
    states.append(queued.state)
    assert states == [State.QUEUED, State.RUNNING, State.AWAITING_RESULT, State.TERMINAL]
    assert world.engine.ledger.awaiting == 0
    assert world.codes("t1") == [200]


def test_the_first_terminal_writer_wins_and_later_ones_are_dropped_and_counted() -> None:
    world = World()
    world.call("t")
    assert world.answer("t", b"first")
    assert not world.answer("t", b"second")
    world.ended("t")
    world.passes(120)
    assert not world.answer("t", b"after the tombstone")
    assert [result.body for result in world.results["t"]] == [b"first"]
    assert world.engine.ledger.late_terminal_dropped == 2


@pytest.mark.parametrize("wrong", [{"uid": "other"}, {"code": 0}, {"code": 600}])
def test_an_answer_for_another_call_or_without_a_code_is_500(wrong: dict[str, object]) -> None:
    world = World(workers=2)
    world.engine.register("b", Nothing())
    world.call("t")
    world.call("other", "b")
    invocation = world.started["t"]
    world.complete(invocation, invocation.answer(b"")._replace(**wrong))  # type: ignore[arg-type]
    assert world.codes("t") == [500]
    assert world.codes("other") == []


def test_an_answer_is_out_before_the_call_starts_that_it_made_room_for() -> None:
    world = World()
    world.call("t1")
    world.call("t2")
    world.take_log()
    world.done("t1")
    assert world.log == ["t1 200", "t2 started"]


def test_finalizing_leaves_no_timer_behind() -> None:
    world = World()
    for number in range(5000):
        world.call(f"t{number}", timeout=60)
        world.cancel(f"t{number}")
        world.done(f"t{number}")
    assert len(world.engine._agenda) < 600
    assert world.engine.next_due() is None


def test_work_that_says_twice_that_it_ended_frees_one_worker() -> None:
    world = World(("a", "b", "c"))
    world.call("t1", "a")
    world.call("t2", "b")
    world.call("t3", "c")
    world.done("t1")
    world.ended("t1")
    assert "t3" not in world.started


# --- the warning


@pytest.mark.parametrize(("timeout", "after"), [(60, 30.0), (10, 10.0)])
def test_the_warning_comes_after_30_seconds_or_the_calls_own_time(timeout: int, after: float) -> None:
    world = World()
    world.call("t", timeout=timeout)
    world.passes(1)
    world.ended("t")
    world.take_log()
    world.passes(min(after, timeout - 1) - 0.01)
    assert "t warning" not in world.log
    world.passes(0.02)
    assert ("t warning" in world.log) is (timeout == 60), "a deadline that comes first leaves nothing to warn of"


def test_the_warning_comes_once_and_answers_nothing() -> None:
    world = World()
    world.call("t", timeout=600)
    world.ended("t")
    world.passes(500)
    assert world.log.count("t warning") == 1
    assert world.codes("t") == []


def test_an_answered_call_warns_of_nothing() -> None:
    world = World()
    world.call("t")
    world.ended("t")
    world.answer("t")
    world.passes(500)
    assert "t warning" not in world.log


# --- cancellation


def test_a_queued_call_is_answered_499_at_once_and_never_runs() -> None:
    world = World()
    world.call("t1")
    world.call("t2")
    assert world.cancel("t2") is Cancelled.ANSWERED
    assert world.codes("t2") == [499]
    assert world.engine.scheduler.waiting == 0
    world.done("t1")
    assert "t2" not in world.started


def test_a_running_call_is_told_and_answered_499_after_5_seconds() -> None:
    world = World()
    world.call("t")
    assert world.cancel("t") is Cancelled.ASKED
    assert world.started["t"].cancelled
    world.passes(4.99)
    assert world.codes("t") == []
    world.passes(0.02)
    assert world.codes("t") == [499]
    assert world.log == ["t started", "t stop cancelled", "t 499", "t kill"]
    assert world.engine.cancel_fallback == 1


def test_a_running_call_that_answers_in_time_is_answered_so() -> None:
    world = World()
    world.call("t")
    world.cancel("t")
    world.passes(4)
    world.done("t")
    world.passes(10)
    assert world.codes("t") == [200]
    assert world.engine.cancel_fallback == 0


def test_a_call_that_awaits_its_result_is_answered_499_after_5_seconds() -> None:
    world = World()
    world.call("t1")
    world.call("t2")
    world.ended("t1")
    world.cancel("t1")
    world.passes(5.01)
    assert world.codes("t1") == [499]
    assert "t2" in world.started
    assert not world.answer("t1")


def test_cancelling_again_changes_nothing() -> None:
    world = World()
    world.call("t")
    world.cancel("t")
    world.passes(4)
    assert world.cancel("t") is Cancelled.REPEATED
    world.passes(1.01)
    assert world.codes("t") == [499]
    assert world.cancel("t") is Cancelled.UNKNOWN


def test_cancelling_what_is_unknown_or_answered_does_nothing() -> None:
    world = World()
    assert world.cancel("nobody") is Cancelled.UNKNOWN
    world.call("t")
    world.done("t")
    world.take_log()
    assert world.cancel("t") is Cancelled.UNKNOWN
    assert world.log == []


def test_after_the_fallback_the_lane_stays_closed_until_the_old_work_has_ended() -> None:
    world = World(workers=4)
    world.call("t1")
    world.call("t2")
    world.cancel("t1")
    world.passes(20)
    assert world.codes("t1") == [499]
    assert "t2" not in world.started
    world.ended("t1")
    assert "t2" in world.started


# --- deadlines


def test_a_deadline_is_answered_504_and_the_work_is_ended() -> None:
    world = World()
    world.call("t1", timeout=2)
    world.call("t2", timeout=60)
    world.passes(2)
    assert world.log == ["t1 started", "t1 stop deadline", "t1 504", "t1 kill"]
    world.done("t1")
    assert world.codes("t1") == [504]
    assert "t2" in world.started


def test_a_deadline_includes_the_time_in_the_queue() -> None:
    world = World()
    world.call("t1")
    world.call("t2", timeout=3)
    world.passes(3)
    assert world.codes("t2") == [504]
    world.done("t1")
    assert "t2" not in world.started


def test_a_call_that_awaits_its_result_meets_its_deadline() -> None:
    world = World()
    world.call("t", timeout=5)
    world.ended("t")
    world.passes(5)
    assert world.codes("t") == [504]


def test_with_a_grace_the_work_has_a_moment_but_only_504_counts() -> None:
    world = World(deadline_grace=0.5, workers=2)
    world.call("t1", timeout=2)
    world.passes(2.4)
    assert world.codes("t1") == []
    world.done("t1")
    assert world.codes("t1") == [504]
    world.engine.register("other", Nothing())
    world.call("t2", "other", timeout=2)
    world.passes(2.6)
    assert world.codes("t2") == [504]
    assert world.log[-2:] == ["t2 504", "t2 kill"]


def test_answered_work_that_goes_on_is_ended_at_its_deadline() -> None:
    world = World()
    world.call("t", timeout=2)
    world.answer("t")
    world.passes(2)
    assert world.log[-2:] == ["t stop deadline", "t kill"]
    assert world.codes("t") == [200]


# --- progress


def test_progress_is_forwarded_not_too_often_and_never_backwards() -> None:
    world = World()
    world.call("t")
    world.take_log()
    for done in (1, 2, 1):
        world.report(world.started["t"], Progress(uid="t", done=done, total=10))
    assert world.log == ["t 1/10"]
    world.passes(0.25)
    world.report(world.started["t"], Progress(uid="t", done=3, total=10))
    world.report(world.started["t"], Progress(uid="t", done=10, total=10))
    assert world.log == ["t 1/10", "t 3/10", "t 10/10"]
    for done in (10, 11, 12):
        world.report(world.started["t"], Progress(uid="t", done=done, total=10))
    assert world.log == ["t 1/10", "t 3/10", "t 10/10"], "only the first that says all is done is not held back"
    world.done("t")
    world.take_log()
    world.report(world.started["t"], Progress(uid="t", done=10, total=10))
    assert world.log == []


def test_the_caller_may_ask_for_progress() -> None:
    world = World()
    world.call("t")
    world.engine.ask_progress("t")
    world.engine.ask_progress("nobody")
    assert not world.engine.effects
    world.report(world.started["t"], Progress(uid="t", done=1, total=2))
    world.take_log()
    world.engine.ask_progress("t")
    world._do()
    assert world.log == ["t 1/2"]


# --- the end


def test_at_the_end_everything_unanswered_gets_499_and_nothing_starts() -> None:
    world = World(("a", "b"), workers=1)
    world.call("running", "a")
    world.call("queued", "b")
    world.engine.stop()
    world.take_log()
    world.abandon()
    assert world.log == ["running stop stopping", "running 499", "running kill", "queued stop stopping", "queued 499"]
    world.ended("running")
    assert "queued" not in world.started
    assert world.engine.drained
    assert not world.answer("running")


def test_while_stopping_what_was_admitted_goes_on() -> None:
    world = World()
    world.call("t1")
    world.call("t2")
    world.engine.stop()
    world.done("t1")
    assert not world.engine.drained
    world.done("t2")
    assert world.engine.drained
    assert world.codes("t2") == [200]


def test_calls_that_await_their_result_do_not_hold_up_the_end() -> None:
    world = World()
    world.call("t")
    world.ended("t")
    world.engine.stop()
    assert world.engine.drained
    world.abandon()
    assert world.codes("t") == [499]
