"""Tables, which is how kubectl gets what it prints, and negotiation of other forms of an answer."""

import re
from typing import Any

import pytest
import yaml
from contract.client import METADATA, METADATA_LIST, PROTOBUF, TABLE, YAML, Api, Json, at
from contract.objects import make

COLUMNS: list[tuple[str, list[str]]] = [
    ("pods", ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"]),
    ("configmaps", ["Name", "Data", "Age"]),
    ("secrets", ["Name", "Type", "Data", "Age"]),
    ("serviceaccounts", ["Name", "Age"]),
    ("services", ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"]),
    ("namespaces", ["Name", "Status", "Age"]),
    ("nodes", ["Name", "Status", "Roles", "Age", "Version", "Internal-IP", "External-IP", "OS-Image", "Kernel-Version",
               "Container-Runtime"]),
    ("events", ["Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen", "Count",
                "Name"]),
    ("replicasets", ["Name", "Desired", "Current", "Ready", "Age", "Containers", "Images", "Selector"]),
    ("leases", ["Name", "Holder", "Age"]),
    ("endpointslices", ["Name", "AddressType", "Ports", "Endpoints", "Age"]),
    ("roles", ["Name", "Created At"]),
    ("rolebindings", ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"]),
    ("clusterroles", ["Name", "Created At"]),
    ("certificatesigningrequests", ["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"]),
    ("customresourcedefinitions", ["Name", "Scope", "Versions", "Created At", "Group", "Kind", "ShortNames",
                                   "Established"]),
    ("runs", ["Name", "Phase", "Assigned Pod", "Runtime", "Age"]),
    ("runtimes", ["Name", "Image", "Replicas", "Ready", "Age"]),
    ("widgets", ["Name", "Size", "Color", "On", "Part", "When"]),
    # A custom kind without columns of its own shows its age.
    ("plains", ["Name", "Age"]),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "columns"), COLUMNS, ids=[row[0] for row in COLUMNS])
def test_columns(api: Api, resource: str, columns: list[str]) -> None:
    body = api.get(at(resource), accept=TABLE, limit="1").ok(200)
    assert (body["kind"], body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [c["name"] for c in body["columnDefinitions"]] == columns
    for column in body["columnDefinitions"]:
        assert set(column) == {"name", "type", "format", "description", "priority"}
    named = next((c for c in body["columnDefinitions"] if c["name"] == "Name"), None)
    assert named is not None
    assert (named["type"], named["format"]) == ("string", "name")


def cells(api: Api, path: str, name: str) -> dict[str, Any]:
    """The cells of the one row for *name*, by column."""
    body = api.get(path, accept=TABLE, fieldSelector=f"metadata.name={name}").ok(200)
    [row] = body["rows"]
    return dict(zip([c["name"] for c in body["columnDefinitions"]], row["cells"], strict=True))


ROWS: list[tuple[str, Json, Json, Json]] = [
    # resource, fields, status, cells
    ("configmaps", {"data": {"a": "1", "b": "2"}}, {}, {"Data": 2}),
    ("secrets", {}, {}, {"Type": "Opaque", "Data": 1}),
    ("leases", {}, {}, {"Holder": "me"}),
    ("services", {}, {}, {"Type": "ClusterIP", "External-IP": "<none>", "Port(s)": "80/TCP", "Selector": "app=none"}),
    ("pods", {}, {}, {"Ready": "0/1", "Status": "Pending", "Restarts": "0", "IP": "<none>", "Node": "<none>"}),
    ("pods", {}, {"phase": "Running", "podIP": "10.9.8.7"}, {"Status": "Running", "IP": "10.9.8.7"}),
    ("replicasets", {}, {}, {"Desired": 0, "Current": 0, "Ready": 0, "Containers": "main", "Selector": "app=x"}),
    ("endpointslices", {}, {}, {"AddressType": "IPv4", "Ports": "<unset>", "Endpoints": "10.1.2.3"}),
    ("rolebindings", {}, {}, {"Role": "Role/r", "ServiceAccounts": "default/default"}),
    ("runs", {}, {}, {"Phase": None, "Assigned Pod": None, "Runtime": "python"}),
    ("runs", {}, {"phase": "Running"}, {"Phase": "Running"}),
    ("runtimes", {}, {}, {"Image": "i:1", "Replicas": 1, "Ready": None}),
    ("widgets", {"spec": {"parts": [{"name": "p"}, {"name": "q"}], "on": True}}, {},
     {"Size": 3, "Color": "red", "On": True, "Part": "p", "When": None}),
    # A date that is no timestamp of now is shown as its age.
    ("widgets", {"spec": {"when": "2020-01-01T00:00:00Z"}}, {}, {"When": "6y333d"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "fields", "status", "expected"),
    [pytest.param(*row, id=f"{row[0]}-{i}") for i, row in enumerate(ROWS)],
)
def test_cells(api: Api, ns: str, name: str, resource: str, fields: Json, status: Json, expected: Json) -> None:
    make(api, resource, ns, name, **fields)
    if status:
        api.patch(at(resource, ns, name, "status"), {"status": status}).ok(200)
    shown = cells(api, at(resource, ns), name)
    if expected.get("When"):
        assert re.fullmatch(r"\d+y(\d+d)?", shown.pop("When"))
        expected = {}
    assert {k: shown[k] for k in expected} == expected
    assert shown["Name"] == name
    if "Age" in shown:
        assert re.fullmatch(r"\d+m?s|\d+m(\d+s)?", shown["Age"])


def test_a_deleted_pod_is_terminating(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, name, meta={"finalizers": ["contract.example/a"]})
    api.delete(at("pods", ns, name)).ok(200)
    assert cells(api, at("pods", ns), name)["Status"] == "Terminating"
    api.patch(at("pods", ns, name), {"metadata": {"finalizers": None}})


def test_container_states_in_a_pods_row(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, name)
    state = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 3}
    status = {"phase": "Running", "containerStatuses": [{**state, "state": {"running": {}}}]}
    api.patch(at("pods", ns, name, "status"), {"status": status}).ok(200)
    shown = cells(api, at("pods", ns), name)
    assert (shown["Ready"], shown["Status"], shown["Restarts"]) == ("1/1", "Running", "3")
    waiting = {**state, "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    api.patch(at("pods", ns, name, "status"), {"status": {"containerStatuses": [waiting]}}).ok(200)
    shown = cells(api, at("pods", ns), name)
    assert (shown["Ready"], shown["Status"]) == ("0/1", "CrashLoopBackOff")


@pytest.mark.parametrize(
    ("include", "expected"),
    [(None, "PartialObjectMetadata"), ("Metadata", "PartialObjectMetadata"), ("Object", "Widget"), ("None", None)],
)
def test_what_a_row_carries(api: Api, ns: str, name: str, include: str | None, expected: str | None) -> None:
    made = make(api, "widgets", ns, name)
    query = {} if include is None else {"includeObject": include}
    body = api.get(at("widgets", ns, name), accept=TABLE, **query).ok(200)
    [row] = body["rows"]
    carried = row.get("object")
    assert (carried or {}).get("kind") == expected
    if expected == "Widget":
        assert carried == made
    elif expected:
        assert set(carried) == {"kind", "apiVersion", "metadata"}


def test_one_object_as_table(api: Api, ns: str, name: str) -> None:
    made = make(api, "runs", ns, name)
    body = api.get(at("runs", ns, name), accept=TABLE).ok(200)
    assert body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert body["rows"][0]["cells"][0] == name


def test_a_page_of_a_table(api: Api, ns: str, name: str) -> None:
    for i in range(2):
        make(api, "widgets", ns, f"{name}-{i}", meta={"labels": {"of": name}})
    body = api.get(at("widgets", ns), accept=TABLE, limit="1", labelSelector=f"of={name}").ok(200)
    assert [row["cells"][0] for row in body["rows"]] == [f"{name}-0"]
    assert body["metadata"]["continue"]


def test_an_empty_table(api: Api, name: str) -> None:
    body = api.get(at("widgets", name), accept=TABLE).ok(200)
    assert body["rows"] == []
    assert body["columnDefinitions"]


def test_a_refusal_is_a_status_whatever_was_asked_for(api: Api, ns: str, name: str) -> None:
    for accept in (TABLE, METADATA):
        api.get(at("widgets", ns, name), accept=accept).refused(404, "NotFound")


def test_the_answer_to_a_write_as_table(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    answer = api.call("PATCH", at("widgets", ns, name), {"spec": {"size": 4}},
                      type="application/merge-patch+json", accept=TABLE)  # fmt: skip
    assert answer.ok(200)["rows"][0]["cells"][:2] == [name, 4]


ACCEPTS: list[tuple[str, str, int, str]] = [
    # id, Accept, code, content type
    ("json", "application/json", 200, "application/json"),
    ("anything", "*/*", 200, "application/json"),
    ("yaml", "application/yaml", 200, "application/yaml"),
    ("first-that-is-known", "text/html,application/json", 200, "application/json"),
    ("quality", "application/yaml;q=0.1,application/json", 200, "application/json"),
    ("table-or-json", f"{TABLE},application/json", 200, "application/json"),
    ("unknown-table-then-json", "application/json;as=Table;g=meta.k8s.io;v=v9,application/json", 200,
     "application/json"),
    ("html", "text/html", 406, "application/json"),
    ("unknown-table", "application/json;as=Table;g=meta.k8s.io;v=v9", 406, "application/json"),
]  # fmt: skip


@pytest.mark.parametrize(("accept", "code", "content_type"), [pytest.param(*row[1:], id=row[0]) for row in ACCEPTS])
@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
def test_accept(api: Api, ns: str, name: str, resource: str, accept: str, code: int, content_type: str) -> None:
    make(api, resource, ns, name)
    answer = api.get(at(resource, ns, name), accept=accept)
    assert (answer.code, answer.headers["content-type"]) == (code, content_type)
    if code == 406:
        answer.refused(406, "NotAcceptable")


def test_a_yaml_answer(api: Api, ns: str, name: str) -> None:
    made = make(api, "widgets", ns, name)
    body = yaml.safe_load(api.get(at("widgets", ns, name), accept=YAML).text)
    assert body["spec"] == made["spec"]


def test_protobuf_of_a_custom_kind_is_not_acceptable(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    answer = api.get(at("widgets", ns, name), accept=PROTOBUF)
    assert answer.code == 406


@pytest.mark.parametrize(("resource", "code"), [("configmaps", 406), ("widgets", 500)])
def test_one_object_in_the_form_of_a_list(api: Api, ns: str, name: str, resource: str, code: int) -> None:
    make(api, resource, ns, name)
    assert api.get(at(resource, ns, name), accept=METADATA_LIST).code == code
