"""Nodes with their status and Leases, Leases by themselves, Events, ConfigMaps and Secrets."""

from collections.abc import Iterator

import pytest
from contract.client import (
    Api,
    Json,
    at,
    eventually,
)
from contract.objects import make, obj, owned


@pytest.fixture
def node(api: Api, name: str) -> Iterator[str]:
    """A node that is registered, and removed at the end."""
    make(api, "nodes", None, name, meta={"labels": {"contract.example/node": "yes"}})
    yield name
    api.delete(at("nodes", None, name))


def test_a_new_node_is_not_ready(api: Api, name: str) -> None:
    """The taint is written at creation, by the API server itself; a controller may take it away soon after."""
    made = api.create(at("nodes"), obj("nodes", name), dryRun="All").ok(201)
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


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
