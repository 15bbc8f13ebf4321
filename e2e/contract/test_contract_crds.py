"""CustomResourceDefinitions: from creation to Established, what is refused, and what their deletion takes along."""

import copy
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract.client import Answer, Api, Json, at, eventually
from contract.kinds import crd
from contract.objects import make

CRDS = at("customresourcedefinitions")
SCHEMA: Json = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}},
}


@pytest.fixture
def kind(api: Api) -> Iterator[str]:
    """A plural that is free; its definition is removed at the end. The group is `GROUP.example`."""
    plural = f"k{uuid.uuid4().hex[:8]}s"
    yield plural
    api.delete(f"{CRDS}/{plural}.{plural}.example")


def definition(plural: str, **version: object) -> Json:
    """A CRD in a group of its own."""
    body = crd(plural, plural.capitalize()[:-1], copy.deepcopy(SCHEMA), group=f"{plural}.example", **version)
    return body


def objects(plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """The path of its objects."""
    path = f"/apis/{plural}.example/v1"
    path += f"/namespaces/{namespace}/{plural}" if namespace else f"/{plural}"
    return f"{path}/{name}" if name else path


def thing(plural: str, name: str, **spec: object) -> Json:
    """One of its objects."""
    kind = plural.capitalize()[:-1]
    return {"apiVersion": f"{plural}.example/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def served(api: Api, plural: str) -> None:
    """Waits until the server answers for it."""
    eventually(f"{plural} served", lambda: api.get(objects(plural)).code == 200)


def conditions(body: Json) -> dict[str, str]:
    """Status by type."""
    return {c["type"]: c["status"] for c in body.get("status", {}).get("conditions") or []}


def test_from_creation_to_its_end(api: Api, ns: str, kind: str) -> None:
    made = api.create(CRDS, definition(kind)).ok(201)
    path = f"{CRDS}/{kind}.{kind}.example"
    assert made["metadata"]["generation"] == 1
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["status"]["storedVersions"] == ["v1"]
    ready = eventually(
        "Established", lambda: b if conditions(b := api.get(path).ok(200)).get("Established") == "True" else None
    )
    assert conditions(ready) == {"NamesAccepted": "True", "Established": "True"}
    assert {c["type"]: c["reason"] for c in ready["status"]["conditions"]} == {
        "NamesAccepted": "NoConflicts",
        "Established": "InitialNamesAccepted",
    }
    assert ready["status"]["acceptedNames"] == ready["spec"]["names"]
    served(api, kind)
    entry = api.get(f"/apis/{kind}.example/v1").ok(200)["resources"]
    assert [r["name"] for r in entry] == [kind]
    api.create(objects(kind, ns), thing(kind, "one", a="x")).ok(201)
    api.delete(path).ok(200)
    eventually("definition gone", lambda: api.get(path).code == 404)
    eventually("resource gone", lambda: api.get(objects(kind)).code == 404)
    eventually("group gone", lambda: api.get(f"/apis/{kind}.example").code == 404)


def test_its_deletion_deletes_every_object_and_tells_watchers(api: Api, ns: str, kind: str) -> None:
    """The definition waits, with a finalizer of the server's own, until the last object is gone."""
    api.create(CRDS, definition(kind)).ok(201)
    path = f"{CRDS}/{kind}.{kind}.example"
    served(api, kind)
    held = thing(kind, "held")
    held["metadata"]["finalizers"] = ["contract.example/a"]
    api.create(objects(kind, ns), held).ok(201)
    since = api.create(objects(kind, ns), thing(kind, "free")).ok(201)["metadata"]["resourceVersion"]
    with api.watch(objects(kind), resourceVersion=since) as watch:
        api.delete(path).ok(200)
        events = {e["object"]["metadata"]["name"]: e["type"] for e in watch.take(2)}
    assert events == {"free": "DELETED", "held": "MODIFIED"}
    body = api.get(path).ok(200)
    assert body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert conditions(body)["Terminating"] == "True"

    def refusal() -> Answer | None:
        answer = api.create(objects(kind, ns), thing(kind, f"new-{uuid.uuid4().hex[:5]}"))
        return answer if answer.code != 201 else None

    eventually("no new objects", refusal).refused(
        403, "Forbidden", "is forbidden: create not allowed while custom resource definition is terminating"
    )
    api.patch(objects(kind, ns, "held"), {"metadata": {"finalizers": None}}).ok(200)
    eventually("definition gone", lambda: api.get(path).code == 404)


def test_a_changed_schema_comes_into_force(api: Api, ns: str, kind: str) -> None:
    api.create(CRDS, definition(kind)).ok(201)
    served(api, kind)
    api.create(objects(kind, ns), thing(kind, "old", n=50)).ok(201)
    path = f"{CRDS}/{kind}.{kind}.example"
    limit = [{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/n/maximum",
              "value": 9}]  # fmt: skip
    assert api.patch(path, limit, type="application/json-patch+json").ok(200)["metadata"]["generation"] == 2
    new = thing(kind, "new", n=50)
    eventually("refused", lambda: api.create(objects(kind, ns), new, dryRun="All").code == 422)
    # What is stored already may stay as it is, as long as it is not touched.
    api.patch(objects(kind, ns, "old"), {"spec": {"a": "x"}}).ok(200)
    api.patch(objects(kind, ns, "old"), {"spec": {"n": 51}}).refused(422, "Invalid", "spec.n: Invalid value: 51")


def test_a_cluster_scoped_kind(api: Api, name: str) -> None:
    made = make(api, "clusterthings", None, name)
    assert "namespace" not in made["metadata"]
    assert api.get(at("clusterthings", "default")).code == 404
    api.delete(at("clusterthings", None, name)).ok(200)


def test_a_kind_whose_name_is_taken(api: Api, kind: str) -> None:
    """It is stored, and not served: NamesAccepted is False and says which name."""
    body = definition(kind)
    api.create(CRDS, body).ok(201)
    served(api, kind)
    other = f"other{kind}"
    second = definition(kind)
    second["metadata"]["name"] = f"{other}.{kind}.example"
    second["spec"]["names"] |= {"plural": other, "listKind": "OtherList"}
    api.create(CRDS, second).ok(201)
    path = f"{CRDS}/{other}.{kind}.example"
    found: Any = eventually("looked at", lambda: b if conditions(b := api.get(path).ok(200)) else None)
    api.delete(path).ok(200)
    assert conditions(found) == {"NamesAccepted": "False", "Established": "False"}
    accepted = next(c for c in found["status"]["conditions"] if c["type"] == "NamesAccepted")
    assert accepted["reason"] in ("KindConflict", "MultipleNamesConflict", "ShortNamesConflict")


def test_the_status_is_not_the_callers(api: Api, kind: str) -> None:
    body = definition(kind)
    body["status"] = {"conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v9"]}
    assert api.create(CRDS, body).ok(201)["status"]["storedVersions"] == ["v1"]


Change = Callable[[Json], None]


def at_schema(*path: str, value: object) -> Change:
    """Sets *value* below the schema."""

    def change(body: Json) -> None:
        node = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = value

    return change


def at_spec(**fields: object) -> Change:
    """Sets fields of spec."""
    return lambda body: body["spec"].update(fields)


def at_version(**fields: object) -> Change:
    """Sets fields of the version."""
    return lambda body: body["spec"]["versions"][0].update(fields)


def rule(text: str, **more: object) -> Change:
    """A validation rule on spec."""
    return at_schema("properties", "spec", "x-kubernetes-validations", value=[{"rule": text, **more}])


V = "spec.versions[0]"
S = "spec.validation.openAPIV3Schema"
REFUSED: list[tuple[str, Change, str, str]] = [
    # id, change to a good definition, field, part of the message
    ("name", lambda b: b["metadata"].update(name="x.other"), "metadata.name", "must be spec.names.plural+"),
    ("scope", at_spec(scope="Universe"), "spec.scope", 'supported values: "Cluster", "Namespaced"'),
    ("no-version", at_spec(versions=[]), "spec.versions", "must have exactly one version marked as storage version"),
    ("no-storage", at_version(storage=False), "spec.versions", "must have exactly one version marked as storage"),
    ("no-schema", at_version(schema=None), f"{V}.schema.openAPIV3Schema", "Required value"),
    ("root-not-object", at_schema("type", value="array"), f"{S}.type", "must be object at the root"),
    ("no-type", at_schema("properties", "spec", "properties", "a", value={"description": "x"}),
     f"{S}.properties[spec].properties[a].type", "Required value: must not be empty for specified object fields"),
    ("unknown-type", at_schema("properties", "spec", "properties", "a", value={"type": "text"}),
     f"{S}.properties[spec].properties[a].type", 'Unsupported value: "text"'),
    ("array-without-items", at_schema("properties", "spec", "properties", "a", value={"type": "array"}),
     f"{S}.properties[spec].properties[a].items", "Required value"),
    ("default-of-other-type", at_schema("properties", "spec", "properties", "a",
                                        value={"type": "string", "default": 3}),
     f"{S}.properties[spec].properties[a].default", "must be of type string"),
    ("default-outside-enum", at_schema("properties", "spec", "properties", "a",
                                       value={"type": "string", "enum": ["x"], "default": "y"}),
     f"{S}.properties[spec].properties[a].default", "Unsupported value"),
    ("map-without-keys", at_schema("properties", "spec", "properties", "a",
                                   value={"type": "array", "x-kubernetes-list-type": "map",
                                          "items": {"type": "object"}}),
     f"{S}.properties[spec].properties[a].x-kubernetes-list-map-keys", "Required value"),
    ("pattern", at_schema("properties", "spec", "properties", "a", value={"type": "string", "pattern": "("}),
     f"{S}.properties[spec].properties[a].pattern", "must be a valid regular expression"),
    ("rule-syntax", rule("self.a =="), f"{S}.properties[spec].x-kubernetes-validations[0].rule", "compilation failed"),
    ("rule-unknown-field", rule("self.nope == 'x'"), f"{S}.properties[spec].x-kubernetes-validations[0].rule",
     "undefined field 'nope'"),
    ("rule-type", rule("self.a == 3"), f"{S}.properties[spec].x-kubernetes-validations[0].rule",
     "found no matching overload"),
    ("rule-no-boolean", rule("self.a"), f"{S}.properties[spec].x-kubernetes-validations[0].rule",
     "cel expression must evaluate to a bool"),
    ("rule-empty", rule(""), f"{S}.properties[spec].x-kubernetes-validations[0].rule", "rule is not specified"),
    ("rule-reason", rule("true", reason="Because"), f"{S}.properties[spec].x-kubernetes-validations[0].reason",
     'Unsupported value: "Because"'),
    ("rule-field-path", rule("true", fieldPath=".nope"),
     f"{S}.properties[spec].x-kubernetes-validations[0].fieldPath", "must be a valid path"),
    ("selectable-unknown", at_version(selectableFields=[{"jsonPath": ".spec.nope"}]),
     "spec.selectableFields[0].jsonPath", "does not refer to a valid field"),
    ("selectable-object", at_version(selectableFields=[{"jsonPath": ".spec"}]),
     "spec.selectableFields[0].jsonPath", "must point to a field of type string, boolean or integer"),
    ("selectable-twice", at_version(selectableFields=[{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}]),
     "spec.selectableFields[1].jsonPath", "Duplicate value"),
    ("scale-path", at_version(subresources={"scale": {"specReplicasPath": ".nope", "statusReplicasPath": ".status.n"}}),
     "spec.subresources.scale.specReplicasPath", "should be a json path under .spec"),
    ("column-type", at_version(additionalPrinterColumns=[{"name": "A", "type": "text", "jsonPath": ".spec.a"}]),
     "spec.additionalPrinterColumns[0].type", "must be one of boolean,date,integer,number,string"),
    ("column-path", at_version(additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": "spec.a"}]),
     "spec.additionalPrinterColumns[0].JSONPath", "must be a simple json path starting with ."),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_definitions_that_are_refused(api: Api, kind: str, change: Change, field: str, message: str) -> None:
    body = definition(kind)
    change(body)
    answer = api.create(CRDS, body)
    answer.refused(422, "Invalid", "CustomResourceDefinition.apiextensions.k8s.io ", " is invalid: ")
    fields = {f for f, _ in answer.causes}
    assert field in fields, answer.text[:1500]
    assert message in answer.message


def test_a_name_that_is_taken_already_is_409(api: Api) -> None:
    body = definition("plains")
    body["spec"]["group"] = "contract.example"
    body["metadata"]["name"] = "plains.contract.example"
    api.create(CRDS, body).refused(409, "AlreadyExists", "plains.contract.example")


def test_the_scope_cannot_change(api: Api, kind: str) -> None:
    api.create(CRDS, definition(kind)).ok(201)
    path = f"{CRDS}/{kind}.{kind}.example"
    eventually("established", lambda: conditions(api.get(path).ok(200)).get("Established") == "True")
    api.patch(path, {"spec": {"scope": "Cluster"}}).refused(422, "Invalid", "spec.scope: Invalid value", "immutable")


def test_it_is_applied_as_krt_does_it(api: Api, kind: str) -> None:
    path = f"{CRDS}/{kind}.{kind}.example"
    api.apply(path, definition(kind), manager="one", force=True).ok(201)
    served(api, kind)
    first = api.apply(path, definition(kind), manager="one", force=True).ok(200)["metadata"]
    again = api.apply(path, definition(kind), manager="one", force=True).ok(200)["metadata"]
    assert (first["generation"], again["generation"]) == (1, 1)


def test_two_versions(api: Api, ns: str, name: str) -> None:
    """An object is read in each served version; a version that is not served is 404. The highest is preferred."""
    made = make(api, "manies", ns, name)
    path = at("manies", ns, name)
    second = api.get(path.replace("/v1/", "/v2/")).ok(200)
    assert (second["apiVersion"], second["spec"]) == ("contract.example/v2", made["spec"])
    assert api.get(path.replace("/v1/", "/v3/")).code == 404
    group = api.get("/apis/contract.example").ok(200)
    assert [v["version"] for v in group["versions"]] == ["v2", "v1"]
    assert group["preferredVersion"]["version"] == "v2"
    names = {r["name"] for r in api.get("/apis/contract.example/v2").ok(200)["resources"]}
    assert names == {"manies"}
    with api.watch(path.rpartition("/")[0].replace("/v1/", "/v2/"), fieldSelector=f"metadata.name={name}") as watch:
        assert watch.next()["object"]["apiVersion"] == "contract.example/v2"
