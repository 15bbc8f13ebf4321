"""Server-side apply: create, update, who owns which field, conflicts, force, and fields that are given up."""

import copy
from typing import Any

import pytest
from contract.client import APPLY_PATCH, Api, Json, at
from contract.objects import CONTAINER, make, obj


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


APPLIED = ["configmaps", "widgets", "leases", "services", "roles", "secrets", "replicasets", "runs"]


@pytest.mark.parametrize("resource", APPLIED)
def test_apply_creates_and_applying_again_writes_nothing(api: Api, ns: str, name: str, resource: str) -> None:
    path = at(resource, ns, name)
    first = api.apply(path, obj(resource, name), manager="one").ok(201)
    assert ("one", "Apply") in managers(first)
    again = api.apply(path, obj(resource, name), manager="one").ok(200)
    if resource != "replicasets":  # its controller writes too
        assert again["metadata"] == first["metadata"]
    api.delete(path).ok(200)


def test_the_creator_owns_what_it_applied(api: Api, ns: str, name: str) -> None:
    body = api.apply(at("configmaps", ns, name), config(name, a="1"), manager="one").ok(201)
    [entry] = body["metadata"]["managedFields"]
    assert {k: v for k, v in entry.items() if k != "time"} == {
        "manager": "one",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}},
    }


def test_two_managers_of_different_fields(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    api.apply(path, config(name, a="1"), manager="one").ok(201)
    body = api.apply(path, config(name, b="2"), manager="two").ok(200)
    assert body["data"] == {"a": "1", "b": "2"}
    assert managers(body) == {
        ("one", "Apply"): {"f:data": {"f:a": {}}},
        ("two", "Apply"): {"f:data": {"f:b": {}}},
    }


def test_the_same_value_is_owned_together(api: Api, ns: str, name: str) -> None:
    """No conflict; and when one gives it up, it stays for the other."""
    path = at("configmaps", ns, name)
    api.apply(path, config(name, a="1", c="3"), manager="one").ok(201)
    api.apply(path, config(name, a="1"), manager="two").ok(200)
    body = api.apply(path, config(name, c="3"), manager="one").ok(200)
    assert body["data"] == {"a": "1", "c": "3"}
    assert managers(body)["two", "Apply"] == {"f:data": {"f:a": {}}}


def test_a_field_that_is_no_longer_applied_goes(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    api.apply(path, config(name, a="1", b="2"), manager="one").ok(201)
    body = api.apply(path, config(name, b="2"), manager="one").ok(200)
    assert body["data"] == {"b": "2"}
    assert managers(body) == {("one", "Apply"): {"f:data": {"f:b": {}}}}


def test_a_field_written_otherwise_is_not_taken_away(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    api.apply(path, config(name, a="1"), manager="one").ok(201)
    api.patch(path, {"data": {"b": "2"}}, fieldManager="editor").ok(200)
    body = api.apply(path, config(name, a="1"), manager="one").ok(200)
    assert body["data"] == {"a": "1", "b": "2"}
    assert managers(body)["editor", "Update"] == {"f:data": {"f:b": {}}}


def test_a_conflict_names_managers_and_fields(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    api.apply(path, config(name, a="1", b="2"), manager="one").ok(201)
    answer = api.apply(path, config(name, a="9", b="9"), manager="two")
    said = answer.refused(409, "Conflict")
    assert said["message"] == ('Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\n- .data.b')
    assert said["details"] == {
        "causes": [
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"},
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.b"},
        ]
    }
    assert api.get(path).ok(200)["data"] == {"a": "1", "b": "2"}


def test_one_conflict_is_told_in_one_line(api: Api, ns: str, name: str) -> None:
    path = at("widgets", ns, name)
    api.apply(path, widget(name, size=1), manager="one").ok(201)
    said = api.apply(path, widget(name, size=2), manager="two").refused(409, "Conflict")
    assert said["message"] == 'Apply failed with 1 conflict: conflict with "one": .spec.size'


def test_a_conflict_with_someone_who_did_not_apply_tells_how_they_wrote(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    api.create(at("configmaps", ns), config(name, a="1"), fieldManager="editor").ok(201)
    said = api.apply(path, config(name, a="2"), manager="two").refused(409, "Conflict")
    assert said["message"].startswith('Apply failed with 1 conflict: conflict with "editor" using v1')
    assert said["message"].endswith(": .data.a")


def test_a_conflict_with_two(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    api.apply(path, config(name, a="1"), manager="one").ok(201)
    api.apply(path, config(name, b="2"), manager="two").ok(200)
    said = api.apply(path, config(name, a="9", b="9"), manager="three").refused(409, "Conflict")
    assert said["message"] == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\nconflicts with "two":\n- .data.b'
    )


def test_force_takes_the_field_over(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    api.apply(path, config(name, a="1", b="2"), manager="one").ok(201)
    body = api.apply(path, config(name, a="9"), manager="two", force=True).ok(200)
    assert body["data"] == {"a": "9", "b": "2"}
    assert managers(body) == {
        ("one", "Apply"): {"f:data": {"f:b": {}}},
        ("two", "Apply"): {"f:data": {"f:a": {}}},
    }


def test_a_write_takes_a_field_over_without_asking(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    api.apply(path, config(name, a="1"), manager="one").ok(201)
    body = api.patch(path, {"data": {"a": "9"}}, fieldManager="editor").ok(200)
    assert managers(body) == {("editor", "Update"): {"f:data": {"f:a": {}}}}
    api.apply(path, config(name, a="1"), manager="one").refused(409, "Conflict", '"editor" using v1')


def test_one_manager_updating_and_applying_is_two_owners(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    api.create(at("configmaps", ns), config(name, a="1"), fieldManager="same").ok(201)
    body = api.apply(path, config(name, a="1"), manager="same").ok(200)
    assert set(managers(body)) == {("same", "Update"), ("same", "Apply")}


def test_apply_with_a_resource_version(api: Api, ns: str, name: str) -> None:
    """It is the usual precondition, except where there is nothing yet: then it is ignored and the object is created."""
    path = at("configmaps", ns, name)
    old = config(name, a="1")
    old["metadata"]["resourceVersion"] = "1"
    api.apply(path, old, manager="one").ok(201)
    api.apply(path, old | {"data": {"a": "2"}}, manager="one").refused(409, "Conflict", "the object has been modified")


def test_apply_while_deleting_cannot_add_finalizers(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    make(api, "configmaps", ns, name, meta={"finalizers": ["contract.example/a"]})
    api.delete(path).ok(200)
    body = config(name)
    body["metadata"]["finalizers"] = ["contract.example/b"]
    api.apply(path, body, manager="one").refused(422, "Invalid", "no new finalizers can be added")
    api.patch(path, {"metadata": {"finalizers": None}})


REFUSED: list[tuple[str, Json, dict[str, str], int, str, str]] = [
    # id, changes to the body, query, code, reason, message
    ("no-manager", {}, {}, 422, "Invalid",
     "fieldManager: Required value: is required for apply patch"),
    ("long-manager", {}, {"fieldManager": "m" * 129}, 422, "Invalid", "fieldManager: Too long"),
    ("managed-fields", {"metadata": {"name": "NAME", "managedFields": [{"manager": "x"}]}}, {"fieldManager": "m"}, 400,
     "BadRequest", "metadata.managedFields must be nil"),
    ("other-name", {"metadata": {"name": "other"}}, {"fieldManager": "m"}, 400, "BadRequest",
     "the name of the object (other) does not match the name on the URL"),
    ("no-kind", {"kind": None}, {"fieldManager": "m"}, 400, "BadRequest", ""),
    ("other-kind", {"kind": "Secret"}, {"fieldManager": "m"}, 400, "BadRequest", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "query", "code", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
)
def test_apply_refuses(
    api: Api, ns: str, name: str, change: Json, query: dict[str, str], code: int, reason: str, message: str
) -> None:
    body = {**config(name, a="1"), **change}
    if body["metadata"]["name"] == "NAME":
        body["metadata"] = {**body["metadata"], "name": name}
    answer = api.call("PATCH", at("configmaps", ns, name), body, type=APPLY_PATCH, query=query)
    answer.refused(code, reason, message)


def test_force_is_only_for_apply(api: Api, ns: str, name: str) -> None:
    make(api, "configmaps", ns, name)
    api.patch(at("configmaps", ns, name), {}, force="true").refused(
        422, "Invalid", "force: Forbidden: may not be specified for non-apply patch"
    )


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
def test_apply_of_an_unknown_field(api: Api, ns: str, name: str, resource: str) -> None:
    """It does not fit the schema of the kind: 500 without a reason, whatever fieldValidation says."""
    body = obj(resource, name)
    (body if resource == "configmaps" else body["spec"])["nope"] = 1
    answer = api.apply(at(resource, ns, name), body, manager="one")
    answer.refused(500, "", "field not declared in schema")


def test_apply_of_a_pod_to_a_list_key_twice(api: Api, ns: str, name: str) -> None:
    body = obj("pods", name, spec={"containers": [CONTAINER, CONTAINER]})
    answer = api.apply(at("pods", ns, name), body, manager="one")
    answer.refused(500, "", 'duplicate entries for key [name="main"]')


QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param("12x", f"apps/v1, Kind=ReplicaSet: {QUANTITY}", id="suffix"),
        pytest.param("12 Gi", f"apps/v1, Kind=ReplicaSet: {QUANTITY}", id="space"),
        pytest.param("", f"apps/v1, Kind=ReplicaSet: {QUANTITY}", id="empty"),
        pytest.param(True, f"apps/v1, Kind=ReplicaSet: {QUANTITY}", id="boolean"),
        pytest.param(["12x"], "resources.limits.memory: expected any scalar, got ", id="list"),
        pytest.param({"a": "1"}, "resources.limits.memory: expected any scalar, got ", id="map"),
    ],
)
def test_a_wrong_quantity(api: Api, ns: str, name: str, value: object, said: str) -> None:
    """A bad request where the object is created; applied, it is 500 without a reason, new or not."""
    body = obj("replicasets", name)
    main = body["spec"]["template"]["spec"]["containers"][0]
    wrong = copy.deepcopy(body)
    wrong["spec"]["template"]["spec"]["containers"][0] = {**main, "resources": {"limits": {"memory": value}}}
    api.create(at("replicasets", ns), wrong).refused(
        400, "BadRequest", f'ReplicaSet in version "v1" cannot be handled as a ReplicaSet: {QUANTITY}'
    )
    path = at("replicasets", ns, name)
    api.apply(path, wrong, manager="one").refused(500, "", said)
    api.apply(path, body, manager="one").ok(201)
    api.apply(path, wrong, manager="one").refused(500, "", said)


@pytest.mark.parametrize("value", ["12x", True, ["12x"]], ids=["text", "boolean", "list"])
def test_a_wrong_quantity_in_a_merge_patch(api: Api, ns: str, name: str, value: object) -> None:
    make(api, "replicasets", ns, name)
    main = {**CONTAINER, "resources": {"limits": {"memory": value}}}
    patch = {"spec": {"template": {"spec": {"containers": [main]}}}}
    api.patch(at("replicasets", ns, name), patch).refused(422, "Invalid", QUANTITY)


def test_managed_fields_that_were_cleared(api: Api, ns: str, name: str) -> None:
    """After `managedFields: [{}]` what is there belongs to `before-first-apply` as soon as someone applies."""
    path = at("configmaps", ns, name)
    api.apply(path, config(name, a="1"), manager="one").ok(201)
    api.patch(path, {"metadata": {"managedFields": [{}]}}).ok(200)
    said = api.apply(path, config(name, a="2"), manager="two").refused(409, "Conflict")
    assert said["message"] == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'
    body = api.apply(path, config(name, a="1"), manager="two").ok(200)
    assert set(managers(body)) == {("two", "Apply"), ("before-first-apply", "Update")}


def test_an_object_with_no_field_has_no_owner(api: Api, ns: str, name: str) -> None:
    body = api.apply(at("serviceaccounts", ns, name), obj("serviceaccounts", name), manager="one").ok(201)
    assert "managedFields" not in body["metadata"]
