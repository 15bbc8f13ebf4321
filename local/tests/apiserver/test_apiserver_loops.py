"""How loops are driven: order, waiting, failures; and all of them together as the server runs them."""

import asyncio
from collections.abc import Awaitable, Callable

from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver.plane import POD, Json, Loops, Plane

from kruntimes.local.apiserver.loops.all_loops import loops
from kruntimes.local.apiserver.loops.expiry import MAX_EVENTS, Events
from kruntimes.local.apiserver.loops.work import Keys, follow
from kruntimes.local.apiserver.store import Event

LIMIT_SECONDS = 10.0


def test_keys_come_once_and_in_order() -> None:
    keys: Keys[str] = Keys()
    for key in ("a", "b", "a", "c"):
        keys.add(key)
    assert [keys.take(0), keys.take(0), keys.take(0), keys.take(0)] == ["a", "b", "c", None]


def test_the_last_word_about_a_key_counts() -> None:
    keys: Keys[str] = Keys()
    keys.add_at("a", 5)
    keys.add_at("b", 3)
    keys.add_at("a", 8)
    assert keys.wait(1) == 2
    assert (keys.take(4), keys.take(6)) == ("b", None)
    assert keys.wait(6) == 2
    keys.add("a")
    assert (keys.wait(6), keys.take(6), keys.take(9)) == (0.0, "a", None)
    assert (keys.wait(9), len(keys)) == (None, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 20))), max_size=20))
def test_every_key_comes_at_its_last_time(asked: list[tuple[str, int | None]]) -> None:
    keys: Keys[str] = Keys()
    due: dict[str, int] = {}
    for key, when in asked:
        if when is None:
            keys.add(key)
        else:
            keys.add_at(key, when)
        due[key] = -1 if when is None else when
        if when is not None and any(k == key and w is None for k, w in asked):
            due[key] = -1  # asked for at once before: that stands until it is taken
    seen: dict[str, int] = {}
    for now in range(21):
        while (taken := keys.take(now)) is not None:
            seen.setdefault(taken, now)
    assert set(seen) == set(due)
    assert all(seen[key] == max(when, 0) for key, when in due.items() if when >= 0)


async def until(check: Callable[[], object]) -> None:
    """Waits for a condition, with a limit."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not check():
            await asyncio.sleep(0)


async def while_running(loop: Awaitable[None], body: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(loop)
    try:
        await body()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_failure_is_repeated_and_does_not_stop_the_others() -> None:
    plane, seen = Plane(), list[str]()

    def reconcile(key: str) -> float | None:
        seen.append(key)
        if key == "bad" and seen.count("bad") < 3:
            raise ValueError("not yet")
        return None

    def keys(event: Event) -> list[str]:
        return [event.object["metadata"]["name"]] if event.resource == ("", "configmaps") else []

    async def body() -> None:
        await until(lambda: seen.count("start") == 1)
        plane.make("configmaps", "bad")
        plane.make("configmaps", "good")
        await until(lambda: seen.count("bad") == 3 and "good" in seen)

    await while_running(follow(plane.api, keys=keys, reconcile=reconcile, start=["start"]), body)
    plane.make("configmaps", "later")
    assert "later" not in seen, "it has stopped listening"


async def test_a_loop_that_does_not_understand_a_write_does_not_hinder_it() -> None:
    plane = Plane()

    def keys(event: Event) -> list[str]:
        raise KeyError("labels")

    async def body() -> None:
        await asyncio.sleep(0)
        assert plane.make("configmaps", "c")["metadata"]["name"] == "c"

    await while_running(follow(plane.api, keys=keys, reconcile=lambda key: None), body)


async def test_a_loop_comes_back_by_itself() -> None:
    plane, seen = Plane(), list[str]()

    def reconcile(key: str) -> float | None:
        seen.append(key)
        return 0.001 if len(seen) < 3 else None

    async def body() -> None:
        await until(lambda: len(seen) == 3)

    await while_running(follow(plane.api, keys=lambda event: [], reconcile=reconcile, start=["a"]), body)


async def test_all_of_them_together() -> None:
    plane = Plane()
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template}

    def pods() -> list[Json]:
        return plane.all("pods")

    async def body() -> None:
        plane.make("namespaces", "demo")
        await until(lambda: plane.found("serviceaccounts", "default", namespace="demo"))
        plane.make("replicasets", "r", namespace="demo", spec=spec)
        await until(lambda: len(pods()) == 3)
        plane.remove("replicasets", "r", namespace="demo")
        await until(lambda: not pods())
        plane.make("replicasets", "r", namespace="demo", spec=spec)
        await until(lambda: len(pods()) == 3)
        plane.remove("namespaces", "demo")
        await until(lambda: plane.found("namespaces", "demo") is None)
        assert not pods()
        view = plane.found("clusterroles", "view")
        assert view is not None
        assert view["rules"]

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for loop in loops(ca="the CA"):
                group.create_task(loop(plane.api))

    await while_running(run(), body)


def test_events_are_deleted_by_age_since_their_last_write() -> None:
    plane = Plane()
    events = Loops(plane, Events(plane.api))
    plane.make("events", "e", involvedObject={"namespace": "default"})
    events.settle()
    assert events.waits == {("default", "e"): 3600}
    plane.pass_time(1800)
    plane.api.change(plane.of("events"), "default", "e", lambda obj: {**obj, "count": 2})
    plane.pass_time(1800)
    events.look(("default", "e"))
    events.settle()
    assert events.waits == {("default", "e"): 1800}
    plane.pass_time(1800)
    events.look(("default", "e"))
    events.settle()
    assert plane.found("events", "e") is None


def test_the_oldest_events_give_way() -> None:
    plane = Plane()
    events = Loops(plane, Events(plane.api))
    for i in range(MAX_EVENTS + 3):
        plane.make("events", f"e{i}", involvedObject={"namespace": "default"})
        events.settle()
    assert len(plane.all("events")) == MAX_EVENTS
    assert plane.found("events", "e2") is None
    assert plane.found("events", "e3") is not None
