"""Which UID has which name, change by change."""

import asyncio
from typing import Any, cast

import pytest

from kruntimes.authz.index import MAX_WAITING, Index, Names
from kruntimes.common import clock
from kruntimes.common.api.views import Meta, Object
from kruntimes.common.kube.errors import Unreachable
from kruntimes.common.kube.transport import Kube


def run(name: str, uid: str, namespace: str = "team-a") -> tuple[str, Object]:
    return f"{namespace}/{name}", Object(metadata=Meta(name=name, namespace=namespace, uid=uid))


def test_a_run_is_known_until_it_goes() -> None:
    names = Names()
    key, hello = run("hello", "uid-1")
    assert names.apply(key, hello) == "uid-1"
    assert names.name(namespace="team-a", uid="uid-1") == "hello"
    assert names.apply(key, hello) is None, "nothing has become known"
    assert names.apply(key, None) is None
    assert names.name(namespace="team-a", uid="uid-1") is None
    assert len(names) == 0


def test_a_name_that_is_used_again_is_another_run() -> None:
    names = Names()
    for uid in ("uid-1", "uid-2"):
        assert names.apply(*run("hello", uid)) == uid
    assert names.name(namespace="team-a", uid="uid-1") is None
    assert names.name(namespace="team-a", uid="uid-2") == "hello"
    assert len(names) == 1


def test_a_run_of_another_namespace_is_as_good_as_none() -> None:
    names = Names()
    names.apply(*run("hello", "uid-1", "team-b"))
    assert names.name(namespace="team-a", uid="uid-1") is None
    assert names.name(namespace="team-b", uid="uid-1") == "hello"


@pytest.mark.parametrize("found", [None, Object()], ids=["gone", "without-a-uid"])
def test_what_was_never_known_changes_nothing(found: Object | None) -> None:
    names = Names()
    assert names.apply("team-a/hello", found) is None
    assert len(names) == 0


def index() -> tuple[Index, Any]:
    """An index whose watch is in the test's hands: set the store, then tell the key."""
    made = Index(cast(Kube, None))
    return made, cast(Any, made)._reflector


def appear(made: Index, reflector: Any, key: str, found: Object) -> None:
    reflector.store[key] = found
    cast(Any, made)._changed(key)


LONG = 60.0
"""Seconds that no test waits for."""


async def test_a_run_that_appears_meanwhile_is_found() -> None:
    made, reflector = index()
    until = clock.monotonic() + LONG
    waiting = [asyncio.create_task(made.appears(namespace="team-a", uid="uid-1", until=until)) for _ in range(3)]
    await asyncio.sleep(0)
    appear(made, reflector, *run("other", "uid-0"))
    appear(made, reflector, *run("hello", "uid-1"))
    assert await asyncio.gather(*waiting) == ["hello"] * 3
    assert made.name(namespace="team-a", uid="uid-1") == "hello"


async def test_a_run_that_appears_in_another_namespace_is_not_found() -> None:
    made, reflector = index()
    waiting = asyncio.create_task(made.appears(namespace="team-a", uid="uid-1", until=clock.monotonic() + LONG))
    await asyncio.sleep(0)
    appear(made, reflector, *run("hello", "uid-1", "team-b"))
    assert await waiting is None


async def test_one_that_is_known_is_waited_for_as_long_as_one_that_never_comes() -> None:
    made, reflector = index()
    appear(made, reflector, *run("hello", "uid-1"))
    until = clock.monotonic() + 0.05
    async with asyncio.TaskGroup() as group:
        waits = [
            group.create_task(made.appears(namespace="team-a", uid=uid, until=until)) for uid in ("uid-1", "uid-2")
        ]
    assert [wait.result() for wait in waits] == [None, None]
    assert clock.monotonic() >= until


async def test_a_time_that_has_passed_is_not_waited_for() -> None:
    made, _ = index()
    async with asyncio.timeout(LONG):
        assert await made.appears(namespace="team-a", uid="uid-1", until=clock.monotonic() - 1) is None


async def test_only_so_many_wait_and_the_others_are_answered_at_once() -> None:
    made, reflector = index()
    until = clock.monotonic() + LONG
    waiting = [
        asyncio.create_task(made.appears(namespace="team-a", uid=f"uid-{n}", until=until)) for n in range(MAX_WAITING)
    ]
    await asyncio.sleep(0)
    with pytest.raises(StopIteration) as answered:
        made.appears(namespace="team-a", uid="uid-x", until=until).send(None)
    assert answered.value.value is None
    appear(made, reflector, *run("hello", "uid-1"))
    assert await waiting[1] == "hello"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not cast(Any, made)._waiting
    assert cast(Any, made)._waiters == 0


class Backend:
    """What the API server lists of the Runs that are asked for, or how it fails."""

    def __init__(self, found: list[bytes] | Exception) -> None:
        self.found = found
        self.asked: list[str] = []

    async def list_raw(self, path: str, *, field_selector: str, accept: str) -> tuple[list[bytes], str]:
        assert path.endswith("/namespaces/team-a/runs")
        assert "PartialObjectMetadataList" in accept
        self.asked.append(field_selector)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found, "1"


@pytest.mark.parametrize(
    ("known", "healthy", "found", "astray", "asked"),
    [
        pytest.param(["team-a/python"], True, [], False, 0, id="the-owner-says-it"),
        pytest.param(["team-b/python"], True, [], True, 1, id="no-such-runtime-and-not-its-run"),
        pytest.param([], True, [b"{}"], False, 1, id="its-runtime-is-not-there-yet"),
        pytest.param([], False, [], False, 0, id="nothing-is-proven-by-a-broken-watch"),
        pytest.param([], True, Unreachable(status=0), False, 1, id="not-known"),
    ],
)
async def test_a_run_under_a_runtime_that_does_not_exist(
    known: list[str], healthy: bool, found: list[bytes] | Exception, astray: bool, asked: int
) -> None:
    backend = Backend(found)
    made = Index(cast(Kube, backend))
    runtimes = cast(Any, made)._runtimes
    runtimes.store.update(dict.fromkeys(known, Object()))
    if healthy:
        runtimes.synced.set()
        runtimes._hear(clock.monotonic())
    assert await made.astray(namespace="team-a", runtime="python", name="hello") is astray
    assert backend.asked == ["metadata.name=hello,spec.runtime=python"] * asked
