"""Watches under selectors: entering, leaving, and deletion in steps."""

import pytest
from contract.client import (
    JSON_PATCH,
    Api,
    Json,
    at,
)
from contract.objects import make

BOTH = pytest.mark.parametrize("resource", ["configmaps", "widgets"])


def short(event: Json) -> tuple[str, str]:
    """Type and name."""
    return event["type"], event["object"]["metadata"]["name"]


def version(body: Json) -> str:
    """The resourceVersion of an object or list."""
    found: str = body["metadata"]["resourceVersion"]
    return found


@BOTH
def test_entering_and_leaving_a_label_selector(api: Api, ns: str, name: str, resource: str) -> None:
    """Whoever leaves is DELETED, with the object as it was while it still matched, at the version of the change."""
    path = at(resource, ns, name)
    since = version(make(api, resource, ns, name))
    with api.watch(at(resource, ns), resourceVersion=since, labelSelector=f"of={name}") as watch:
        api.patch(path, {"metadata": {"annotations": {"before": "x"}}}).ok(200)  # not selected: not told
        entered = api.patch(path, {"metadata": {"labels": {"of": name}}}).ok(200)
        left = api.patch(path, {"metadata": {"labels": {"of": "other"}}}).ok(200)
        api.delete(path).ok(200)  # not selected any more: not told
        again = make(api, resource, ns, name, meta={"labels": {"of": name}})
        events = watch.take(3)
    assert events[0] == {"type": "ADDED", "object": entered}
    assert events[1]["type"] == "DELETED"
    assert version(events[1]["object"]) == version(left)
    assert events[1]["object"]["metadata"]["labels"] == {"of": name}
    assert events[2] == {"type": "ADDED", "object": again}


FIELDS: list[tuple[str, str, str, str, Json, Json]] = [
    # id, resource, subresource, field selector, patch that enters, patch that leaves
    ("widget-spec", "widgets", "", "spec.color=green", {"spec": {"color": "green"}}, {"spec": {"color": "red"}}),
    ("widget-number", "widgets", "", "spec.size=5", {"spec": {"size": 5}}, {"spec": {"size": 6}}),
    ("widget-status", "widgets", "status", "status.phase=on", {"status": {"phase": "on"}},
     {"status": {"phase": "off"}}),
    ("widget-not", "widgets", "status", "status.phase!=", {"status": {"phase": "on"}}, {"status": {"phase": None}}),
    ("run-phase", "runs", "status", "status.phase=Ready", {"status": {"phase": "Ready"}},
     {"status": {"phase": "Pending"}}),
    ("run-pod", "runs", "status", "status.assignedPodUID=u-1",
     {"status": {"assignedPod": "p", "assignedPodUID": "u-1"}},
     {"status": {"assignedPod": None, "assignedPodUID": None}}),
    ("pod-phase", "pods", "status", "status.phase=Running", {"status": {"phase": "Running"}},
     {"status": {"phase": "Failed"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "sub", "selector", "enter", "leave"), [pytest.param(*row[1:], id=row[0]) for row in FIELDS]
)
def test_entering_and_leaving_a_field_selector(
    api: Api, ns: str, name: str, resource: str, sub: str, selector: str, enter: Json, leave: Json
) -> None:
    path = at(resource, ns, name, sub or None)
    since = version(make(api, resource, ns, name))
    select = {"fieldSelector": f"{selector},metadata.name={name}"}
    with api.watch(at(resource, ns), resourceVersion=since, **select) as watch:
        entered = api.patch(path, enter).ok(200)
        kept = api.patch(at(resource, ns, name), {"metadata": {"labels": {"still": "in"}}}).ok(200)
        left = api.patch(path, leave).ok(200)
        api.patch(at(resource, ns, name), {"metadata": {"labels": {"still": "out"}}}).ok(200)
        api.patch(path, enter)
        events = watch.take(3)
    assert [e["type"] for e in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [version(e["object"]) for e in events] == [version(entered), version(kept), version(left)]
    gone = events[2]["object"]
    assert {**gone, "metadata": {**gone["metadata"], "resourceVersion": version(kept)}} == kept


def test_a_pod_is_watched_by_its_node(api: Api, ns: str, name: str) -> None:
    """How a node learns of its Pods: a binding is ADDED to those who watch the node, DELETED to those of no node."""
    since = version(make(api, "pods", ns, name))
    path = at("pods", ns)
    with (
        api.watch(path, resourceVersion=since, fieldSelector=f"spec.nodeName={name}") as bound,
        api.watch(path, resourceVersion=since, fieldSelector=f"spec.nodeName=,metadata.name={name}") as free,
    ):
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": name}}
        api.create(at("pods", ns, name, "binding"), body).ok(201)
        assert short(bound.next()) == ("ADDED", name)
        assert short(free.next()) == ("DELETED", name)
        api.delete(at("pods", ns, name)).ok(200)
        deleting = bound.next()
        assert deleting["type"] == "MODIFIED"
        assert deleting["object"]["metadata"]["deletionGracePeriodSeconds"] == 30
        api.delete(at("pods", ns, name), {"gracePeriodSeconds": 0}).ok(200)
        assert [e["type"] for e in bound.until(lambda e: e["type"] == "DELETED")][-1] == "DELETED"


def test_one_object_is_watched_by_its_name(api: Api, ns: str, name: str) -> None:
    since = version(make(api, "leases", ns, name))
    make(api, "leases", ns, f"{name}-other")
    with api.watch(at("leases", ns), resourceVersion=since, fieldSelector=f"metadata.name={name}") as watch:
        api.patch(at("leases", ns, f"{name}-other"), {"spec": {"holderIdentity": "x"}}).ok(200)
        api.patch(at("leases", ns, name), {"spec": {"holderIdentity": "y"}}).ok(200)
        assert short(watch.next()) == ("MODIFIED", name)


def test_all_namespaces_are_watched_together(api: Api, ns: str, name: str) -> None:
    since = version(api.get(at("runs")).ok(200))
    with api.watch(at("runs"), resourceVersion=since, labelSelector=f"of={name}") as watch:
        for space in (ns, "default"):
            make(api, "runs", space, name, meta={"labels": {"of": name}})
        assert [e["object"]["metadata"]["namespace"] for e in watch.take(2)] == [ns, "default"]
    api.delete(at("runs", "default", name)).ok(200)


# ---------------------------------------------------------------- deletion in steps


def test_finalizers_in_a_watch(api: Api, ns: str, name: str) -> None:
    path = at("runs", ns, name)
    since = version(make(api, "runs", ns, name, meta={"finalizers": ["contract.example/a"]}))
    with api.watch(at("runs", ns), resourceVersion=since, fieldSelector=f"metadata.name={name}") as watch:
        api.delete(path).ok(200)
        ops = [{"op": "remove", "path": "/metadata/finalizers"}]
        api.patch(path, ops, type=JSON_PATCH).ok(200)
        events = watch.take(2)
    assert [e["type"] for e in events] == ["MODIFIED", "DELETED"]
    assert "deletionTimestamp" in events[0]["object"]["metadata"]
    # The write that took the last finalizer is not told: the object goes as it was before, with a new version.
    assert events[1]["object"]["metadata"]["finalizers"] == ["contract.example/a"]


def test_deleting_a_collection_is_told_one_by_one(api: Api, ns: str, name: str) -> None:
    for i in range(3):
        since = version(make(api, "configmaps", ns, f"{name}-{i}", meta={"labels": {"of": name}}))
    with api.watch(at("configmaps", ns), resourceVersion=since, labelSelector=f"of={name}") as watch:
        api.delete(at("configmaps", ns), labelSelector=f"of={name}").ok(200)
        assert sorted(short(e) for e in watch.take(3)) == [("DELETED", f"{name}-{i}") for i in range(3)]
