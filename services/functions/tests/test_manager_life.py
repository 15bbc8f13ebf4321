"""The manager's clock, its back-pressure and its end, on a real event loop."""

import asyncio
import json
import logging
import threading
import time

import pytest
from tests.test_functions_metrics import Waits
from tests.test_manager_calls import Caller, call, echo

from kruntimes.functions.bounds import Bounds
from kruntimes.functions.engine import Cancelled
from kruntimes.functions.handlers import Inline, Plain, Threads, adapt
from kruntimes.functions.invocation import Invocation, Why
from kruntimes.functions.manager import Manager
from kruntimes.functions.routes import OverlappingPrefix


async def test_a_deadline_comes_without_any_other_input() -> None:
    manager, caller = Manager(), Caller()
    manager.register("fn", Waits())
    manager.admit(call("slow", timeout=600), caller)
    manager.admit(call("t", timeout=600), caller, timeout=0.01)
    assert (await caller.answer("t")).code == 504
    manager.cut_short()
    assert await manager.stop()


async def test_many_calls_share_one_timer() -> None:
    manager, caller = Manager(Bounds(workers=100, queue_size=100)), Caller()
    loop = asyncio.get_running_loop()
    made = []
    manager._loop = type("Loop", (), {"call_later": lambda _, *a: made.append(a) or loop.call_later(*a)})()  # type: ignore[assignment]
    manager.register("fn", Inline(echo))
    for number in range(1000):
        manager.admit(call(f"t{number}", timeout=60 + number), caller)
    assert len(caller.events) == 1000
    assert len(made) <= 1
    assert await manager.stop()


async def test_a_full_queue_is_told_and_so_is_room() -> None:
    room: list[bool] = []
    host, caller = Waits(), Caller()
    manager = Manager(Bounds(queue_size=2, read_ahead_calls=1), on_room=lambda: room.append(True))
    manager.register("fn", host)
    for number in range(3):
        manager.admit(call(f"t{number}"), caller)
    assert not manager.saturated
    manager.admit(call("t3"), caller)
    assert manager.saturated
    assert manager.cancel("t3") is Cancelled.ANSWERED
    assert room == [True]
    manager.cut_short()
    assert await manager.stop()


async def test_waiting_payloads_are_bounded_in_bytes() -> None:
    manager, caller = Manager(Bounds(read_ahead_bytes=9)), Caller()
    manager.register("fn", Waits())
    for uid in ("t1", "t2"):
        manager.admit(call(uid), caller)
    assert not manager.saturated
    manager.admit(call("t3"), caller)
    assert manager.saturated
    manager.cut_short()
    assert await manager.stop()


async def test_without_a_read_ahead_the_manager_still_takes_calls() -> None:
    manager, caller = Manager(Bounds(queue_size=1, read_ahead_calls=0, read_ahead_bytes=0)), Caller()
    manager.register("fn", Inline(echo))
    assert not manager.saturated
    manager.admit(call("t1"), caller)
    assert not manager.saturated
    assert await manager.stop()


async def test_the_end_lets_calls_finish_first() -> None:
    host, caller = Waits(), Caller()
    manager = Manager()
    manager.register("fn", host)
    manager.admit(call("t1"), caller)
    async with asyncio.TaskGroup() as tasks:
        stopping = tasks.create_task(manager.stop())
        again = tasks.create_task(manager.stop())
        await asyncio.sleep(0)
        manager.admit(call("t2"), caller)
        assert (await caller.answer("t2")).code == 503
        host.invocation.complete(host.invocation.answer(b"in time"))
    assert (await caller.answer("t1")).body == b"in time"
    assert stopping.result()
    assert again.result()


async def test_the_end_is_bounded() -> None:
    caller = Caller()
    release = threading.Event()

    def stubborn(_: Invocation) -> None:
        release.wait()

    threads = Threads(1)
    manager = Manager(Bounds(drain=0.01, reap=0.01))
    manager.register("fn", Plain(stubborn, threads))
    for uid in ("t1", "t2"):
        manager.admit(call(uid), caller)
    assert not await manager.stop(), "work goes on that cannot be ended"
    assert [(await caller.answer(uid)).code for uid in ("t1", "t2")] == [499, 499]
    release.set()
    threads.close()


async def test_any_component_may_answer_by_id() -> None:
    host, caller = Waits(), Caller()
    manager = Manager()
    manager.register("fn", host)
    manager.admit(call("t"), caller)
    assert manager.answer(host.invocation.answer(b"from elsewhere"))
    assert not manager.answer(host.invocation.answer(b"again"))
    host.invocation.end()
    assert [event.body for event in caller.events if hasattr(event, "body")] == [b"from elsewhere"]
    assert await manager.stop()


async def test_a_sink_or_a_handler_that_fails_harms_no_other_call(caplog: pytest.LogCaptureFixture) -> None:
    class Breaks(Waits):
        def stop(self, invocation: Invocation, why: Why) -> None:
            raise RuntimeError("stop")

    def broken_sink(_: object) -> None:
        raise RuntimeError("sink")

    host, caller = Breaks(), Caller()
    manager = Manager(Bounds(workers=2, cancel_grace=0.0))
    manager.register("fn", host)
    manager.register("echo", Inline(echo))
    manager.admit(call("t0", "echo"), broken_sink)
    manager.admit(call("t1"), caller)
    manager.cancel("t1")
    manager.admit(call("t2", "echo"), caller)
    assert (await caller.answer("t2")).code == 200
    assert (await caller.answer("t1")).code == 499
    assert await manager.stop()


async def test_overlapping_prefixes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    manager = Manager()
    manager.register_prefix("fn", "a", Inline(echo))
    with pytest.raises(OverlappingPrefix):
        manager.register_prefix("fn", "ab", Inline(echo))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    manager.unregister_prefix("fn", "a")
    manager.unregister("fn")
    assert await manager.stop()


async def test_a_call_that_stays_unanswered_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    manager, caller = Manager(Bounds(awaiting_warning=0.01)), Caller()
    manager.register("fn", Inline(lambda _: None))
    manager.admit(call("t1"), caller)
    async with asyncio.timeout(20):
        while "call awaits its result" not in caplog.messages:
            await asyncio.sleep(0.01)
    assert caller.events == []
    assert await manager.stop()
    assert (await caller.answer("t1")).code == 499


async def test_whoever_waits_for_a_function_to_be_idle_is_told() -> None:
    host, caller = Waits(), Caller()
    manager = Manager(Bounds(workers=4))
    manager.register("fn", host)
    await manager.idle("fn")
    manager.admit(call("t1"), caller)
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(manager.idle("fn")) for _ in range(2)]
        await asyncio.sleep(0)
        host.invocation.finish(host.invocation.answer(b""))
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting), "answered, but its work goes on"
        host.invocation.end()
    assert await manager.stop()


@pytest.mark.parametrize("outcome", [b"bytes", 7, "another"])
async def test_what_is_no_answer_is_500(outcome: object) -> None:
    def returns(invocation: Invocation) -> object:
        return call_result if outcome == "another" else outcome

    call_result = Invocation.answer(type("I", (), {"call": call("other")})(), b"")  # type: ignore[arg-type]
    manager, caller = Manager(), Caller()
    manager.register("fn", Inline(returns))  # type: ignore[arg-type]
    manager.admit(call("t"), caller)
    document = json.loads((await caller.answer("t")).body)
    assert document["status"] == 500
    assert await manager.stop()


def test_what_cannot_be_a_handler_is_refused() -> None:
    with pytest.raises(TypeError, match="int"):
        adapt(3, threads=Threads(1), tasks=asyncio.TaskGroup())


def test_threads_are_no_more_than_were_ever_needed() -> None:
    threads, gates = Threads(2), [threading.Event() for _ in range(4)]
    done = threading.Semaphore(0)

    def work(gate: threading.Event) -> None:
        gate.wait(20)
        done.release()

    for gate in gates:
        threads.run(lambda gate=gate: work(gate))  # type: ignore[misc]
    assert threads._count == 2
    for gate in gates:
        gate.set()
    for _ in gates:
        assert done.acquire(timeout=20)
    limit = time.monotonic() + 20
    while threads._idle < 2 and time.monotonic() < limit:
        time.sleep(0.001)
    threads.run(lambda: done.release())  # type: ignore[misc]
    assert done.acquire(timeout=20)
    assert threads._count == 2
    threads.close()
