"""Admission: what is refused, with which code, and what a duplicate cannot do."""

import pytest
from tests.engine_world import Nothing, World

from kruntimes.functions.bounds import Bounds, Overlap
from kruntimes.functions.engine import OVERRUN_CALLS, Admission
from kruntimes.functions.failures import CANCELLED_UNREAD
from kruntimes.functions.wire.events import Call, Reason, Rejected


def test_a_call_while_stopping_is_answered_503() -> None:
    world = World()
    world.engine.stop()
    assert world.call("t") is Admission.ANSWERED
    assert world.codes("t") == [503]
    assert "stopping" in world.message("t")


def test_an_unknown_function_is_answered_501() -> None:
    world = World()
    assert world.call("t", "nowhere") is Admission.ANSWERED
    assert world.codes("t") == [501]


def test_a_function_without_a_handler_is_answered_501() -> None:
    world = World()
    world.engine.register("announced", None)
    world.call("t", "announced")
    assert world.codes("t") == [501]
    assert "no handler" in world.message("t")


def test_a_duplicate_of_an_active_id_is_ignored() -> None:
    world = World()
    world.call("t")
    assert world.call("t") is Admission.DUPLICATE
    assert world.codes("t") == []
    world.done("t")
    assert world.codes("t") == [200]
    assert world.engine.duplicate_uid_ignored == 1


def test_a_duplicate_of_an_answered_id_is_ignored_for_60_seconds() -> None:
    world = World()
    world.call("t")
    world.done("t")
    world.passes(59.9)
    assert world.call("t") is Admission.DUPLICATE
    world.passes(0.2)
    assert world.call("t") is Admission.ADMITTED
    world.done("t")
    assert world.codes("t") == [200, 200]


@pytest.mark.parametrize("what", ["unknown-function", "stopping", "malformed", "payload-cancelled"])
def test_a_duplicate_id_never_touches_the_call_that_has_it(what: str) -> None:
    world = World()
    world.call("t")
    match what:
        case "unknown-function":
            world.call("t", "nowhere")
        case "stopping":
            world.engine.stop()
            world.call("t")
        case "malformed":
            rejected = Rejected(uid="t", code=400, reason=Reason.MALFORMED, message="no")
            world.engine.reject(rejected, world.sink, world.now)
        case "payload-cancelled":
            world.engine.cancel_unadmitted("t", world.sink, world.now)
    world._do()
    assert world.codes("t") == []
    world.done("t")
    assert world.codes("t") == [200]
    assert world.engine.duplicate_uid_ignored == 1


def test_a_malformed_call_with_a_readable_id_is_answered_once() -> None:
    world = World()
    for uid in ("t", None):
        rejected = Rejected(uid=uid, code=413, reason=Reason.PAYLOAD_TOO_LARGE, message="too long")
        world.engine.reject(rejected, world.sink, world.now)
    world._do()
    assert world.log == ["t 413"]
    assert world.engine.rejected == {"payload_too_large": 2}
    assert world.call("t") is Admission.DUPLICATE


def test_a_payload_that_was_cancelled_is_answered_499() -> None:
    world = World()
    world.engine.cancel_unadmitted("t", world.sink, world.now)
    world._do()
    assert world.codes("t") == [499]
    assert world.message("t") == CANCELLED_UNREAD.message


def test_a_caller_that_does_not_heed_the_full_queue_is_answered_503() -> None:
    world = World(queue_size=2, read_ahead_calls=1)
    for number in range(1 + 2 + 1 + OVERRUN_CALLS):
        assert world.call(f"t{number}") is Admission.ADMITTED
    assert world.call("last") is Admission.ANSWERED
    assert world.codes("last") == [503]


def test_where_nothing_waits_a_taken_lane_is_answered_429() -> None:
    world = World(("a", "b", "c"), overlap=Overlap.REFUSE, workers=2)
    world.call("t1", "a")
    world.call("t2", "a")
    world.call("t3", "b")
    world.call("t4", "c")
    assert (world.codes("t2"), world.codes("t3"), world.codes("t4")) == ([429], [], [429])
    assert "in flight" in world.message("t2")
    world.answer("t1")
    world.call("t5", "a")
    assert world.codes("t5") == [429], "answered, but its work has not ended"
    world.ended("t1")
    assert world.call("t6", "a") is Admission.ADMITTED


def test_the_number_of_remembered_ids_is_bounded() -> None:
    world = World(tombstones=3)
    for number in range(5):
        world.call(f"t{number}")
        world.done(f"t{number}")
    assert world.engine.ledger.tombstones == 3
    assert world.call("t4") is Admission.DUPLICATE
    assert world.call("t0") is Admission.ADMITTED


@pytest.mark.parametrize(
    ("sent", "registered", "given", "seconds"),
    [
        pytest.param(5, None, None, 5, id="the-calls-own"),
        pytest.param(0, None, None, 60, id="0-is-the-default"),
        pytest.param(0, 7.0, None, 7, id="0-is-the-functions-own"),
        pytest.param(10**9, None, None, 900, id="cut-to-the-longest"),
        pytest.param(5, None, 0.25, 0.25, id="milliseconds-count"),
    ],
)
def test_the_time_of_a_call(sent: int, registered: float | None, given: float | None, seconds: float) -> None:
    world = World()
    world.engine.register("fn", Nothing(), timeout=registered)
    call = Call(uid="t", timeout=sent, function="fn")
    world.engine.admit(call, world.sink, world.now, timeout=given)
    world._do()
    assert world.started["t"].deadline == world.now + seconds


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        pytest.param({"workers": 0}, "workers", id="no-worker"),
        pytest.param({"tombstones": 0}, "tombstones", id="no-memory"),
        pytest.param({"drain": -1.0}, "drain", id="negative"),
        pytest.param({"queue_size": 0, "read_ahead_calls": 0}, "queue_size", id="nothing-could-be-read"),
    ],
)
def test_bounds_that_make_no_sense_are_named(bounds: dict[str, float], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Bounds(**bounds)  # type: ignore[arg-type]


def test_the_numbers_of_the_source_document_are_the_defaults() -> None:
    bounds = Bounds()
    assert (bounds.workers, bounds.queue_size, bounds.tombstone) == (1, 64, 60)
    assert (bounds.awaiting_warning, bounds.cancel_grace, bounds.drain) == (30, 5, 8)
