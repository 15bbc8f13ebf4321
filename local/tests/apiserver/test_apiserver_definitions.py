"""CustomResourceDefinitions in the core: served at once, changed, refused, and gone with their objects."""

from typing import Any

import pytest
from tests.apiserver.plane import Plane

from kruntimes.local.apiserver import changes
from kruntimes.local.apiserver.api import Api, Call
from kruntimes.local.apiserver.custom import definitions
from kruntimes.local.apiserver.openapi import openapi
from kruntimes.local.apiserver.parts import MERGE_PATCH
from kruntimes.local.apiserver.status import StatusError

Json = dict[str, Any]

SCHEMA: Json = {
    "type": "object",
    "description": "A thing.",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"size": {"type": "integer", "maximum": 9, "default": 3}, "name": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": "!has(self.name) || self.name != 'bad'", "message": "bad name"}],
        }
    },
}


@pytest.fixture
def plane() -> Plane:
    """A core that knows definitions."""
    return Plane(changes.install)


def define(plane: Plane, plural: str = "things", schema: Json | None = None, **spec: Any) -> Json:
    names = {"plural": plural, "kind": plural.capitalize()[:-1]}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or SCHEMA}}
    body = {"group": "x.example", "scope": "Namespaced", "names": names, "versions": [version], **spec}
    return plane.make("customresourcedefinitions", f"{plural}.x.example", spec=body)


def refusal(plane: Plane, **spec: Any) -> StatusError:
    with pytest.raises(StatusError) as refused:
        define(plane, **spec)
    return refused.value


def test_it_is_served_at_once(plane: Plane) -> None:
    made = define(plane)
    assert {c["type"]: c["status"] for c in made["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert made["status"]["acceptedNames"]["listKind"] == "ThingList"
    assert plane.of("things").singular == "thing"
    assert plane.make("things", "a", spec={"nope": 1})["spec"] == {"size": 3}


def test_its_objects_keep_to_its_schema_and_rules(plane: Plane) -> None:
    define(plane)
    for spec, message in (
        ({"size": 10}, "spec.size: Invalid value: 10"),
        ({"name": "bad"}, "spec: Invalid value: bad name"),
    ):
        with pytest.raises(StatusError, match=message):
            plane.make("things", "a", spec=spec)
    api, things = plane.api, plane.of("things")
    made = plane.make("things", "a", spec={"size": 1})
    with pytest.raises(StatusError, match="less than or equal to 9"):
        api.patch(things, "default", "a", {"spec": {"size": 10}}, MERGE_PATCH, Call())
    changed, _ = api.patch(things, "default", "a", {"spec": {"size": 2}}, MERGE_PATCH, Call())
    assert (made["metadata"]["generation"], changed["metadata"]["generation"]) == (1, 2)


def test_a_changed_schema_comes_into_force_at_once(plane: Plane) -> None:
    define(plane)
    plane.make("things", "old", spec={"size": 9})
    path = ["spec", "versions"]
    api, crds = plane.api, plane.of("customresourcedefinitions")

    def narrower(crd: Json) -> Json:
        crd[path[0]][path[1]][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]["maximum"] = 5
        return crd

    api.change(crds, "", "things.x.example", narrower)
    with pytest.raises(StatusError, match="less than or equal to 5"):
        plane.make("things", "new", spec={"size": 9})
    kept, _ = api.patch(plane.of("things"), "default", "old", {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH, Call())
    assert kept["spec"]["size"] == 9


def test_it_goes_when_its_objects_have_gone(plane: Plane) -> None:
    define(plane)
    plane.make("things", "free")
    plane.make("things", "held", metadata={"finalizers": ["x.example/a"]})
    plane.remove("customresourcedefinitions", "things.x.example")
    with pytest.raises(StatusError, match="create not allowed while custom resource definition is terminating"):
        plane.make("things", "late")
    definitions.clean_up(plane.api)
    assert [o["metadata"]["name"] for o in plane.all("things")] == ["held"]
    assert plane.found("customresourcedefinitions", "things.x.example") is not None

    def release(obj: Json) -> Json:
        del obj["metadata"]["finalizers"]
        return obj

    plane.api.change(plane.of("things"), "default", "held", release)
    definitions.clean_up(plane.api)
    assert plane.found("customresourcedefinitions", "things.x.example") is None
    assert all(resource.plural != "things" for resource in plane.api.resources)


def test_a_name_that_is_taken_is_not_served(plane: Plane) -> None:
    define(plane)
    second = define(plane, plural="others", names={"plural": "others", "kind": "Thing", "listKind": "OtherList"})
    assert [c["reason"] for c in second["status"]["conditions"]] == ["KindConflict", "NotAccepted"]
    assert all(resource.plural != "others" for resource in plane.api.resources)


def field(schema: Json) -> Json:
    """A schema with one field."""
    return {"type": "object", "properties": {"a": schema}}


def rule(raw: Json) -> Json:
    """A schema with one rule."""
    return {"type": "object", "x-kubernetes-validations": [raw]}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array"}, 'spec.validation.openAPIV3Schema.type: Invalid value: "array": must be object at the root'),
        (field({}), "properties[a].type: Required value"),
        (field({"type": "array"}), "properties[a].items: Required value"),
        (field({"type": "string", "pattern": "("}), "must be a valid regular expression"),
        (field({"type": "integer", "default": "x"}), "properties[a].default: Invalid value"),
        (rule({"rule": "self.a ==="}), "compilation failed: ERROR: <input>:1:10: "),
        (rule({"rule": "self.nope"}), "<input>:1:5: undefined field 'nope'"),
        (rule({"rule": "'a'"}), "cel expression must evaluate to a bool"),
        (rule({"rule": "true", "messageExpression": "1"}),
         "messageExpression must evaluate to a string"),
        (rule({"rule": "true", "optionalOldSelf": True}),
         "may not be set if oldSelf is not used in rule"),
        ({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}},
                                                 "additionalProperties": {"type": "string"}}}},
         "additionalProperties and properties are mutual exclusive"),
        ({"type": "object", "allOf": [{"type": "object"}]}, "allOf[0].type: Forbidden: must be empty to be structural"),
        ({"type": "object", "$ref": "x"}, "$ref is not supported"),
    ],
)  # fmt: skip
def test_schemas_that_are_refused(plane: Plane, schema: Json, message: str) -> None:
    refused = refusal(plane, schema=schema)
    assert refused.code == 422
    assert message in refused.message


@pytest.mark.parametrize(
    "spec",
    [{"group": ""}, {"scope": "World"}, {"versions": []}, {"names": {}},
     {"names": {"plural": "Things", "kind": "thing"}}, {"versions": [{"name": "V1", "served": True, "storage": True}]}],
)  # fmt: skip
def test_definitions_that_are_refused(plane: Plane, spec: Json) -> None:
    assert refusal(plane, **spec).code == 422


def test_two_cores_share_nothing(plane: Plane) -> None:
    define(plane)
    assert all(resource.plural != "things" for resource in Plane(changes.install).api.resources)


# ---------------------------------------------------------------- OpenAPI


def document(api: Api, path: str) -> Json:
    return openapi(api, path, {})


def test_openapi_tells_custom_kinds_as_defined(plane: Plane) -> None:
    before = document(plane.api, "/openapi/v3")["paths"]
    assert "apis/x.example/v1" not in before
    define(plane)
    index = document(plane.api, "/openapi/v3")["paths"]
    assert index["api/v1"] == before["api/v1"], "an unchanged group has an unchanged hash"
    assert index["apis/x.example/v1"]["serverRelativeURL"].startswith("/openapi/v3/apis/x.example/v1?hash=")
    found = document(plane.api, "/openapi/v3/apis/x.example/v1")
    schema = found["components"]["schemas"]["example.x.v1.Thing"]
    kind = {"group": "x.example", "version": "v1", "kind": "Thing"}
    assert schema["x-kubernetes-group-version-kind"] == [kind]
    assert schema["description"] == "A thing."
    assert schema["properties"]["spec"]["properties"]["size"]["maximum"] == 9
    paths = found["paths"]
    collection = "/apis/x.example/v1/namespaces/{namespace}/things"
    assert paths[collection]["get"]["x-kubernetes-group-version-kind"] == kind
    assert "fieldValidation" in {p["name"] for p in paths[f"{collection}/{{name}}"]["patch"]["parameters"]}


def test_openapi_refers_to_nothing_that_is_not_there(plane: Plane) -> None:
    for path in document(plane.api, "/openapi/v3")["paths"]:
        found = document(plane.api, f"/openapi/v3/{path}")
        schemas = found["components"]["schemas"]
        for name in _references(found):
            assert name in schemas, f"{path}: {name}"


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"].removeprefix("#/components/schemas/")] if isinstance(node.get("$ref"), str) else []
        return own + [name for value in node.values() for name in _references(value)]
    return [name for value in node for name in _references(value)] if isinstance(node, list) else []


@pytest.mark.parametrize("path", ["/openapi/v3/api", "/openapi/v3/apis/no.example/v1", "/openapi"])
def test_openapi_of_nothing(plane: Plane, path: str) -> None:
    with pytest.raises(StatusError) as refused:
        document(plane.api, path)
    assert refused.value.code == 404
