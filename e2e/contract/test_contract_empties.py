"""What an object holds that was sent with empty lists and maps, and what a caller is told of a write that fails."""

import pytest
from contract.client import JSON_PATCH, MERGE_PATCH, Api, Json, at
from contract.objects import CONTAINER, make, obj

EMPTY_CONTAINER: Json = {
    **CONTAINER, "args": [], "command": [], "env": [], "ports": [], "volumeMounts": [],
    "resources": {"limits": {}, "requests": {}},
}  # fmt: skip


def test_empty_lists_and_maps_of_a_pod_are_left_out(api: Api, ns: str, name: str) -> None:
    spec = {"containers": [EMPTY_CONTAINER], "initContainers": [], "nodeSelector": {}, "hostAliases": []}
    made = make(api, "pods", ns, name, spec=spec, meta={"labels": {}, "annotations": {}, "finalizers": []})
    assert not {"initContainers", "nodeSelector", "hostAliases"} & set(made["spec"])
    assert not {"labels", "annotations", "finalizers"} & set(made["metadata"])
    container = made["spec"]["containers"][0]
    assert not {"args", "command", "env", "ports"} & set(container)
    assert container["resources"] == {}
    api.delete(at("pods", ns, name), {"gracePeriodSeconds": 0}).ok(200)


@pytest.mark.parametrize(
    ("resource", "fields", "gone"),
    [
        pytest.param("configmaps", {"data": {}, "binaryData": {}}, ("data", "binaryData"), id="configmap"),
        pytest.param("secrets", {"data": {}}, ("data",), id="secret"),
        pytest.param("serviceaccounts", {"secrets": [], "imagePullSecrets": []}, ("secrets",), id="serviceaccount"),
    ],
)
def test_empty_lists_and_maps_of_small_kinds_are_nobodys(
    api: Api, ns: str, name: str, resource: str, fields: Json, gone: tuple[str, ...]
) -> None:
    made = make(api, resource, ns, name, **fields)
    assert not set(gone) & set(made)
    owned = [key for entry in made["metadata"].get("managedFields", []) for key in entry["fieldsV1"]]
    assert not {f"f:{key}" for key in gone} & set(owned)


def test_custom_kinds_keep_what_is_empty(api: Api, ns: str, name: str) -> None:
    made = make(api, "widgets", ns, name, spec={"size": 1, "tags": []})
    assert made["spec"]["tags"] == []


def test_requests_are_taken_from_limits_in_pods_and_not_in_templates(api: Api, ns: str, name: str) -> None:
    limited = {**CONTAINER, "resources": {"limits": {"cpu": "1"}}}
    pod = make(api, "pods", ns, name, spec={"containers": [limited]})
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    api.delete(at("pods", ns, name), {"gracePeriodSeconds": 0}).ok(200)
    spec = obj("replicasets", name)["spec"]
    spec["template"]["spec"]["containers"] = [limited]
    held = make(api, "replicasets", ns, name, spec=spec)["spec"]["template"]["spec"]["containers"][0]
    assert held["resources"] == {"limits": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("resource", "change", "code"),
    [
        pytest.param("configmaps", {"metadata": {"name": "BAD_"}}, 422, id="422-configmap"),
        pytest.param("widgets", {"spec": {"size": 100}}, 422, id="422-widget"),
        pytest.param("configmaps", {"metadata": {"name": "kube-root-ca.crt"}}, 409, id="409"),
    ],
)
def test_a_refused_write_tells_of_unknown_fields_too(
    api: Api, ns: str, name: str, resource: str, change: Json, code: int
) -> None:
    sent = {**obj(resource, name), "surplus": 1, **change}
    answer = api.create(at(resource, ns), sent)
    assert (answer.code, answer.warnings) == (code, ['unknown field "surplus"'])
    answer = api.create(at(resource, ns), sent, fieldValidation="Ignore")
    assert (answer.code, answer.warnings) == (code, [])


@pytest.mark.parametrize("type", [JSON_PATCH, MERGE_PATCH])
@pytest.mark.parametrize(
    ("resource", "place"), [("configmaps", "ObjectMeta.metadata.labels"), ("widgets", "ObjectMeta.labels")]
)
def test_a_label_that_is_no_text_is_named_in_the_refusal(
    api: Api, ns: str, name: str, resource: str, place: str, type: str
) -> None:
    """The field of a built-in kind is named from its struct in Go; a custom kind has one for its metadata alone."""
    make(api, resource, ns, name)
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"x": 5}}]
    body: object = patch if type == JSON_PATCH else {"metadata": {"labels": {"x": 5}}}
    said = f"json: cannot unmarshal number into Go struct field {place} of type string"
    api.patch(at(resource, ns, name), body, type=type).refused(422, "Invalid", said)


def test_the_loops_write_under_their_managers_name(api: Api, ns: str) -> None:
    bundle = api.get(at("configmaps", ns, "kube-root-ca.crt")).ok(200)
    assert [m["manager"] for m in bundle["metadata"]["managedFields"]] == ["kube-controller-manager"]
