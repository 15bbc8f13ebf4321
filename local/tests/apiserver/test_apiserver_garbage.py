"""Garbage collection: what is deleted with its owners, what stays, and in which order."""

from typing import Any

import pytest
from tests.apiserver.plane import Json, Loops, Plane

from kruntimes.local.apiserver.loops.collector import Collector
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.strategy import DeleteOptions


class Case:
    """ConfigMaps that own one another."""

    def __init__(self) -> None:
        self.plane = Plane()
        self.loops = Loops(self.plane, Collector(self.plane.api))

    def make(self, name: str, *owners: Json, block: bool = True, **meta: Any) -> Json:
        """A ConfigMap with owners."""
        references = [
            {"apiVersion": owner.get("apiVersion", "v1"), "kind": owner.get("kind", "ConfigMap"),
             "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block}
            for owner in owners
        ]  # fmt: skip
        return self.plane.make("configmaps", name, metadata={"ownerReferences": references, **meta})

    def delete(self, name: str, propagation: str | None = None) -> None:
        """Deletes one and lets the collector work."""
        self.plane.api.delete(self.plane.of("configmaps"), "default", name, DeleteOptions(propagation=propagation))
        self.loops.settle()

    def names(self) -> list[str]:
        """Who is left."""
        return [obj["metadata"]["name"] for obj in self.plane.all("configmaps", "default")]


@pytest.fixture
def case() -> Case:
    """None yet."""
    return Case()


def test_what_is_owned_goes_after_its_owner_and_so_on_down(case: Case) -> None:
    a = case.make("a")
    b = case.make("b", a)
    case.make("c", b)
    case.make("other")
    case.delete("a")
    assert case.names() == ["other"]


def test_who_has_another_owner_left_only_loses_the_reference(case: Case) -> None:
    a, b = case.make("a"), case.make("b")
    case.make("c", a, b)
    case.delete("a")
    assert case.names() == ["b", "c"]
    c = case.plane.found("configmaps", "c")
    assert c is not None
    assert [owner["name"] for owner in c["metadata"]["ownerReferences"]] == ["b"]
    case.delete("b")
    assert case.names() == []


def test_orphans_stay_without_their_reference(case: Case) -> None:
    case.make("b", case.make("a"))
    case.delete("a", "Orphan")
    assert case.names() == ["b"]
    b = case.plane.found("configmaps", "b")
    assert b is not None
    assert "ownerReferences" not in b["metadata"]


def test_in_the_foreground_the_owner_waits_for_what_blocks(case: Case) -> None:
    a = case.make("a")
    case.make("b", a, finalizers=["example.com/hold"])
    case.make("c", a)
    case.delete("a", "Foreground")
    assert case.names() == ["a", "b"], "c is gone, b is held, a waits for b"

    def release(obj: Json) -> Json:
        obj["metadata"]["finalizers"] = []
        return obj

    case.plane.api.change(case.plane.of("configmaps"), "default", "b", release)
    case.loops.settle()
    assert case.names() == []


def test_in_the_foreground_who_does_not_block_is_not_waited_for(case: Case) -> None:
    case.make("b", case.make("a"), block=False, finalizers=["example.com/hold"])
    case.delete("a", "Foreground")
    assert case.names() == ["b"]


def test_an_owner_that_never_was_is_gone(case: Case) -> None:
    case.make("b", {"metadata": {"name": "nobody", "uid": "none"}})
    case.loops.settle()
    assert case.names() == []


def test_an_owner_of_the_same_name_is_another(case: Case) -> None:
    a = case.make("a")
    case.make("b", {"metadata": {"name": "a", "uid": "before"}})
    case.make("c", a)
    case.loops.settle()
    assert case.names() == ["a", "c"]


def test_an_owner_of_a_kind_that_nobody_knows_may_be_there(case: Case) -> None:
    case.make("b", {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "uid": "u"}})
    case.loops.settle()
    assert case.names() == ["b"]


def test_what_was_owned_goes_even_when_its_owners_kind_went_at_the_same_time(case: Case) -> None:
    kind = Resource(
        group="example.com",
        version="v1",
        plural="widgets",
        singular="widget",
        kind="Widget",
        namespaced=True,
        custom=True,
    )
    case.plane.api.resources.add(kind)
    owner = case.plane.make("widgets", "w")
    case.make("b", owner)
    case.loops.settle()
    assert case.names() == ["b"]
    case.plane.api.delete(kind, "default", "w")
    case.plane.api.resources.remove(kind)
    case.loops.settle()
    assert case.names() == []


def test_a_cluster_scoped_owner_is_found(case: Case) -> None:
    node = case.plane.make("nodes", "n")
    case.make("b", node)
    case.loops.settle()
    assert case.names() == ["b"]
    case.plane.remove("nodes", "n")
    case.loops.settle()
    assert case.names() == []
