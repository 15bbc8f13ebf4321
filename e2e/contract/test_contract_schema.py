"""Custom objects against their schema: defaults, pruning, field validation, and every refusal with its causes."""

from typing import Any

import pytest
from contract.client import Api, Json, at
from contract.objects import make, obj

# ---------------------------------------------------------------- defaults

DEFAULTS: list[tuple[str, Json, Json]] = [
    # id, spec as sent, what stands in spec then
    ("all", {}, {"color": "red", "maybe": "there", "nested": {"depth": 7}}),
    ("given-value-stays", {"color": "green"}, {"color": "green"}),
    ("default-in-an-empty-object", {"nested": {}}, {"nested": {"depth": 7}}),
    ("default-beside-a-value", {"nested": {"free": {"x": 1}}}, {"nested": {"depth": 7, "free": {"x": 1}}}),
    ("in-list-items", {"parts": [{"name": "p"}]}, {"parts": [{"name": "p", "count": 1}]}),
    ("null-of-a-nullable-stays", {"maybe": None}, {"maybe": None}),
    ("null-of-another-is-defaulted", {"color": None}, {"color": "red"}),
    ("null-without-default-is-dropped", {"on": None}, {}),
]


@pytest.mark.parametrize(("spec", "expected"), [pytest.param(*row[1:], id=row[0]) for row in DEFAULTS])
def test_defaults(api: Api, ns: str, name: str, spec: Json, expected: Json) -> None:
    made = make(api, "widgets", ns, name, spec=spec)["spec"]
    assert {key: made[key] for key in expected} == expected
    assert "on" not in made


def test_defaults_are_written_again_by_every_update(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name, spec={"color": "green"})
    assert api.patch(at("widgets", ns, name), {"spec": {"color": None}}).ok(200)["spec"]["color"] == "red"


def test_a_default_does_not_make_its_parent(api: Api, ns: str, name: str) -> None:
    """`status.phase` of a Run has a default, but no status appears before it is written."""
    assert "status" not in make(api, "runs", ns, name)
    body = api.patch(at("runs", ns, name, "status"), {"status": {"message": "m"}}).ok(200)
    assert body["status"] == {"message": "m", "phase": "Pending"}


def test_defaults_of_a_runtime(api: Api, ns: str, name: str) -> None:
    spec = make(api, "runtimes", ns, name)["spec"]
    assert (spec["port"], spec["replicas"], spec["capacity"]) == (9091, 1, {"resources": {"runs": "2"}})


# ---------------------------------------------------------------- unknown fields

UNKNOWN: list[tuple[str, Json, list[str]]] = [
    # id, fields laid over a valid Widget, the unknown ones in the order of warnings
    ("top", {"nope": 1}, ["nope"]),
    ("in-spec", {"spec": {"nope": 1}}, ["spec.nope"]),
    ("in-nested", {"spec": {"nested": {"nope": 1}}}, ["spec.nested.nope"]),
    ("in-list", {"spec": {"parts": [{"name": "p"}, {"name": "q", "nope": 1}]}}, ["spec.parts[1].nope"]),
    ("in-metadata", {"metadata": {"nope": 1}}, ["metadata.nope"]),
    ("two", {"spec": {"b": 1, "a": 1}}, ["spec.a", "spec.b"]),
    ("preserved", {"spec": {"nested": {"free": {"any": {"thing": [1]}}}}}, []),
    ("additional", {"spec": {"labels": {"any": "thing"}}}, []),
    ("other-case", {"spec": {"Color": "red"}}, ["spec.Color"]),
]


def overlaid(name: str, change: Json) -> Json:
    """A Widget with *change* merged in two levels deep."""
    body = obj("widgets", name)
    for key, value in change.items():
        body[key] = {**body.get(key, {}), **value} if isinstance(value, dict) else value
    return body


@pytest.mark.parametrize(("change", "fields"), [pytest.param(*row[1:], id=row[0]) for row in UNKNOWN])
@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore", None])
def test_unknown_fields(api: Api, ns: str, name: str, change: Json, fields: list[str], mode: str | None) -> None:
    """They are pruned; Strict refuses them all in one 400, Warn (which is the default) warns, Ignore says nothing."""
    query = {} if mode is None else {"fieldValidation": mode}
    answer = api.create(at("widgets", ns), overlaid(name, change), **query)
    said = [f'unknown field "{field}"' for field in fields]
    if mode == "Strict" and fields:
        answer.refused(400, "BadRequest", f"strict decoding error: {', '.join(said)}")
        return
    body = answer.ok(201)
    assert "nope" not in str({k: v for k, v in body.items() if k != "metadata"})
    assert answer.warnings == ([] if mode in ("Ignore", "Strict") else said)


@pytest.mark.parametrize(
    ("method", "mode", "code"), [("PUT", "Strict", 400), ("PATCH", "Strict", 422), ("PUT", "Warn", 200)]
)
def test_unknown_fields_in_updates(api: Api, ns: str, name: str, method: str, mode: str, code: int) -> None:
    """A strict PATCH is 422 about the patch where a strict PUT is 400."""
    made = make(api, "widgets", ns, name)
    path = at("widgets", ns, name)
    if method == "PUT":
        answer = api.replace(path, {**made, "spec": {**made["spec"], "nope": 1}}, fieldValidation=mode)
    else:
        answer = api.patch(path, {"spec": {"nope": 1}}, fieldValidation=mode)
    if code == 200:
        assert answer.warnings == ['unknown field "spec.nope"']
    else:
        answer.refused(
            code, "BadRequest" if code == 400 else "Invalid", 'strict decoding error: unknown field "spec.nope"'
        )


BUILT_IN: list[tuple[str, str, Json, str]] = [
    ("top", "configmaps", {"nope": 1}, 'unknown field "nope"'),
    ("deep", "pods", {"spec": {"containers": [{"name": "m", "image": "i", "nope": 1}]}},
     'unknown field "spec.containers[0].nope"'),
    ("in-metadata", "configmaps", {"metadata": {"name": "NAME", "nope": 1}}, 'unknown field "metadata.nope"'),
    ("in-a-role", "roles", {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["x"], "nope": 1}]},
     'unknown field "rules[0].nope"'),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "change", "says"), [pytest.param(*row[1:], id=row[0]) for row in BUILT_IN])
def test_unknown_fields_of_built_in_kinds(api: Api, ns: str, name: str, resource: str, change: Json, says: str) -> None:
    """Strict names the kind and the version; Warn is the default here too."""
    body = {**obj(resource, name), **change}
    body["metadata"]["name"] = name
    answer = api.create(at(resource, ns), body, fieldValidation="Strict")
    answer.refused(400, "BadRequest", "strict decoding error: ", says)
    answer = api.create(at(resource, ns), body)
    answer.ok(201)
    assert answer.warnings == [says]


@pytest.mark.parametrize(
    ("resource", "body", "says"),
    [
        pytest.param(
            "configmaps",
            b'{"metadata":{"name":"NAME"},"data":{"a":"1","a":"2"}}',
            'duplicate field "data.a"',
            id="built-in",
        ),
        pytest.param(
            "widgets",
            b'{"apiVersion":"contract.example/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"size":1,"size":2}}',
            'duplicate field "spec.size"',
            id="custom",
        ),
    ],
)
def test_duplicate_fields(api: Api, ns: str, name: str, resource: str, body: bytes, says: str) -> None:
    body = body.replace(b"NAME", name.encode())
    api.create(at(resource, ns), body, fieldValidation="Strict").refused(400, "BadRequest", says)
    answer = api.create(at(resource, ns), body)
    answer.ok(201)
    assert answer.warnings == [says]


def test_an_unknown_mode_is_422(api: Api, ns: str, name: str) -> None:
    api.create(at("widgets", ns), obj("widgets", name), fieldValidation="Some").refused(
        422, "Invalid", 'fieldValidation: Unsupported value: "Some": supported values: "", "Ignore", "Strict", "Warn"'
    )


# ---------------------------------------------------------------- values

INVALID: list[tuple[str, Any, str, str, str]] = [
    # id, spec laid over {size: 3}, field, reason, message of the cause
    ("required", {"size": None}, "spec.size", "FieldValueRequired", "Required value"),
    ("minimum", {"size": 0}, "spec.size", "FieldValueInvalid",
     "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
    ("maximum", {"size": 10}, "spec.size", "FieldValueInvalid",
     "Invalid value: 10: spec.size in body should be less than or equal to 9"),
    ("exclusive-minimum", {"ratio": 0}, "spec.ratio", "FieldValueInvalid",
     "Invalid value: 0: spec.ratio in body should be greater than 0"),
    ("multiple-of", {"ratio": 0.75}, "spec.ratio", "FieldValueInvalid",
     "Invalid value: 0.75: spec.ratio in body should be a multiple of 0.5"),
    ("enum", {"color": "blue"}, "spec.color", "FieldValueNotSupported",
     'Unsupported value: "blue": supported values: "red", "green"'),
    ("too-long", {"code": "abcde"}, "spec.code", "FieldValueTooLong", "Too long: may not be more than 4 bytes"),
    ("too-short", {"code": "a"}, "spec.code", "FieldValueInvalid",
     'Invalid value: "a": spec.code in body should be at least 2 chars long'),
    ("pattern", {"code": "AB"}, "spec.code", "FieldValueInvalid",
     "Invalid value: \"AB\": spec.code in body should match '^[a-z]+$'"),
    ("string-for-integer", {"size": "3"}, "spec.size", "FieldValueTypeInvalid",
     'Invalid value: "string": spec.size in body must be of type integer: "string"'),
    ("fraction-for-integer", {"size": 3.5}, "spec.size", "FieldValueTypeInvalid",
     'Invalid value: "number": spec.size in body must be of type integer: "number"'),
    ("integer-for-string", {"code": 3}, "spec.code", "FieldValueTypeInvalid",
     'Invalid value: "integer": spec.code in body must be of type string: "integer"'),
    ("string-for-boolean", {"on": "true"}, "spec.on", "FieldValueTypeInvalid",
     'Invalid value: "string": spec.on in body must be of type boolean: "string"'),
    ("object-for-array", {"tags": {}}, "spec.tags", "FieldValueTypeInvalid",
     'Invalid value: "object": spec.tags in body must be of type array: "object"'),
    ("array-for-object", {"nested": []}, "spec.nested", "FieldValueTypeInvalid",
     'Invalid value: "array": spec.nested in body must be of type object: "array"'),
    ("null-item", {"tags": [None]}, "spec.tags[0]", "FieldValueTypeInvalid",
     'Invalid value: "null": spec.tags[0] in body must be of type string: "null"'),
    ("date-time", {"when": "yesterday"}, "spec.when", "FieldValueTypeInvalid",
     'Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday"'),
    ("byte", {"blob": "%%"}, "spec.blob", "FieldValueTypeInvalid",
     'Invalid value: "%%": spec.blob in body must be of type byte: "%%"'),
    # Formats of numbers, and oneOf, are told without a field.
    ("int32", {"small": 2147483648}, "<nil>", "FieldValueInvalid",
     'Invalid value: "": Checked value must be of type integer with format int32 in spec.small'),
    ("int-or-string", {"port": True}, "spec.port", "FieldValueTypeInvalid",
     'Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"'),
    ("max-items", {"tags": ["a", "b", "c", "d"]}, "spec.tags", "FieldValueTooMany",
     "Too many: 4: must have at most 3 items"),
    ("min-items", {"list": []}, "spec.list", "FieldValueInvalid",
     "Invalid value: 0: spec.list in body should have at least 1 items"),
    ("set-twice", {"tags": ["a", "a"]}, "spec.tags[1]", "FieldValueDuplicate", 'Duplicate value: "a"'),
    ("map-key-twice", {"parts": [{"name": "p"}, {"name": "p"}]}, "spec.parts[1]", "FieldValueDuplicate",
     'Duplicate value: {"name":"p"}'),
    ("map-key-missing", {"parts": [{"count": 1}]}, "spec.parts[0].name", "FieldValueRequired", "Required value"),
    ("item-too-long", {"tags": ["a", "b" * 11]}, "spec.tags[1]", "FieldValueTooLong",
     "Too long: may not be more than 10 bytes"),
    ("max-properties", {"labels": {"a": "1", "b": "2", "c": "3"}}, "spec.labels", "FieldValueTooMany",
     "Too many: 3: must have at most 2 items"),
    ("additional-type", {"labels": {"a": 1}}, "spec.labels.a", "FieldValueTypeInvalid",
     'Invalid value: "integer": spec.labels.a in body must be of type string: "integer"'),
    ("one-of-none", {"either": {}}, "<nil>", "FieldValueInvalid",
     'Invalid value: "": "spec.either" must validate one and only one schema (oneOf). Found none valid'),
    ("one-of-both", {"either": {"a": "1", "b": "2"}}, "<nil>", "FieldValueInvalid",
     'Invalid value: "": "spec.either" must validate one and only one schema (oneOf). Found 2 valid alternatives'),
    ("nested-integer", {"nested": {"depth": "7"}}, "spec.nested.depth", "FieldValueTypeInvalid",
     'Invalid value: "string": spec.nested.depth in body must be of type integer: "string"'),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in INVALID])
@pytest.mark.parametrize("verb", ["create", "patch"])
def test_values_that_the_schema_refuses(
    api: Api, ns: str, name: str, spec: Json, field: str, reason: str, message: str, verb: str
) -> None:
    if verb == "create":
        answer = api.create(at("widgets", ns), obj("widgets", name, spec=spec))
    else:
        make(api, "widgets", ns, name)
        answer = api.patch(at("widgets", ns, name), {"spec": spec})
    said = answer.refused(422, "Invalid", f'Widget.contract.example "{name}" is invalid: ')
    assert {k: said["details"][k] for k in ("name", "group", "kind")} == {
        "name": name,
        "group": "contract.example",
        "kind": "Widget",
    }
    assert (field, reason) in answer.causes
    assert message in answer.cause_messages[field]
    assert f"{field}: {message}" in answer.message


GOOD: list[tuple[str, Json]] = [
    ("bounds", {"size": 1, "code": "ab"}),
    ("upper-bounds", {"size": 9, "code": "abcd"}),
    ("whole-number-with-fraction", {"list": [3.0]}),
    ("multiple-of", {"ratio": 1.5}),
    ("date-time", {"when": "2026-01-02T03:04:05Z"}),
    ("date-time-with-offset", {"when": "2026-01-02T03:04:05.678+01:00"}),
    ("byte", {"blob": "YQ=="}),
    ("port-number", {"port": 80}),
    ("port-name", {"port": "http"}),
    ("one-of", {"either": {"a": "1"}}),
    ("pattern-is-a-search", {"code": "abc"}),
    ("empty-lists", {"tags": [], "parts": []}),
]


@pytest.mark.parametrize("spec", [pytest.param(row[1], id=row[0]) for row in GOOD])
def test_values_that_the_schema_takes(api: Api, ns: str, name: str, spec: Json) -> None:
    made = make(api, "widgets", ns, name, spec=spec)["spec"]
    assert {k: v for k, v in made.items() if k in spec and k != "parts"} == {
        k: v for k, v in spec.items() if k != "parts"
    }


def test_several_faults_are_told_together(api: Api, ns: str, name: str) -> None:
    """In brackets, with a comma between; and one cause each."""
    answer = api.create(at("widgets", ns), obj("widgets", name, spec={"size": 0, "color": "blue", "code": "a"}))
    said = answer.refused(422, "Invalid", f'Widget.contract.example "{name}" is invalid: [', "]")
    assert answer.causes == [
        ("spec.code", "FieldValueInvalid"),
        ("spec.color", "FieldValueNotSupported"),
        ("spec.size", "FieldValueInvalid"),
    ]
    assert len(said["details"]["causes"]) == 3


def test_a_missing_spec(api: Api, ns: str, name: str) -> None:
    body = obj("widgets", name)
    del body["spec"]
    answer = api.create(at("widgets", ns), body)
    answer.refused(422, "Invalid", f'Widget.contract.example "{name}" is invalid: spec: Required value')
    assert answer.causes == [("spec", "FieldValueRequired")]


def test_the_status_is_held_to_the_schema(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    answer = api.patch(at("widgets", ns, name, "status"), {"status": {"phase": 3}})
    answer.refused(422, "Invalid", "status.phase: Invalid value")
    answer = api.patch(at("widgets", ns, name, "status"), {"status": {"conditions": [{"type": "A"}]}})
    answer.refused(422, "Invalid", "status.conditions[0].status: Required value")


def test_an_integer_stays_an_integer(api: Api, ns: str, name: str) -> None:
    """One beyond what a float holds."""
    make(api, "widgets", ns, name, spec={"nested": {"free": {"big": 9007199254740993}}})
    assert "9007199254740993" in api.get(at("widgets", ns, name)).text
