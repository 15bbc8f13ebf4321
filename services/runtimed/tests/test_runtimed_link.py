"""Invocations over the functions socket: outcomes, and that a slot lives exactly as long as its work (design §13)."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.runtimed_stub import until
from tests.runtimed_world import RUN_UID, Place, call, dispatching

from kruntimes.common.api import outcomes
from kruntimes.common.api.outcomes import Failure, Kind
from kruntimes.runtimed import dispatch, progress
from kruntimes.runtimed.invocation import Answer
from kruntimes.runtimed.linkcodes import link_lost, link_outcome
from kruntimes.runtimed.progress import Follower

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with dispatching(tmp_path, linked=True) as made:
        yield made


async def test_an_answer_is_passed_on_and_frees_the_slot(place: Place) -> None:
    got = await place.dispatcher.invoke(place.held, call())
    assert isinstance(got, Answer)
    assert (got.output, got.content_type, got.outputs) == (b"echo", "application/json", {"k": "v"})
    assert (got.log_tail, got.seconds) == ("a line\n", 0.0125)
    assert len(place.slots) == 0
    assert place.held.last_activity > 0
    sent = place.functions.calls[0]
    assert (sent.function, sent.option("attempt"), sent.content_type) == (f"{RUN_UID}/1", "3", "text/plain")
    assert sent.uid != "id-1", "the transaction is never the caller's id"
    assert 4000 < int(sent.option("timeout_ms") or 0) <= 5000
    assert place.stub.count("invoke") == 0


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, outcomes.BAD_INPUT),
        (413, outcomes.BODY_TOO_LARGE),
        (429, outcomes.IN_FLIGHT),
        (499, outcomes.CANCELLED),
        (500, outcomes.FUNCTION_ERROR),
        (501, outcomes.NOT_READY),
        (503, outcomes.NOT_READY),
        (504, outcomes.DEADLINE_EXCEEDED),
        (418, outcomes.OUTCOME_UNKNOWN),
    ],
)
async def test_every_code_has_its_meaning(place: Place, code: int, kind: Kind) -> None:
    assert link_outcome(code) is kind
    got = await place.dispatcher.invoke(place.held, call(f"code {code}".encode()))
    assert isinstance(got, Failure)
    assert got.kind is kind
    assert (got.retry_after is not None) == (kind.status in (429, 503))
    assert len(place.slots) == 0
    assert place.lost == ([place.held] if link_lost(code) else [])


async def test_a_function_error_keeps_its_parts(place: Place) -> None:
    got = await place.dispatcher.invoke(place.held, call(b"code 500"))
    assert isinstance(got, Failure)
    assert got.message == "ValueError: bad"
    assert got.details == {"type": "ValueError", "message": "bad", "traceback": "line 1"}


async def test_a_description_that_cannot_be_read_is_an_error(place: Place) -> None:
    place.functions.meta = b"[1]"
    got = await place.dispatcher.invoke(place.held, call())
    assert isinstance(got, Failure)
    assert got.kind is outcomes.FUNCTION_ERROR


async def test_a_content_type_that_cannot_be_said_is_refused(place: Place) -> None:
    got = await place.dispatcher.invoke(place.held, call(type="text/\udcff"))
    assert isinstance(got, Failure)
    assert got.kind is outcomes.BAD_REQUEST
    assert isinstance(await place.dispatcher.invoke(place.held, call()), Answer)


async def test_an_overlap_is_refused_without_a_call(place: Place) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(place.dispatcher.invoke(place.held, call(b"hang")))
        await place.functions.started.wait()
        second = await place.dispatcher.invoke(place.held, call(id="id-2"))
        assert isinstance(second, Failure)
        assert (second.kind, second.retry_after) == (outcomes.IN_FLIGHT, 1)
        assert len(place.functions.calls) == 1
        place.functions.release()
        assert isinstance(await first, Answer)


async def test_a_caller_that_leaves_frees_the_slot_only_with_the_result(place: Place) -> None:
    place.functions.linger = True
    async with asyncio.TaskGroup() as group:
        first = group.create_task(place.dispatcher.invoke(place.held, call(b"hang")))
        await place.functions.started.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await until(lambda: place.functions.cancelled == [place.functions.calls[0].uid])
        assert len(place.slots) == 1
        second = await place.dispatcher.invoke(place.held, call(id="id-2"))
        assert isinstance(second, Failure)
        assert second.kind is outcomes.IN_FLIGHT
    place.functions.release()
    await until(lambda: len(place.slots) == 0)
    assert place.stub.count("status") == 0, "the result is the proof"
    assert isinstance(await place.dispatcher.invoke(place.held, call(id="id-3")), Answer)


async def test_a_call_cancelled_by_its_id_answers_at_once(place: Place) -> None:
    place.functions.linger = True
    async with asyncio.TaskGroup() as group:
        first = group.create_task(place.dispatcher.invoke(place.held, call(b"hang")))
        await place.functions.started.wait()
        assert not place.dispatcher.cancel(RUN_UID, "another")
        assert place.dispatcher.cancel(RUN_UID, "id-1")
        got = await first
        assert isinstance(got, Failure)
        assert got.kind is outcomes.CANCELLED
        await until(lambda: place.functions.cancelled == [place.functions.calls[0].uid])
        assert len(place.slots) == 1
        place.functions.release()


async def test_a_deadline_that_the_server_does_not_keep_is_kept_here(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "DEADLINE_GRACE_SECONDS", 0.05)
    place.functions.linger = True
    place.stub.in_flight = 1
    got = await place.dispatcher.invoke(place.held, call(b"silent", seconds=0.05))
    assert isinstance(got, Failure)
    assert got.kind is outcomes.DEADLINE_EXCEEDED
    await until(lambda: place.stub.count("status") > 2, what="asked whether the work has ended")
    assert len(place.slots) == 1
    place.stub.in_flight = 0
    await until(lambda: len(place.slots) == 0)


async def test_a_connection_lost_in_the_middle_is_unknown_and_comes_back(place: Place) -> None:
    place.stub.in_flight = 1
    got = await place.dispatcher.invoke(place.held, call(b"cut"))
    assert isinstance(got, Failure)
    assert got.kind is outcomes.OUTCOME_UNKNOWN
    assert not got.kind.outcome.retry_safe
    assert place.lost == [place.held]
    assert len(place.slots) == 1, "whether the work has ended is not known"
    place.stub.in_flight = 0
    await until(lambda: len(place.slots) == 0)
    await until(lambda: place.link.usable, what="connected again")
    assert isinstance(await place.dispatcher.invoke(place.held, call()), Answer)


async def test_without_a_connection_the_call_goes_over_grpc(place: Place) -> None:
    place.functions.cut()
    await until(lambda: not place.link.usable)
    assert isinstance(await place.dispatcher.invoke(place.held, call()), Answer)
    assert place.stub.count("invoke") == 1


async def test_a_server_of_others_is_called_over_grpc(place: Place) -> None:
    place.held.linked = False
    assert isinstance(await place.dispatcher.invoke(place.held, call()), Answer)
    assert (place.stub.count("invoke"), place.functions.calls) == (1, [])


async def test_slots_are_exact_after_many_random_disconnects(place: Place) -> None:
    draw = random.Random(7)
    for number in range(150):
        body = draw.choice([b"echo", b"hang", b"code 500"])
        task = asyncio.ensure_future(place.dispatcher.invoke(place.held, call(body, id=f"id-{number}")))
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(0)
        if draw.random() < 0.3:
            await asyncio.sleep(draw.random() * 0.003)
        task.cancel()
        await asyncio.wait((task,))
        await until(lambda: len(place.slots) == 0, what="free again")
        assert not place.functions.running, "never free before the work has ended"
    assert len(place.functions.calls) > 20


async def test_progress_of_a_call_is_a_stream_that_ends_with_its_work(place: Place) -> None:
    seen: list[tuple[int, int] | None] = []
    late: list[tuple[int, int] | None] = []

    def into(steps: list[tuple[int, int] | None]) -> Follower:
        return lambda step: steps.append(None if step is None else (step.done, step.total))

    async with asyncio.TaskGroup() as group:
        first = group.create_task(place.dispatcher.invoke(place.held, call(b"hang")))
        await place.functions.started.wait()
        assert place.dispatcher.follow(RUN_UID, "another", into(seen)) is None
        leave = place.dispatcher.follow(RUN_UID, "id-1", into(seen))
        assert leave is not None
        for done in (1, 2, 1):
            place.functions.report(done, 4)
        await until(lambda: seen == [(1, 4), (2, 4)])
        assert place.dispatcher.follow(RUN_UID, "id-1", into(late)) is not None
        assert late == [(2, 4)], "who comes later learns at once how far it is"
        leave()
        place.functions.report(3, 4)
        await until(lambda: late == [(2, 4), (3, 4)])
        for _ in range(progress.MAX_FOLLOWERS - 1):
            place.dispatcher.follow(RUN_UID, "id-1", into([]))
        with pytest.raises(progress.TooManyFollowers):
            place.dispatcher.follow(RUN_UID, "id-1", into([]))
        place.functions.release()
        assert isinstance(await first, Answer)
    assert (seen, late) == ([(1, 4), (2, 4)], [(2, 4), (3, 4), None])
    assert place.dispatcher.follow(RUN_UID, "id-1", into(seen)) is None


async def test_the_largest_bodies_pass_both_ways(place: Place) -> None:
    body = b"x" * outcomes.MAX_BODY_BYTES
    got = await place.dispatcher.invoke(place.held, call(body))
    assert isinstance(got, Answer)
    assert got.output == body
