"""What a control plane does by itself: ReplicaSets, garbage collection, Services, Nodes, Leases, Events."""

from collections.abc import Iterator
from typing import Any

import pytest
from contract.client import Api, Json, at, eventually
from contract.objects import CONTAINER, make, obj

READY: Json = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
COLLECT_SECONDS = 60.0
"""The real garbage collector learns of new kinds once in thirty seconds."""


def owned(owner: Json, **more: object) -> Json:
    """An owner reference to *owner*."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        **more,
    }


# ---------------------------------------------------------------- ReplicaSets


def replicas(name: str, count: int, **template: Any) -> Json:
    """The spec of a ReplicaSet."""
    spec = {"containers": [CONTAINER], "tolerations": [{"operator": "Exists"}], **template}
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


# ---------------------------------------------------------------- garbage collection


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


def test_pods_go_with_their_replicaset(api: Api, ns: str, name: str, pool: Json) -> None:
    api.delete(at("replicasets", ns, name), {"propagationPolicy": "Background"}).ok(200)
    eventually("Pods gone", lambda: not pods_of(api, ns, name))


# ---------------------------------------------------------------- Services and EndpointSlices

SERVICES: list[tuple[str, Json, int, str]] = [
    ("headless", {"clusterIP": "None"}, 201, "None"),
    ("external-name", {"type": "ExternalName", "externalName": "x.example", "ports": [], "selector": None}, 201, ""),
    ("outside-the-range", {"clusterIP": "192.0.2.1"}, 422, "spec.clusterIPs: Invalid value: "),
    ("not-an-address", {"clusterIP": "x"}, 422, "spec.clusterIPs[0]: Invalid value: "),
    ("no-ports", {"ports": []}, 422, "spec.ports: Required value"),
    ("port-out-of-range", {"ports": [{"port": 70000}]}, 422, "spec.ports[0].port: Invalid value: 70000: must be "),
    ("ports-without-names", {"ports": [{"port": 1}, {"port": 2}]}, 422, "spec.ports[0].name: Required value"),
    ("type", {"type": "Other"}, 422, 'spec.type: Unsupported value: "Other"'),
]


@pytest.mark.parametrize(("spec", "code", "says"), [pytest.param(*row[1:], id=row[0]) for row in SERVICES])
def test_services(api: Api, ns: str, name: str, spec: Json, code: int, says: str) -> None:
    answer = api.create(at("services", ns), obj("services", name, spec=spec))
    if code == 422:
        answer.refused(422, "Invalid", says)
        return
    assert answer.ok(201)["spec"].get("clusterIP", "") == says
    api.delete(at("services", ns, name)).ok(200)


def test_each_service_has_an_address_of_its_own(api: Api, ns: str, name: str) -> None:
    """From 10.96.0.0/16; the address is kept by updates that leave it out, and cannot change."""
    first, second = (make(api, "services", ns, f"{name}-{i}")["spec"]["clusterIP"] for i in range(2))
    assert first != second
    assert first.startswith("10.96.")
    assert second.startswith("10.96.")
    body = api.get(at("services", ns, f"{name}-0")).ok(200)
    assert body["spec"]["clusterIPs"] == [first]
    for field in ("clusterIP", "clusterIPs"):
        del body["spec"][field]
    assert api.replace(at("services", ns, f"{name}-0"), body).ok(200)["spec"]["clusterIP"] == first
    api.patch(at("services", ns, f"{name}-0"), {"spec": {"clusterIP": second}}).refused(
        422, "Invalid", "spec.clusterIPs[0]: Invalid value: ", "may not change once set"
    )
    taken = obj("services", f"{name}-2", spec={"clusterIP": first})
    api.create(at("services", ns), taken).refused(422, "Invalid", "provided IP is already allocated")
    for i in range(2):
        api.delete(at("services", ns, f"{name}-{i}")).ok(200)


def test_defaults_of_a_service(api: Api, ns: str, name: str) -> None:
    spec = make(api, "services", ns, name)["spec"]
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")
    assert spec["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    api.delete(at("services", ns, name)).ok(200)


def test_a_service_gets_an_endpoint_slice(api: Api, ns: str, name: str) -> None:
    """Named after it, owned by it, with the label of its name; empty while no Pod fits."""
    service = make(api, "services", ns, name, spec={"selector": {"app": name}})
    select = f"kubernetes.io/service-name={name}"
    found = eventually("slice", lambda: api.get(at("endpointslices", ns), labelSelector=select).ok(200)["items"])
    [slice] = found
    assert slice["metadata"]["name"].startswith(f"{name}-")
    assert slice["metadata"]["ownerReferences"] == [owned(service, controller=True, blockOwnerDeletion=True)]
    assert slice["addressType"] == "IPv4"
    assert not slice["endpoints"]
    api.delete(at("services", ns, name)).ok(200)
    eventually("slice gone", lambda: not api.get(at("endpointslices", ns), labelSelector=select).ok(200)["items"])


# ---------------------------------------------------------------- Nodes


@pytest.fixture
def node(api: Api, name: str) -> Iterator[str]:
    """A node that is registered, and removed at the end."""
    make(api, "nodes", None, name, meta={"labels": {"contract.example/node": "yes"}})
    yield name
    api.delete(at("nodes", None, name))


def test_a_new_node_is_not_ready(api: Api, node: str) -> None:
    body = api.get(at("nodes", None, node)).ok(200)
    assert {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"} in [
        {k: t[k] for k in ("key", "effect")} for t in body["spec"]["taints"]
    ]


def test_a_node_writes_its_status(api: Api, node: str) -> None:
    """By merge patch, as `krt dev` does it: conditions, addresses, capacity."""
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Tried",
        "message": "",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {
        "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "capacity": {"cpu": "2", "memory": "1Gi", "pods": "110"},
        "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110"},
        "nodeInfo": {"kubeletVersion": "v1.37.2"},
    }
    body = api.patch(at("nodes", None, node, "status"), {"status": status}).ok(200)
    assert {c["type"]: c["status"] for c in body["status"]["conditions"]}["Ready"] == "True"
    assert body["status"]["addresses"] == status["addresses"]
    assert body["status"]["capacity"]["pods"] == "110"


def test_the_spec_of_a_node_is_not_written_by_its_status(api: Api, node: str) -> None:
    body = api.patch(at("nodes", None, node, "status"), {"spec": {"unschedulable": True}}).ok(200)
    assert "unschedulable" not in body["spec"]
    assert (
        api.patch(at("nodes", None, node), {"spec": {"unschedulable": True}}).ok(200)["spec"]["unschedulable"] is True
    )


def test_a_lease_of_a_node(api: Api, node: str) -> None:
    owner = owned(api.get(at("nodes", None, node)).ok(200))
    spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}
    made = make(api, "leases", "kube-node-lease", node, meta={"ownerReferences": [owner]}, spec=spec)
    assert made["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"
    later = {"spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}}
    assert (
        api.patch(at("leases", "kube-node-lease", node), later).ok(200)["spec"]["renewTime"].startswith("2026-01-01T")
    )
    api.delete(at("nodes", None, node)).ok(200)
    eventually("Lease gone", lambda: api.get(at("leases", "kube-node-lease", node)).code == 404)


# ---------------------------------------------------------------- Leases

LEASES: list[tuple[str, Json, str]] = [
    ("zero", {"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
    ("negative-transitions", {"leaseTransitions": -1}, "spec.leaseTransitions: Invalid value: -1"),
]


@pytest.mark.parametrize(("spec", "message"), [pytest.param(*row[1:], id=row[0]) for row in LEASES])
def test_leases_that_are_refused(api: Api, ns: str, name: str, spec: Json, message: str) -> None:
    api.create(at("leases", ns), obj("leases", name, spec=spec)).refused(422, "Invalid", message)


def test_times_of_a_lease_have_six_decimals(api: Api, ns: str, name: str) -> None:
    """Less cannot be read at all."""
    made = make(api, "leases", ns, name, spec={"renewTime": "2026-01-02T03:04:05.123456Z"})
    assert made["spec"]["renewTime"] == "2026-01-02T03:04:05.123456Z"
    answer = api.patch(at("leases", ns, name), {"spec": {"renewTime": "2026-01-02T03:04:05Z"}})
    answer.refused(422, "Invalid", "patch: Invalid value")
    body = obj("leases", f"{name}-2", spec={"renewTime": "2026-01-02T03:04:05Z"})
    api.create(at("leases", ns), body).refused(400, "BadRequest", 'Lease in version "v1" cannot be handled as a Lease')


def test_a_holder_can_be_emptied(api: Api, ns: str, name: str) -> None:
    make(api, "leases", ns, name)
    body = api.patch(at("leases", ns, name), {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}).ok(200)
    assert body["spec"] == {"holderIdentity": "", "leaseDurationSeconds": 1}


# ---------------------------------------------------------------- Events, ConfigMaps, Secrets


def test_an_event_of_another_namespace_is_refused(api: Api, ns: str, name: str) -> None:
    subject = {"kind": "Run", "name": "r", "namespace": "default", "apiVersion": "kruntimes.io/v1alpha1"}
    api.create(at("events", ns), obj("events", name, involvedObject=subject)).refused(
        422, "Invalid", "involvedObject.namespace: Invalid value: "
    )


def test_an_event_is_counted_up(api: Api, ns: str, name: str) -> None:
    """As the recorder of kruntimes does it: a merge patch of count and lastTimestamp."""
    times = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1}
    make(api, "events", ns, name, **times, source={"component": "tester"})
    body = api.patch(at("events", ns, name), {"count": 2, "lastTimestamp": "2026-01-01T00:00:05Z"}).ok(200)
    assert (body["count"], body["lastTimestamp"]) == (2, "2026-01-01T00:00:05Z")
    assert (body["firstTimestamp"], body["eventTime"]) == ("2026-01-01T00:00:00Z", None)


def test_a_secret(api: Api, ns: str, name: str) -> None:
    """`stringData` is written only; the type cannot change."""
    made = make(api, "secrets", ns, name, data={"a": "MQ=="}, stringData={"b": "text"})
    assert made["data"] == {"a": "MQ==", "b": "dGV4dA=="}
    assert "stringData" not in made
    api.patch(at("secrets", ns, name), {"type": "other"}).refused(422, "Invalid", "type: Invalid value", "immutable")


@pytest.mark.parametrize("resource", ["configmaps", "secrets"])
def test_immutable(api: Api, ns: str, name: str, resource: str) -> None:
    make(api, resource, ns, name, immutable=True)
    path = at(resource, ns, name)
    answer = api.patch(path, {"data": {"a": "Mg=="}})
    answer.refused(422, "Invalid", "data: Forbidden: field is immutable when `immutable` is set")
    api.patch(path, {"immutable": None}).refused(422, "Invalid", "immutable: Forbidden: ")
    api.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok(200)


DATA: list[tuple[str, str, Json, int, str]] = [
    ("key", "configmaps", {"data": {"a b": "1"}}, 422, "data[a b]: Invalid value: "),
    ("key-twice", "configmaps", {"data": {"a": "1"}, "binaryData": {"a": "MQ=="}}, 422, "data[a]: Invalid value: "),
    ("too-large", "configmaps", {"data": {"a": "x" * 1048577}}, 422, "Too long: may not be more than 1048576 bytes"),
    ("no-base64", "secrets", {"data": {"a": "%"}}, 400, "illegal base64 data at input byte 0"),
    ("no-text", "configmaps", {"data": {"a": 1}}, 400, "json: cannot unmarshal number into Go struct field"),
]


@pytest.mark.parametrize(("resource", "fields", "code", "message"), [pytest.param(*row[1:], id=row[0]) for row in DATA])
def test_data_that_is_refused(
    api: Api, ns: str, name: str, resource: str, fields: Json, code: int, message: str
) -> None:
    api.create(at(resource, ns), obj(resource, name, **fields)).refused(
        code, "Invalid" if code == 422 else "BadRequest", message
    )
