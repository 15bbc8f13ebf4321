"""The work queue and its loop, in virtual time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from kruntimes.common.errors import Busy, Terminal
from kruntimes.common.kube.errors import Conflict, TooManyRequests, Unreachable
from kruntimes.common.kube.queue import After, Done, WorkQueue, work

pytestmark = pytest.mark.looptime


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the queue has said; servers of other tests may still have something to say."""
    return [record.message for record in caplog.records if record.name == WorkQueue.__module__]


def _now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_key_waits_once_and_keys_come_in_order() -> None:
    queue = WorkQueue()
    for key in ("a", "b", "a", "b", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_is_never_worked_on_twice_at_once_and_comes_again_after_done() -> None:
    queue = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_of_several_delays_the_earliest_counts() -> None:
    queue, start = WorkQueue(), _now()
    queue.add_after("a", 30)
    queue.add_after("a", 5)
    queue.add_after("a", 60)
    assert await queue.get() == "a"
    assert _now() - start == pytest.approx(5)
    queue.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 300)


async def test_a_change_does_not_wait_for_a_delay() -> None:
    queue, start = WorkQueue(), _now()
    queue.add_after("a", 30)
    queue.add("a")
    assert await queue.get() == "a"
    assert _now() == start


async def test_beyond_its_bound_the_queue_says_so() -> None:
    queue = WorkQueue(max_keys=2)
    queue.add("a")
    queue.add_after("b", 5)
    for ask in (lambda: queue.add("c"), lambda: queue.add_after("c", 1)):
        with pytest.raises(Busy):
            ask()
    queue.add("a")
    queue.add_after("b", 1)


async def test_a_waiter_that_is_cancelled_takes_no_key_with_it() -> None:
    queue = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 1) == "a"


async def _work_for(
    seconds: float, reconcile: Callable[[str], Awaitable[Done | After]], *keys: str, workers: int = 1
) -> WorkQueue:
    queue = WorkQueue()
    for key in keys:
        queue.add(key)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await work(queue, reconcile, workers=workers)
    return queue


async def test_after_brings_the_key_again_and_done_does_not() -> None:
    at: list[tuple[str, float]] = []
    start = _now()

    async def reconcile(key: str) -> Done | After:
        at.append((key, _now() - start))
        return After(10) if key == "again" else Done()

    await _work_for(25, reconcile, "again", "once")
    assert [(key, pytest.approx(when)) for key, when in at] == [
        ("again", 0),
        ("once", 0),
        ("again", 10),
        ("again", 20),
    ]


async def test_workers_share_keys_and_never_one_key() -> None:
    active: set[str] = set()
    most = 0

    async def reconcile(key: str) -> Done | After:
        nonlocal most
        assert key not in active
        active.add(key)
        most = max(most, len(active))
        await asyncio.sleep(1)
        active.discard(key)
        return After(0)

    await _work_for(10, reconcile, *"abcdef", workers=3)
    assert most == 3


@pytest.mark.parametrize(
    ("error", "at_least", "at_most"),
    [
        pytest.param(lambda: Unreachable(status=0), 6, 12, id="back-off-doubles"),
        pytest.param(lambda: Conflict(status=409), 6, 12, id="conflict-too"),
        pytest.param(lambda: RuntimeError("a bug"), 6, 12, id="any-error"),
        pytest.param(lambda: TooManyRequests(status=429, retry_after=20.0), 2, 2, id="what-the-server-asks"),
        pytest.param(lambda: Terminal("no"), 1, 1, id="terminal-errors-are-not-repeated"),
    ],
)
async def test_errors_are_tried_again_with_back_off(
    error: Callable[[], Exception], at_least: int, at_most: int
) -> None:
    tries = 0

    async def reconcile(key: str) -> Done | After:
        nonlocal tries
        tries += 1
        raise error()

    await _work_for(30, reconcile, "a")
    assert at_least <= tries <= at_most


async def test_one_key_s_errors_do_not_delay_another() -> None:
    good = 0

    async def reconcile(key: str) -> Done | After:
        nonlocal good
        if key == "bad":
            raise Unreachable(status=0)
        good += 1
        return After(1)

    await _work_for(10.5, reconcile, "bad", "good")
    assert good == 11


async def test_each_outcome_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tries = 0

    async def reconcile(key: str) -> Done | After:
        nonlocal tries
        tries += 1
        if tries < 5:
            raise Unreachable(status=0, message="no answer")
        if tries == 5:
            raise Conflict(status=409)
        return After(100)

    await _work_for(150, reconcile, "a")
    assert told(caplog) == ["reconcile failed", "reconciled again"]


async def test_a_conflict_is_told_only_when_it_does_not_go_away(caplog: pytest.LogCaptureFixture) -> None:
    told_after: list[int] = []

    async def reconcile(key: str) -> Done | After:
        told_after.append(len(told(caplog)))
        raise Conflict(status=409)

    await _work_for(60, reconcile, "a")
    assert told_after[:7] == [0, 0, 0, 0, 0, 0, 1]
    assert len(told(caplog)) == 1


async def test_nothing_fires_after_the_end() -> None:
    async def reconcile(key: str) -> Done | After:
        return After(50)

    queue = await _work_for(10, reconcile, "a")
    await asyncio.sleep(100)
    assert len(queue) == 0
