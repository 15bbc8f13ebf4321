"""Invocations over a real socket: outcomes, and that a slot lives exactly as long as its work."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.runtimed_stub import Stub, serving, until
from tests.runtimed_world import RUN_UID, Place, call, dispatching, registered

from kruntimes.common.api import outcomes
from kruntimes.common.api.outcomes import Failure, Kind
from kruntimes.runtimed import dispatch
from kruntimes.runtimed.dispatch import Dispatcher
from kruntimes.runtimed.invocation import Answer
from kruntimes.runtimed.observed import Stage
from kruntimes.runtimed.registration import RuntimeServer
from kruntimes.runtimed.slots import Slots

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with dispatching(tmp_path) as made:
        yield made


async def test_an_answer_is_passed_on_and_frees_the_slot(place: Place) -> None:
    got = await place.dispatcher.invoke(place.held, call())
    assert isinstance(got, Answer)
    assert (got.output, got.content_type, got.outputs) == (b"echo", "text/plain", {"k": "v"})
    assert len(place.slots) == 0
    assert place.ended == [], "an open function needs no one to look at it"
    assert place.held.last_activity > 0
    sent = place.stub.last("invoke")
    assert (sent.invocation_id, sent.registration.registration_id) == ("id-1", f"{RUN_UID}/1")
    assert 4000 < sent.timeout_millis <= 5000


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"raise", outcomes.FUNCTION_ERROR),
        (b"busy", outcomes.IN_FLIGHT),
        (b"deadline", outcomes.DEADLINE_EXCEEDED),
        (b"input", outcomes.BAD_INPUT),
    ],
)
async def test_failures(place: Place, body: bytes, kind: Kind) -> None:
    got = await place.dispatcher.invoke(place.held, call(body))
    assert isinstance(got, Failure)
    assert got.kind is kind
    assert (got.retry_after is not None) == (kind.status in (429, 503))
    await until(lambda: len(place.slots) == 0)


async def test_a_function_error_keeps_its_parts(place: Place) -> None:
    got = await place.dispatcher.invoke(place.held, call(b"raise"))
    assert isinstance(got, Failure)
    assert got.message == "ValueError: bad"
    assert (got.details["type"], got.details["message"]) == ("ValueError", "bad")
    assert len(got.details["traceback"]) == 4096


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"output": b"x" * (outcomes.MAX_OUTPUT_BYTES + 1)}, id="output"),
        pytest.param({"outputs": {"k": "v" * 9000}}, id="outputs"),
    ],
)
async def test_a_foreign_server_is_held_to_the_bounds(place: Place, answer: dict[str, object]) -> None:
    place.stub.answer = answer
    got = await place.dispatcher.invoke(place.held, call())
    assert isinstance(got, Failure)
    assert got.kind is outcomes.FUNCTION_ERROR
    assert "at most" in got.message


async def test_an_overlap_is_refused_without_a_call(place: Place) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(place.dispatcher.invoke(place.held, call(b"hang")))
        await place.stub.started.wait()
        second = await place.dispatcher.invoke(place.held, call(id="id-2"))
        assert isinstance(second, Failure)
        assert (second.kind, second.retry_after) == (outcomes.IN_FLIGHT, 1)
        assert place.stub.count("invoke") == 1
        place.stub.release.set()
        assert isinstance(await first, Answer)


async def test_a_caller_that_leaves_frees_the_slot_only_when_the_work_has_ended(place: Place) -> None:
    place.stub.linger = True
    async with asyncio.TaskGroup() as group:
        first = group.create_task(place.dispatcher.invoke(place.held, call(b"hang")))
        await place.stub.started.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await until(lambda: place.stub.count("status") > 2, what="asked whether the work has ended")
        assert len(place.slots) == 1
        second = await place.dispatcher.invoke(place.held, call(id="id-2"))
        assert isinstance(second, Failure)
        assert second.kind is outcomes.IN_FLIGHT
    place.stub.release.set()
    await until(lambda: len(place.slots) == 0)
    assert isinstance(await place.dispatcher.invoke(place.held, call(id="id-3")), Answer)


async def test_a_call_cancelled_by_its_id_answers_at_once(place: Place) -> None:
    place.stub.linger = True
    async with asyncio.TaskGroup() as group:
        first = group.create_task(place.dispatcher.invoke(place.held, call(b"hang")))
        await place.stub.started.wait()
        assert not place.dispatcher.cancel(RUN_UID, "another")
        assert not place.dispatcher.cancel("run-2", "id-1")
        assert place.dispatcher.cancel(RUN_UID, "id-1")
        got = await first
        assert isinstance(got, Failure)
        assert got.kind is outcomes.CANCELLED
        assert len(place.slots) == 1
        place.stub.release.set()


async def test_a_deadline_that_the_server_does_not_keep_is_kept_here(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "DEADLINE_GRACE_SECONDS", 0.05)
    place.stub.linger = True
    got = await place.dispatcher.invoke(place.held, call(b"hang", seconds=0.05))
    assert isinstance(got, Failure)
    assert got.kind is outcomes.DEADLINE_EXCEEDED
    assert len(place.slots) == 1
    place.stub.release.set()
    await until(lambda: len(place.slots) == 0)


async def test_a_registration_that_the_server_forgot_is_looked_at(place: Place) -> None:
    place.stub.functions.clear()
    got = await place.dispatcher.invoke(place.held, call())
    assert isinstance(got, Failure)
    assert (got.kind, got.retry_after) == (outcomes.NOT_READY, 1)
    assert place.lost == [place.held]
    assert len(place.slots) == 0


async def test_a_server_killed_in_the_middle_is_unknown(tmp_path: Path) -> None:
    socket = tmp_path / "executor.sock"
    stub, server, slots = Stub(functions={RUN_UID: f"{RUN_UID}/1"}), RuntimeServer(), Slots()
    async with asyncio.TaskGroup() as tasks:
        dispatcher = Dispatcher(
            server=server, slots=slots, tasks=tasks, on_ended=lambda _: None, on_lost=lambda _: None
        )
        mine = registered()
        async with serving(stub, socket) as running:
            await server.connect(socket=socket, port=1)
            first = tasks.create_task(dispatcher.invoke(mine, call(b"hang")))
            await stub.started.wait()
            await running.stop(0)
            got = await first
            assert isinstance(got, Failure)
            assert got.kind is outcomes.OUTCOME_UNKNOWN
            assert not got.kind.outcome.retry_safe
        await until(lambda: not server.connected)
        assert len(slots) == 1, "whether the work has ended is not known"
        mine.stage = Stage.RELEASED
        await until(lambda: len(slots) == 0)
        later = await dispatcher.invoke(mine, call())
        assert isinstance(later, Failure)
        assert (later.kind, later.kind.outcome.retry_safe) == (outcomes.NOT_READY, True)
        await server.close()


async def test_slots_are_exact_after_many_random_disconnects(place: Place) -> None:
    draw = random.Random(7)
    place.stub.release.set()
    for number in range(150):
        body = draw.choice([b"echo", b"hang", b"raise"])
        if body == b"hang":
            place.stub.release.clear()
        task = asyncio.ensure_future(place.dispatcher.invoke(place.held, call(body, id=f"id-{number}")))
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(0)
        if draw.random() < 0.3:
            await asyncio.sleep(draw.random() * 0.003)
        task.cancel()
        await asyncio.wait((task,))
        await until(lambda: len(place.slots) == 0, what="free again")
        assert place.stub.in_flight == 0, "never free before the work has ended"
    assert place.stub.count("invoke") > 20


async def test_the_largest_bodies_pass_both_ways(place: Place) -> None:
    body = b"x" * outcomes.MAX_BODY_BYTES
    got = await place.dispatcher.invoke(place.held, call(body))
    assert isinstance(got, Answer)
    assert got.output == body
