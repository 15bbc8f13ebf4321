"""Garbage collection by owner: in the background, in the foreground, and not at all."""

import pytest
from contract.client import (
    Api,
    at,
    eventually,
)
from contract.objects import make, owned

COLLECT_SECONDS = 60.0
"""The real garbage collector learns of new kinds once in thirty seconds."""


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        ("configmaps", "secrets"),
        ("runs", "configmaps"),
        ("pods", "leases"),
        ("widgets", "runs"),
        ("runtimes", "widgets"),
    ],
)
def test_what_is_owned_goes_with_its_owner(api: Api, ns: str, name: str, parent: str, child: str) -> None:
    owner = make(api, parent, ns, name)
    make(api, child, ns, f"{name}-owned", meta={"ownerReferences": [owned(owner)]})
    make(api, child, ns, f"{name}-free")
    api.delete(at(parent, ns, name), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).ok(200)
    path = at(child, ns, f"{name}-owned")
    eventually("owned object gone", lambda: api.get(path).code == 404, COLLECT_SECONDS)
    api.get(at(child, ns, f"{name}-free")).ok(200)


def test_what_has_an_owner_left_stays_and_forgets_the_other(api: Api, ns: str, name: str) -> None:
    owners = [make(api, "configmaps", ns, f"{name}-{i}") for i in range(2)]
    make(api, "leases", ns, name, meta={"ownerReferences": [owned(o) for o in owners]})
    api.delete(at("configmaps", ns, f"{name}-0")).ok(200)
    path = at("leases", ns, name)
    eventually("forgotten", lambda: len(api.get(path).ok(200)["metadata"]["ownerReferences"]) == 1)
    assert api.get(path).ok(200)["metadata"]["ownerReferences"] == [owned(owners[1])]
    api.delete(at("configmaps", ns, f"{name}-1")).ok(200)
    eventually("gone", lambda: api.get(path).code == 404)


def test_an_owner_that_never_was_takes_the_object_along(api: Api, ns: str, name: str) -> None:
    """Another UID under the same name is another object."""
    owner = make(api, "configmaps", ns, f"{name}-owner")
    reference = {**owned(owner), "uid": "00000000-0000-0000-0000-000000000000"}
    make(api, "leases", ns, name, meta={"ownerReferences": [reference]})
    eventually("gone", lambda: api.get(at("leases", ns, name)).code == 404)


def test_a_chain(api: Api, ns: str, name: str) -> None:
    top = make(api, "configmaps", ns, f"{name}-top")
    middle = make(api, "secrets", ns, f"{name}-middle", meta={"ownerReferences": [owned(top)]})
    make(api, "leases", ns, name, meta={"ownerReferences": [owned(middle)]})
    api.delete(at("configmaps", ns, f"{name}-top")).ok(200)
    eventually("end of the chain gone", lambda: api.get(at("leases", ns, name)).code == 404)


def test_orphans_are_kept(api: Api, ns: str, name: str) -> None:
    owner = make(api, "configmaps", ns, f"{name}-owner")
    make(api, "leases", ns, name, meta={"ownerReferences": [owned(owner)]})
    # The collector must know of the reference before the owner goes; it has, once a second object like it was handled.
    doomed = make(api, "configmaps", ns, f"{name}-doomed")
    make(api, "leases", ns, f"{name}-doomed", meta={"ownerReferences": [owned(doomed)]})
    api.delete(at("configmaps", ns, f"{name}-doomed")).ok(200)
    eventually("collector at work", lambda: api.get(at("leases", ns, f"{name}-doomed")).code == 404)
    answer = api.delete(at("configmaps", ns, f"{name}-owner"), {"propagationPolicy": "Orphan"}).ok(200)
    assert answer["metadata"]["finalizers"] == ["orphan"]
    eventually("owner gone", lambda: api.get(at("configmaps", ns, f"{name}-owner")).code == 404)
    assert "ownerReferences" not in api.get(at("leases", ns, name)).ok(200)["metadata"]


def test_in_the_foreground_the_owner_waits(api: Api, ns: str, name: str) -> None:
    owner = make(api, "configmaps", ns, f"{name}-owner")
    reference = owned(owner, blockOwnerDeletion=True)
    held = {"ownerReferences": [reference], "finalizers": ["contract.example/a"]}
    make(api, "leases", ns, name, meta=held)
    answer = api.delete(at("configmaps", ns, f"{name}-owner"), {"propagationPolicy": "Foreground"}).ok(200)
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in answer["metadata"]
    path = at("leases", ns, name)
    eventually("dependent deleting", lambda: "deletionTimestamp" in api.get(path).ok(200)["metadata"])
    api.get(at("configmaps", ns, f"{name}-owner")).ok(200)
    api.patch(path, {"metadata": {"finalizers": None}}).ok(200)
    eventually("owner gone", lambda: api.get(at("configmaps", ns, f"{name}-owner")).code == 404)
