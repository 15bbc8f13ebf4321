"""ReplicaSets: Pods of a template, their count, which one goes, adoption, and what is refused."""

from collections.abc import Iterator
from typing import Any

import pytest
from contract.client import (
    Api,
    Json,
    at,
    eventually,
)
from contract.objects import CONTAINER, SCHEDULER, make, obj, owned

READY: Json = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def replicas(name: str, count: int, **template: Any) -> Json:
    """The spec of a ReplicaSet."""
    spec = {"schedulerName": SCHEDULER, "containers": [CONTAINER], "tolerations": [{"operator": "Exists"}], **template}
    labels = {"app": name}
    return {
        "replicas": count,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": {"a": "b"}}, "spec": spec},
    }


def pods_of(api: Api, ns: str, name: str) -> list[Json]:
    """The Pods with its label that are not being deleted."""
    found: list[Json] = api.get(at("pods", ns), labelSelector=f"app={name}").ok(200)["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


@pytest.fixture
def pool(api: Api, ns: str, name: str) -> Iterator[Json]:
    """A ReplicaSet of two Pods."""
    made = make(api, "replicasets", ns, name, spec=replicas(name, 2))
    eventually("two Pods", lambda: len(pods_of(api, ns, name)) == 2)
    yield made
    api.delete(at("replicasets", ns, name))
    for pod in pods_of(api, ns, name):
        api.delete(at("pods", ns, pod["metadata"]["name"]), {"gracePeriodSeconds": 0})


def test_a_replicaset_makes_pods_of_its_template(api: Api, ns: str, name: str, pool: Json) -> None:
    for pod in pods_of(api, ns, name):
        meta = pod["metadata"]
        assert meta["generateName"] == f"{name}-"
        assert meta["name"].startswith(f"{name}-")
        assert meta["labels"] == {"app": name}
        assert meta["annotations"] == {"a": "b"}
        assert meta["ownerReferences"] == [owned(pool, controller=True, blockOwnerDeletion=True)]
        assert pod["spec"]["containers"][0]["image"] == CONTAINER["image"]


def test_its_status_follows(api: Api, ns: str, name: str, pool: Json) -> None:
    path = at("replicasets", ns, name)
    eventually("counted", lambda: api.get(path).ok(200)["status"].get("replicas") == 2)
    pod = pods_of(api, ns, name)[0]["metadata"]["name"]
    api.patch(at("pods", ns, pod, "status"), {"status": {"phase": "Running", "conditions": [READY]}}).ok(200)
    status = eventually(
        "one ready", lambda: s if (s := api.get(path).ok(200)["status"]).get("readyReplicas") == 1 else None
    )
    assert (status["replicas"], status["availableReplicas"], status["fullyLabeledReplicas"]) == (2, 1, 2)
    assert status["observedGeneration"] == 1


def test_a_deleted_pod_is_replaced(api: Api, ns: str, name: str, pool: Json) -> None:
    first = pods_of(api, ns, name)[0]["metadata"]
    api.delete(at("pods", ns, first["name"]), {"gracePeriodSeconds": 0}).ok(200)
    eventually("two again", lambda: len(pods_of(api, ns, name)) == 2)
    assert first["uid"] not in {pod["metadata"]["uid"] for pod in pods_of(api, ns, name)}


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_replaced(api: Api, ns: str, name: str, pool: Json, phase: str) -> None:
    """It stays, and is not counted."""
    first = pods_of(api, ns, name)[0]["metadata"]["name"]
    api.patch(at("pods", ns, first, "status"), {"status": {"phase": phase}}).ok(200)
    eventually("a third one", lambda: len(pods_of(api, ns, name)) == 3)
    eventually("two counted", lambda: api.get(at("replicasets", ns, name)).ok(200)["status"]["replicas"] == 2)


def test_scaling_down_takes_the_cheapest(api: Api, ns: str, name: str, pool: Json) -> None:
    """`pod-deletion-cost` decides between Pods that are alike otherwise."""
    first, second = (pod["metadata"]["name"] for pod in pods_of(api, ns, name))
    for pod, cost in ((first, "100"), (second, "-5")):
        annotation = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}}
        api.patch(at("pods", ns, pod), annotation).ok(200)
        api.patch(at("pods", ns, pod, "status"), {"status": {"phase": "Running", "conditions": [READY]}}).ok(200)
    # The controller has a copy of the Pods of its own: counting both as ready, it has seen what was written before.
    eventually("both seen", lambda: api.get(at("replicasets", ns, name)).ok(200)["status"].get("readyReplicas") == 2)
    api.patch(at("replicasets", ns, name, "scale"), {"spec": {"replicas": 1}}).ok(200)
    eventually("one left", lambda: len(pods_of(api, ns, name)) == 1)
    assert [pod["metadata"]["name"] for pod in pods_of(api, ns, name)] == [first]


def test_scaling_down_takes_those_without_a_node_first(api: Api, ns: str, name: str, pool: Json) -> None:
    first = pods_of(api, ns, name)[0]["metadata"]["name"]
    body = {"metadata": {"name": first}, "target": {"kind": "Node", "name": "no-such-node"}}
    api.create(at("pods", ns, first, "binding"), body).ok(201)
    with api.watch(at("pods", ns), fieldSelector=f"metadata.name={first},spec.nodeName=no-such-node") as watch:
        watch.next()
    api.patch(at("replicasets", ns, name), {"spec": {"replicas": 1}}).ok(200)
    eventually("one left", lambda: len(pods_of(api, ns, name)) == 1)
    assert pods_of(api, ns, name)[0]["metadata"]["name"] == first


def test_a_pod_that_leaves_the_selector_is_let_go(api: Api, ns: str, name: str, pool: Json) -> None:
    """Its owner reference is taken away and another Pod is made; one that comes in is adopted or deleted."""
    path = at("pods", ns, pods_of(api, ns, name)[0]["metadata"]["name"])
    api.patch(path, {"metadata": {"labels": {"app": f"{name}-away"}}}).ok(200)
    eventually("released", lambda: not api.get(path).ok(200)["metadata"].get("ownerReferences"))
    eventually("two again", lambda: len(pods_of(api, ns, name)) == 2)


def test_pods_that_fit_are_adopted(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, f"{name}-lost", meta={"labels": {"app": name}})
    pool = make(api, "replicasets", ns, name, spec=replicas(name, 1))
    path = at("pods", ns, f"{name}-lost")
    eventually("adopted", lambda: api.get(path).ok(200)["metadata"].get("ownerReferences"))
    assert api.get(path).ok(200)["metadata"]["ownerReferences"] == [
        owned(pool, controller=True, blockOwnerDeletion=True)
    ]
    assert len(pods_of(api, ns, name)) == 1
    api.delete(at("replicasets", ns, name)).ok(200)


INVALID: list[tuple[str, Json, str]] = [
    ("no-selector", {"selector": None}, "spec.selector: Required value"),
    ("empty-selector", {"selector": {}}, "spec.selector: Invalid value"),
    ("labels-do-not-fit", {"selector": {"matchLabels": {"app": "other"}}},
     "spec.template.metadata.labels: Invalid value: "),
    ("negative", {"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    ("restart-policy", {"template": {"metadata": {"labels": {"app": "x"}},
                                     "spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}},
     'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), [pytest.param(*row[1:], id=row[0]) for row in INVALID])
def test_replicasets_that_are_refused(api: Api, ns: str, name: str, spec: Json, message: str) -> None:
    api.create(at("replicasets", ns), obj("replicasets", name, spec=spec)).refused(422, "Invalid", message)


def test_the_selector_cannot_change(api: Api, ns: str, name: str) -> None:
    make(api, "replicasets", ns, name)
    api.patch(at("replicasets", ns, name), {"spec": {"selector": {"matchLabels": {"b": "c"}}}}).refused(
        422, "Invalid", "spec.selector: Invalid value: "
    )
    api.delete(at("replicasets", ns, name)).ok(200)


def test_one_replica_is_the_default(api: Api, ns: str, name: str) -> None:
    body = obj("replicasets", name, spec={"replicas": None})
    assert api.create(at("replicasets", ns), body, dryRun="All").ok(201)["spec"]["replicas"] == 1


def test_pods_go_with_their_replicaset(api: Api, ns: str, name: str, pool: Json) -> None:
    api.delete(at("replicasets", ns, name), {"propagationPolicy": "Background"}).ok(200)
    eventually("Pods gone", lambda: not pods_of(api, ns, name))
