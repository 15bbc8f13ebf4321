"""JSON patch, merge patch and strategic merge patch, what they refuse, and media types nobody knows."""

import pytest
from contract.client import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Api, Json, at
from contract.objects import CONTAINER, make

BOTH = pytest.mark.parametrize("resource", ["configmaps", "widgets"])

JSON_PATCHES: list[tuple[str, list[Json], Json | None]] = [
    # id, operations on annotations {a: 1, b: 2, x/y: slash}, the annotations after them or None where it is refused
    ("add", [{"op": "add", "path": "/c", "value": "3"}], {"c": "3"}),
    ("add-over", [{"op": "add", "path": "/a", "value": "3"}], {"a": "3"}),
    ("replace", [{"op": "replace", "path": "/a", "value": "3"}], {"a": "3"}),
    ("remove", [{"op": "remove", "path": "/a"}], {"a": None}),
    ("move", [{"op": "move", "from": "/a", "path": "/c"}], {"a": None, "c": "1"}),
    ("copy", [{"op": "copy", "from": "/a", "path": "/c"}], {"c": "1"}),
    ("test", [{"op": "test", "path": "/a", "value": "1"}, {"op": "add", "path": "/c", "value": "3"}], {"c": "3"}),
    ("slash-and-tilde", [{"op": "remove", "path": "/x~1y"}], {"x/y": None}),
    ("in-order", [{"op": "add", "path": "/c", "value": "3"}, {"op": "remove", "path": "/c"}], {}),
    ("empty", [], {}),
    ("test-fails", [{"op": "test", "path": "/a", "value": "9"}, {"op": "remove", "path": "/b"}], None),
    ("test-of-nothing", [{"op": "test", "path": "/nope", "value": "1"}], None),
    ("test-type-differs", [{"op": "test", "path": "/a", "value": 1}], None),
    ("remove-nothing", [{"op": "remove", "path": "/nope"}], None),
    # Against RFC 6902: a member that is not there is added, not refused.
    ("replace-nothing", [{"op": "replace", "path": "/nope", "value": "1"}], {"nope": "1"}),
    ("move-nothing", [{"op": "move", "from": "/nope", "path": "/c"}], None),
    ("add-below-nothing", [{"op": "add", "path": "/nope/deep", "value": "1"}], None),
    ("second-fails", [{"op": "remove", "path": "/a"}, {"op": "remove", "path": "/nope"}], None),
]
UNFIT = "the server rejected our request due to an error in our request"
"""It does not say which operation it was."""


@BOTH
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        pytest.param({"op": "remove"}, 400, "object into Go value of type []handlers.jsonPatchOp", id="object"),
        pytest.param(True, 400, "bool into Go value of type []handlers.jsonPatchOp", id="bool"),
        pytest.param(1, 400, "number into Go value of type []handlers.jsonPatchOp", id="number"),
        pytest.param([1], 400, "number into Go value of type handlers.jsonPatchOp", id="number-for-operation"),
        pytest.param(["x"], 400, "string into Go value of type handlers.jsonPatchOp", id="text-for-operation"),
        pytest.param([None], 422, UNFIT, id="null-for-operation"),
    ],
)  # fmt: skip
def test_a_json_patch_that_is_no_list_of_operations(
    api: Api, ns: str, name: str, resource: str, body: object, code: int, said: str
) -> None:
    make(api, resource, ns, name)
    api.patch(at(resource, ns, name), body, type=JSON_PATCH).refused(
        code, "BadRequest" if code == 400 else "Invalid", said
    )


@BOTH
@pytest.mark.parametrize(("ops", "expected"), [pytest.param(*row[1:], id=row[0]) for row in JSON_PATCHES])
def test_json_patch(api: Api, ns: str, name: str, resource: str, ops: list[Json], expected: Json | None) -> None:
    """What does not fit is 422 for the request as a whole, and nothing of it is written."""
    made = make(api, resource, ns, name, meta={"annotations": {"a": "1", "b": "2", "x/y": "slash"}})
    full = [{k: f"/metadata/annotations{v}" if k in ("path", "from") else v for k, v in op.items()} for op in ops]
    answer = api.patch(at(resource, ns, name), full, type=JSON_PATCH)
    if expected is None:
        answer.refused(422, "Invalid", UNFIT)
        assert api.get(at(resource, ns, name)).ok(200) == made
        return
    kept = {"a": "1", "b": "2", "x/y": "slash", **expected}
    assert answer.ok(200)["metadata"]["annotations"] == {k: v for k, v in kept.items() if v is not None}


LISTS: list[tuple[str, list[Json], list[str] | None]] = [
    # id, operations on tags [a, b], the tags after them or None where it is refused
    ("append", [{"op": "add", "path": "/spec/tags/-", "value": "c"}], ["a", "b", "c"]),
    ("insert", [{"op": "add", "path": "/spec/tags/0", "value": "c"}], ["c", "a", "b"]),
    ("insert-at-the-end", [{"op": "add", "path": "/spec/tags/2", "value": "c"}], ["a", "b", "c"]),
    ("remove", [{"op": "remove", "path": "/spec/tags/0"}], ["b"]),
    ("replace", [{"op": "replace", "path": "/spec/tags/1", "value": "c"}], ["a", "c"]),
    ("whole", [{"op": "replace", "path": "/spec/tags", "value": ["z"]}], ["z"]),
    ("test-list", [{"op": "test", "path": "/spec/tags", "value": ["a", "b"]}], ["a", "b"]),
    ("insert-behind-the-end", [{"op": "add", "path": "/spec/tags/3", "value": "c"}], None),
    ("remove-behind-the-end", [{"op": "remove", "path": "/spec/tags/2"}], None),
    ("not-an-index", [{"op": "add", "path": "/spec/tags/x", "value": "c"}], None),
    ("test-list-fails", [{"op": "test", "path": "/spec/tags", "value": ["b", "a"]}], None),
]


@pytest.mark.parametrize(("ops", "expected"), [pytest.param(*row[1:], id=row[0]) for row in LISTS])
def test_json_patch_of_lists(api: Api, ns: str, name: str, ops: list[Json], expected: list[str] | None) -> None:
    make(api, "widgets", ns, name, spec={"tags": ["a", "b"]})
    answer = api.patch(at("widgets", ns, name), ops, type=JSON_PATCH)
    if expected is None:
        answer.refused(422, "Invalid", UNFIT)
    else:
        assert answer.ok(200)["spec"]["tags"] == expected


MALFORMED: list[tuple[str, str, bytes, int, str, str]] = [
    # id, media type, body, code, reason, message
    ("json-no-json", JSON_PATCH, b"{", 400, "BadRequest", ""),
    ("json-empty", JSON_PATCH, b"", 400, "BadRequest", ""),
    ("json-object", JSON_PATCH, b'{"op": "add"}', 400, "BadRequest", ""),
    ("json-unknown-operation", JSON_PATCH, b'[{"op": "nope", "path": "/a"}]', 422, "Invalid", ""),
    ("json-no-path", JSON_PATCH, b'[{"op": "add", "value": 1}]', 422, "Invalid", ""),
    ("json-relative-path", JSON_PATCH, b'[{"op": "add", "path": "spec", "value": 1}]', 422, "Invalid", ""),
    ("merge-no-json", MERGE_PATCH, b"{", 400, "BadRequest", "invalid JSON patch"),
    ("merge-empty", MERGE_PATCH, b"", 400, "BadRequest", "invalid JSON patch"),
    ("merge-list", MERGE_PATCH, b"[]", 400, "BadRequest", "error decoding patch"),
    ("merge-text", MERGE_PATCH, b'"x"', 400, "BadRequest", "error decoding patch"),
    ("json-type", JSON, b"{}", 415, "UnsupportedMediaType", ""),
    ("unknown-type", "text/plain", b"{}", 415, "UnsupportedMediaType", ""),
]


@BOTH
@pytest.mark.parametrize(
    ("type", "body", "code", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in MALFORMED]
)
def test_patches_that_are_none(
    api: Api, ns: str, name: str, resource: str, type: str, body: bytes, code: int, reason: str, message: str
) -> None:
    make(api, resource, ns, name)
    api.patch(at(resource, ns, name), body, type=type).refused(code, reason, message)


@BOTH
def test_a_patch_without_media_type_is_415(api: Api, ns: str, name: str, resource: str) -> None:
    make(api, resource, ns, name)
    answer = api.http.request("PATCH", at(resource, ns, name), content=b"{}", headers={"content-type": ""})
    assert answer.status_code == 415


@pytest.mark.parametrize("type", [f"{MERGE_PATCH}; charset=utf-8", MERGE_PATCH.upper()])
def test_parameters_of_the_media_type(api: Api, ns: str, name: str, type: str) -> None:
    """They are ignored; upper case is not understood."""
    make(api, "widgets", ns, name)
    answer = api.patch(at("widgets", ns, name), {"metadata": {"labels": {"a": "b"}}}, type=type)
    assert answer.code == (200 if type.islower() else 415)


def test_too_many_operations_are_413(api: Api, ns: str, name: str) -> None:
    make(api, "configmaps", ns, name)
    ops = [{"op": "test", "path": "/metadata/name", "value": name}] * 10001
    api.patch(at("configmaps", ns, name), ops, type=JSON_PATCH).refused(
        413, "RequestEntityTooLarge", "The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


MERGES: list[tuple[str, Json, Json]] = [
    # id, patch of data {a: 1, b: 2}, data after it
    ("change", {"data": {"a": "9"}}, {"a": "9", "b": "2"}),
    ("add", {"data": {"c": "3"}}, {"a": "1", "b": "2", "c": "3"}),
    ("null-deletes", {"data": {"a": None}}, {"b": "2"}),
    ("null-of-nothing", {"data": {"nope": None}}, {"a": "1", "b": "2"}),
    ("null-deletes-all", {"data": None}, {}),
    ("empty-map-changes-nothing", {"data": {}}, {"a": "1", "b": "2"}),
]


@pytest.mark.parametrize("type", [MERGE_PATCH, STRATEGIC_PATCH])
@pytest.mark.parametrize(("patch", "data"), [pytest.param(*row[1:], id=row[0]) for row in MERGES])
def test_merge_patches_of_maps(api: Api, ns: str, name: str, type: str, patch: Json, data: Json) -> None:
    make(api, "configmaps", ns, name, data={"a": "1", "b": "2"})
    assert api.patch(at("configmaps", ns, name), patch, type=type).ok(200).get("data", {}) == data


def test_a_merge_patch_replaces_lists_whole(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name, spec={"tags": ["a", "b"], "parts": [{"name": "p"}, {"name": "q"}]})
    patch = {"spec": {"tags": ["c"], "parts": [{"name": "r", "count": 2}]}}
    spec = api.patch(at("widgets", ns, name), patch).ok(200)["spec"]
    assert (spec["tags"], spec["parts"]) == (["c"], [{"name": "r", "count": 2}])


def test_a_merge_patch_cannot_empty_a_required_field(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    api.patch(at("widgets", ns, name), {"spec": {"size": None}}).refused(422, "Invalid", "spec.size: Required value")


def test_a_strategic_patch_of_a_custom_object_is_415(api: Api, ns: str, name: str) -> None:
    """kubectl falls back to a merge patch then."""
    make(api, "widgets", ns, name)
    api.patch(at("widgets", ns, name), {}, type=STRATEGIC_PATCH).refused(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )


def test_strategic_finalizers_are_a_set(api: Api, ns: str, name: str) -> None:
    """A list in the patch is added to the list that is there; a directive takes out of it."""
    make(api, "configmaps", ns, name, meta={"finalizers": ["contract.example/a"]})
    path = at("configmaps", ns, name)
    body = api.patch(path, {"metadata": {"finalizers": ["contract.example/b"]}}, type=STRATEGIC_PATCH).ok(200)
    assert sorted(body["metadata"]["finalizers"]) == ["contract.example/a", "contract.example/b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["contract.example/a"]}}
    assert api.patch(path, patch, type=STRATEGIC_PATCH).ok(200)["metadata"]["finalizers"] == ["contract.example/b"]
    assert (
        "finalizers" not in api.patch(path, {"metadata": {"finalizers": None}}, type=STRATEGIC_PATCH).ok()["metadata"]
    )


def test_strategic_owners_are_merged_by_uid(api: Api, ns: str, name: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}
    make(api, "configmaps", ns, name, meta={"ownerReferences": [owner], "finalizers": ["contract.example/a"]})
    path = at("configmaps", ns, name)
    other = {**owner, "uid": "2"}
    body = api.patch(path, {"metadata": {"ownerReferences": [other]}}, type=STRATEGIC_PATCH).ok(200)
    assert sorted(o["uid"] for o in body["metadata"]["ownerReferences"]) == ["1", "2"]
    gone = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "1"}]}}
    body = api.patch(path, gone, type=STRATEGIC_PATCH).ok(200)
    assert [o["uid"] for o in body["metadata"]["ownerReferences"]] == ["2"]
    api.patch(path, {"metadata": {"finalizers": None}})


def test_strategic_conditions_are_merged_by_type(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, name)
    path = at("pods", ns, name, "status")
    for kind, status in (("Ready", "False"), ("contract.example/X", "True"), ("Ready", "True")):
        patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
        body = api.patch(path, patch, type=STRATEGIC_PATCH).ok(200)
    conditions = {c["type"]: c["status"] for c in body["status"]["conditions"]}
    assert {k: conditions.get(k) for k in ("Ready", "contract.example/X")} == {
        "Ready": "True",
        "contract.example/X": "True",
    }


def test_strategic_containers_are_merged_by_name(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, name, spec={"containers": [CONTAINER, {**CONTAINER, "name": "second"}]})
    patch = {"spec": {"containers": [{"name": "second", "image": "other:2"}]}}
    body = api.patch(at("pods", ns, name), patch, type=STRATEGIC_PATCH).ok(200)
    images = {c["name"]: c["image"] for c in body["spec"]["containers"]}
    assert images == {"main": CONTAINER["image"], "second": "other:2"}


def test_strategic_replace_directive(api: Api, ns: str, name: str) -> None:
    make(api, "configmaps", ns, name, data={"a": "1", "b": "2"})
    patch = {"data": {"$patch": "replace", "c": "3"}}
    assert api.patch(at("configmaps", ns, name), patch, type=STRATEGIC_PATCH).ok(200)["data"] == {"c": "3"}


def test_a_patch_to_something_of_the_wrong_shape(api: Api, ns: str, name: str) -> None:
    """A built-in kind cannot be decoded then (422 about the patch), a custom one fails its schema."""
    make(api, "configmaps", ns, name)
    answer = api.patch(at("configmaps", ns, name), {"data": "text"})
    answer.refused(422, "Invalid", "patch: Invalid value")
    assert answer.causes == [("patch", "FieldValueInvalid")]
    make(api, "widgets", ns, name)
    answer = api.patch(at("widgets", ns, name), {"spec": "text"})
    answer.refused(422, "Invalid", 'spec: Invalid value: "string": spec in body must be of type object: "string"')


def test_labels_that_are_no_text(api: Api, ns: str, name: str) -> None:
    for resource in ("configmaps", "widgets"):
        make(api, resource, ns, name)
        answer = api.patch(at(resource, ns, name), {"metadata": {"labels": {"a": 1}}})
        answer.refused(422, "Invalid", "patch: Invalid value")


def test_an_unknown_field_in_a_patch_is_dropped_with_a_warning(api: Api, ns: str, name: str) -> None:
    for resource, field in (("configmaps", "nope"), ("widgets", "spec.nope")):
        make(api, resource, ns, name)
        patch: Json = {"nope": 1} if field == "nope" else {"spec": {"nope": 1}}
        answer = api.patch(at(resource, ns, name), patch)
        assert "nope" not in answer.ok(200)
        assert "nope" not in answer.body.get("spec", {})
        assert answer.warnings == [f'unknown field "{field}"']


def test_apply_of_json_is_yaml(api: Api, ns: str, name: str) -> None:
    body = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  a: '1'\n".encode()
    query = {"fieldManager": "m"}
    made = api.call("PATCH", at("configmaps", ns, name), body, type=APPLY_PATCH, query=query).ok(201)
    assert made["data"] == {"a": "1"}
