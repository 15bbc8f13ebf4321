"""Calls through the manager with real handlers: each kind, and what they owe for each call."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator

import pytest
from tests.garbage import least_garbage

from kruntimes.functions.bounds import Bounds
from kruntimes.functions.handlers import Asynchronous, Inline, Plain, Threads, adapt
from kruntimes.functions.ingress import Ingress
from kruntimes.functions.invocation import Invocation, Why
from kruntimes.functions.manager import Manager
from kruntimes.functions.wire.events import Call, Mode, Progress, Result
from kruntimes.functions.wire.invocations import invocation_frame

WAIT = 20.0


class Caller:
    """Keeps what came back, and waits for answers."""

    def __init__(self) -> None:
        self.events: list[Result | Progress] = []
        self._answered: dict[str, asyncio.Future[Result]] = {}

    def __call__(self, event: Result | Progress) -> None:
        self.events.append(event)
        if isinstance(event, Result):
            self._future(event.uid).set_result(event)

    async def answer(self, uid: str) -> Result:
        async with asyncio.timeout(WAIT):
            return await self._future(uid)

    def _future(self, uid: str) -> asyncio.Future[Result]:
        return self._answered.setdefault(uid, asyncio.get_running_loop().create_future())


def call(uid: str = "tx1", function: str = "fn", *, timeout: int = 60, args: tuple[str, ...] = ()) -> Call:
    return Call(uid=uid, timeout=timeout, function=function, args=args, payload=b"hello")


def echo(invocation: Invocation) -> Result:
    return invocation.answer(invocation.call.payload or b"")


@pytest.fixture
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group


@pytest.mark.parametrize("kind", ["inline", "plain", "async"])
async def test_each_kind_of_handler_answers(tasks: asyncio.TaskGroup, kind: str) -> None:
    async def echo_async(invocation: Invocation) -> Result:
        await asyncio.sleep(0)
        return echo(invocation)

    threads = Threads(2)
    handlers = {"inline": Inline(echo), "plain": Plain(echo, threads), "async": Asynchronous(echo_async, tasks)}
    manager, caller = Manager(Bounds(workers=2)), Caller()
    manager.register("fn", handlers[kind])
    manager.admit(call(), caller)
    result = await caller.answer("tx1")
    assert (result.code, result.body) == (200, b"hello")
    assert await manager.stop()
    threads.close()


@pytest.mark.parametrize("kind", ["inline", "plain", "async"])
async def test_a_panic_is_answered_500_and_the_lane_goes_on(tasks: asyncio.TaskGroup, kind: str) -> None:
    def broken(_: Invocation) -> Result:
        raise RuntimeError("secret of the payload")

    async def broken_async(invocation: Invocation) -> Result:
        return broken(invocation)

    threads = Threads(2)
    handlers = {"inline": Inline(broken), "plain": Plain(broken, threads), "async": Asynchronous(broken_async, tasks)}
    manager, caller = Manager(), Caller()
    manager.register("fn", handlers[kind])
    for uid in ("tx1", "tx2"):
        manager.admit(call(uid), caller)
    for uid in ("tx1", "tx2"):
        result = await caller.answer(uid)
        assert result.code == 500
        assert b"secret" not in result.body
    assert await manager.stop()
    threads.close()


async def test_a_coroutine_is_cancelled_when_its_call_is(tasks: asyncio.TaskGroup) -> None:
    started = asyncio.Event()

    async def waits(_: Invocation) -> Result | None:
        started.set()
        await asyncio.Event().wait()
        return None

    manager, caller = Manager(), Caller()
    manager.register("fn", adapt(waits, threads=Threads(1), tasks=tasks))
    manager.admit(call(), caller)
    await started.wait()
    manager.cancel("tx1")
    assert (await caller.answer("tx1")).code == 499
    assert manager.stats.cancel_fallback == 0
    assert await manager.stop()


async def test_a_coroutine_cancelled_before_its_first_step_gives_its_lane_back(
    tasks: asyncio.TaskGroup,
) -> None:
    async def brief(invocation: Invocation) -> Result:
        return echo(invocation)

    manager, caller = Manager(), Caller()
    manager.register("fn", Asynchronous(brief, tasks))
    manager.admit(call(), caller)
    manager.cancel("tx1")
    assert (await caller.answer("tx1")).code == 499
    manager.admit(call("tx2"), caller)
    assert (await caller.answer("tx2")).code == 200
    assert manager.stats.cancel_fallback == 0
    assert await manager.stop()


async def test_a_thread_answers_later_from_another_thread() -> None:
    later: list[threading.Thread] = []

    def leaves(invocation: Invocation) -> None:
        thread = threading.Thread(target=lambda: invocation.finish(invocation.answer(b"late")))
        later.append(thread)
        thread.start()

    threads, manager, caller = Threads(1), Manager(), Caller()
    manager.register("fn", Plain(leaves, threads))
    manager.admit(call(), caller)
    assert (await caller.answer("tx1")).body == b"late"
    later[0].join()
    assert await manager.stop()
    threads.close()


async def test_a_process_host_is_told_to_stop_and_killed() -> None:
    told: list[str] = []

    class Host:
        def start(self, invocation: Invocation) -> None:
            self.invocation = invocation

        def stop(self, invocation: Invocation, why: Why) -> None:
            told.append(why.value)

        def kill(self, invocation: Invocation) -> None:
            told.append("kill")

    host, caller = Host(), Caller()
    manager = Manager(Bounds(cancel_grace=0.0))
    manager.register("fn", adapt(host, threads=Threads(1), tasks=asyncio.TaskGroup()))
    manager.admit(call(), caller)
    manager.admit(call("tx2"), caller)
    manager.cancel("tx1")
    assert (await caller.answer("tx1")).code == 499
    assert told == ["cancelled", "kill"]
    assert host.invocation.uid == "tx1", "the lane is closed while the old process lives"
    host.invocation.end()
    assert host.invocation.uid == "tx2"
    host.invocation.complete(host.invocation.answer(b"second"))
    assert (await caller.answer("tx2")).body == b"second"
    assert await manager.stop()


async def test_a_call_from_bytes_to_bytes_leaves_nothing_to_the_garbage_collector() -> None:
    manager, written = Manager(Bounds()), list[bytes]()
    manager.register("fn", Inline(echo))
    ingress = Ingress(manager, Mode.LINK, written.append, on_end=lambda: None)
    numbers = itertools.count()

    def calls() -> None:
        for _ in range(10):
            ingress.feed(
                invocation_frame(
                    tx=f"t{next(numbers)}", registration="fn", invocation_id="id", attempt=1, millis=5000,
                    payload=b"1", content_type="",
                )
            )  # fmt: skip

    assert least_garbage(calls) == 0
    assert len(written) == next(numbers)
    assert await manager.stop()
