"""Which UID has which name, change by change."""

import asyncio
from typing import Any, cast

import pytest

from kruntimes.authz.index import MAX_WAITING, Index, Names
from kruntimes.common.api.views import Meta, Object
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


async def test_a_run_that_appears_meanwhile_is_found() -> None:
    made, reflector = index()
    finding = [asyncio.create_task(made.find(namespace="team-a", uid="uid-1")) for _ in range(3)]
    await asyncio.sleep(0)
    appear(made, reflector, *run("other", "uid-0"))
    appear(made, reflector, *run("hello", "uid-1"))
    assert await asyncio.gather(*finding) == ["hello"] * 3


async def test_a_run_that_appears_in_another_namespace_is_not_found() -> None:
    made, reflector = index()
    finding = asyncio.create_task(made.find(namespace="team-a", uid="uid-1"))
    await asyncio.sleep(0)
    appear(made, reflector, *run("hello", "uid-1", "team-b"))
    assert await finding is None


async def test_only_so_many_wait_and_the_others_are_answered_at_once() -> None:
    made, reflector = index()
    waiting = [asyncio.create_task(made.find(namespace="team-a", uid=f"uid-{n}")) for n in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(StopIteration) as answered:
        made.find(namespace="team-a", uid="uid-x").send(None)
    assert answered.value.value is None
    appear(made, reflector, *run("hello", "uid-1"))
    assert await waiting[1] == "hello"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not cast(Any, made)._waiting
    assert cast(Any, made)._waiters == 0
