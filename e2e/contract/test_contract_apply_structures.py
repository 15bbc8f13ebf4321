"""Server-side apply of lists, sets, maps, metadata and status: who owns which part."""

from typing import Any

from contract.client import Api, Json, at
from contract.objects import KINDS, make, obj


def config(name: str, **data: str) -> Json:
    """A ConfigMap as a manager applies it."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def widget(name: str, **spec: Any) -> Json:
    """A Widget as a manager applies it."""
    return {"apiVersion": "contract.example/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


def managers(body: Json) -> dict[tuple[str, str], Json]:
    """The fields by manager and operation (and subresource, where there is one)."""
    found = {}
    for entry in body["metadata"].get("managedFields", []):
        sub = f"/{entry['subresource']}" if "subresource" in entry else ""
        found[entry["manager"], entry["operation"] + sub] = entry["fieldsV1"]
    return found


def test_list_items_are_owned_by_their_key(api: Api, ns: str, name: str) -> None:
    path = at("widgets", ns, name)
    api.apply(path, widget(name, size=1, parts=[{"name": "p", "count": 2}]), manager="one").ok(201)
    body = api.apply(path, widget(name, parts=[{"name": "q"}]), manager="two").ok(200)
    assert body["spec"]["parts"] == [{"name": "p", "count": 2}, {"name": "q", "count": 1}]
    assert managers(body)["two", "Apply"] == {"f:spec": {"f:parts": {'k:{"name":"q"}': {".": {}, "f:name": {}}}}}
    said = api.apply(path, widget(name, parts=[{"name": "p", "count": 3}]), manager="two").refused(409, "Conflict")
    assert said["message"].endswith('conflict with "one": .spec.parts[name="p"].count')
    body = api.apply(path, widget(name, size=1), manager="one").ok(200)
    assert body["spec"]["parts"] == [{"name": "q", "count": 1}]


def test_sets_are_owned_by_value(api: Api, ns: str, name: str) -> None:
    path = at("widgets", ns, name)
    api.apply(path, widget(name, size=1, tags=["a", "b"]), manager="one").ok(201)
    body = api.apply(path, widget(name, tags=["b", "c"]), manager="two").ok(200)
    assert sorted(body["spec"]["tags"]) == ["a", "b", "c"]
    assert managers(body)["two", "Apply"] == {"f:spec": {"f:tags": {'v:"b"': {}, 'v:"c"': {}}}}
    body = api.apply(path, widget(name, size=1), manager="one").ok(200)
    assert sorted(body["spec"]["tags"]) == ["b", "c"]


def test_atomic_lists_are_owned_whole(api: Api, ns: str, name: str) -> None:
    path = at("widgets", ns, name)
    api.apply(path, widget(name, size=1, list=[1, 2]), manager="one").ok(201)
    said = api.apply(path, widget(name, list=[1]), manager="two").refused(409, "Conflict")
    assert said["message"].endswith('conflict with "one": .spec.list')
    body = api.apply(path, widget(name, list=[3]), manager="two", force=True).ok(200)
    assert body["spec"]["list"] == [3]


def test_defaults_are_owned_by_no_one(api: Api, ns: str, name: str) -> None:
    body = api.apply(at("widgets", ns, name), widget(name, size=1), manager="one").ok(201)
    assert body["spec"]["color"] == "red"
    assert managers(body) == {("one", "Apply"): {"f:spec": {"f:size": {}}}}


def test_labels_annotations_and_finalizers(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    one = config(name, a="1")
    one["metadata"] |= {"labels": {"l": "1"}, "annotations": {"x": "1"}, "finalizers": ["contract.example/a"]}
    body = api.apply(path, one, manager="one").ok(201)
    assert managers(body)["one", "Apply"]["f:metadata"] == {
        "f:labels": {"f:l": {}},
        "f:annotations": {"f:x": {}},
        "f:finalizers": {'v:"contract.example/a"': {}},
    }
    body = api.apply(path, config(name, a="1"), manager="one").ok(200)
    assert not {"labels", "annotations", "finalizers"} & body["metadata"].keys()


def test_owner_references_are_owned_by_uid(api: Api, ns: str, name: str) -> None:
    owner = make(api, "configmaps", ns, f"{name}-owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{name}-owner", "uid": owner["metadata"]["uid"]}
    one = config(name, a="1")
    one["metadata"]["ownerReferences"] = [reference]
    body = api.apply(at("configmaps", ns, name), one, manager="one").ok(201)
    key = f'k:{{"uid":"{reference["uid"]}"}}'
    assert managers(body)["one", "Apply"]["f:metadata"] == {"f:ownerReferences": {key: {}}}


def test_ports_of_a_service_are_keyed_by_port_and_protocol(api: Api, ns: str, name: str) -> None:
    body = api.apply(at("services", ns, name), obj("services", name), manager="one").ok(201)
    assert managers(body)["one", "Apply"] == {
        "f:spec": {
            "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}},
            "f:selector": {},
        }
    }


def test_containers_are_keyed_by_name(api: Api, ns: str, name: str) -> None:
    path = at("replicasets", ns, name)
    body = api.apply(path, obj("replicasets", name), manager="one").ok(201)
    fields = managers(body)["one", "Apply"]["f:spec"]["f:template"]["f:spec"]
    assert fields["f:containers"] == {'k:{"name":"main"}': {".": {}, "f:name": {}, "f:image": {}}}
    api.delete(path).ok(200)


def test_the_status_is_applied_by_itself(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    path = at("widgets", ns, name, "status")
    status = {"phase": "p", "conditions": [{"type": "Ready", "status": "True"}]}
    body = api.apply(path, {**widget(name, size=9), "status": status}, manager="one").ok(200)
    assert (body["status"], body["spec"]["size"]) == (status, 3)
    assert managers(body)["one", "Apply/status"] == {
        "f:status": {
            "f:phase": {},
            "f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}, "f:status": {}}},
        }
    }


def test_a_condition_of_another_is_left_alone(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    path = at("widgets", ns, name, "status")
    for manager, kind in (("one", "A"), ("two", "B")):
        status = {"conditions": [{"type": kind, "status": "True"}]}
        body = api.apply(path, {**KIND, "metadata": {"name": name}, "status": status}, manager=manager).ok(200)
    assert [c["type"] for c in body["status"]["conditions"]] == ["A", "B"]
    body = api.apply(path, {**KIND, "metadata": {"name": name}, "status": {}}, manager="one").ok(200)
    assert [c["type"] for c in body["status"]["conditions"]] == ["B"]


KIND: Json = {"apiVersion": KINDS["widgets"][0], "kind": "Widget"}


def test_apply_to_the_status_of_nothing_is_404(api: Api, ns: str, name: str) -> None:
    path = at("widgets", ns, name, "status")
    api.apply(path, {**KIND, "metadata": {"name": name}, "status": {"phase": "p"}}, manager="one").refused(
        404, "NotFound"
    )
