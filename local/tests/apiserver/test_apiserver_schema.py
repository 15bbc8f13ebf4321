"""Structural schemas: defaults, pruning, bounds with the server's words, formats, lists that are sets or maps."""

import copy
from typing import Any

import pytest

from kruntimes.local.apiserver.durations import BadDuration, parse_duration
from kruntimes.local.apiserver.quantities import BadQuantity, parse_quantity
from kruntimes.local.apiserver.schema.formats import FORMATS
from kruntimes.local.apiserver.schema.listtypes import duplicates
from kruntimes.local.apiserver.schema.schema import Schema
from kruntimes.local.apiserver.schema.structural import ABSENT, read
from kruntimes.local.apiserver.schema.validation import validate
from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.values import compact, quote, same, shown

Json = dict[str, Any]


def faults(schema: Json, value: Any, old: Any = ABSENT, *, base: str = "") -> list[Cause]:
    """The faults of a field `x` with this schema."""
    root = read({"type": "object", "properties": {"x": schema}})
    before = ABSENT if old is ABSENT else {"x": old}
    return validate({"x": value}, root, base=base, old=before)


BOUNDS: list[tuple[Json, Any, str, str]] = [
    # schema, value, reason, message
    ({"type": "string"}, 1, "TypeInvalid", 'Invalid value: "integer": x in body must be of type string: "integer"'),
    ({"type": "string"}, None, "TypeInvalid", 'Invalid value: "null": x in body must be of type string: "null"'),
    ({"type": "integer"}, True, "TypeInvalid",
     'Invalid value: "boolean": x in body must be of type integer: "boolean"'),
    ({"type": "object"}, [], "TypeInvalid", 'Invalid value: "array": x in body must be of type object: "array"'),
    ({"x-kubernetes-int-or-string": True}, 1.5, "TypeInvalid",
     'Invalid value: "number": x in body must be of type integer,string: "number"'),
    ({"type": "integer", "minimum": 1}, 0, "Invalid",
     "Invalid value: 0: x in body should be greater than or equal to 1"),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 1, "Invalid",
     "Invalid value: 1: x in body should be greater than 1"),
    ({"type": "number", "maximum": 1.5}, 2.25, "Invalid",
     "Invalid value: 2.25: x in body should be less than or equal to 1.5"),
    ({"type": "number", "maximum": 2, "exclusiveMaximum": True}, 2.0, "Invalid",
     "Invalid value: 2: x in body should be less than 2"),
    ({"type": "number", "multipleOf": 0.5}, 0.75, "Invalid",
     "Invalid value: 0.75: x in body should be a multiple of 0.5"),
    ({"type": "string", "maxLength": 2}, "äöü", "TooLong", "Too long: may not be more than 2 bytes"),
    ({"type": "string", "minLength": 2}, "ä", "Invalid",
     'Invalid value: "ä": x in body should be at least 2 chars long'),
    ({"type": "string", "pattern": "^a+$"}, "a\n", "Invalid", 'Invalid value: "a\\n": x in body should match \'^a+$\''),
    ({"type": "string", "enum": ["a", "b"]}, "c", "NotSupported", 'Unsupported value: "c": supported values: "a", "b"'),
    ({"type": "integer", "enum": [1, 2]}, 3, "NotSupported", 'Unsupported value: 3: supported values: "1", "2"'),
    ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a", "b"], "TooMany",
     "Too many: 2: must have at most 1 item"),
    ({"type": "array", "items": {"type": "string"}, "minItems": 1}, [], "Invalid",
     "Invalid value: 0: x in body should have at least 1 items"),
    ({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}, {"a": "", "b": ""},
     "TooMany", "Too many: 2: must have at most 1 item"),
    ({"type": "object", "minProperties": 1}, {}, "Invalid",
     "Invalid value: 0: x in body should have at least 1 properties"),
    ({"type": "string", "format": "date-time"}, "yesterday", "TypeInvalid",
     'Invalid value: "yesterday": x in body must be of type date-time: "yesterday"'),
    ({"type": "string", "format": "date-time"}, 5, "TypeInvalid",
     'Invalid value: "int64": x in body must be of type date-time: "int64"'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "reason", "message"), BOUNDS)
def test_bounds(schema: Json, value: Any, reason: str, message: str) -> None:
    assert faults(schema, value) == [Cause("x", f"FieldValue{reason}", message)]
    assert faults(schema, value, value) == [], "what has not changed is not found fault with again"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "nullable": True}, None),
        ({"type": "number"}, 1),
        ({"type": "integer"}, 2.0),
        ({"x-kubernetes-int-or-string": True}, "5"),
        ({"type": "string", "format": "no-such-format"}, "anything"),
        ({"type": "string", "maxLength": 3}, "äöü"),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"a": [1, None]}),
    ],
)
def test_within_bounds(schema: Json, value: Any) -> None:
    assert faults(schema, value) == []


def test_a_fraction_and_a_huge_number_are_no_integers() -> None:
    for value in (1.5, 2**63):
        found = faults({"type": "integer"}, value)
        assert [(c.field, c.message) for c in found] == [
            ("x", 'Invalid value: "number": x in body must be of type integer: "number"'),
            ("<nil>", 'Invalid value: "": Checked value must be of type integer (default format) in x'),
        ]


def test_a_whole_number_is_held_to_a_whole_factor() -> None:
    [cause] = faults({"type": "number", "multipleOf": 0.5}, 5)
    assert cause.message == "Invalid value: 0: factor MultipleOf declared for x must be positive: 0"
    assert faults({"type": "number", "multipleOf": 0.5}, 5.0) == []


def test_where_faults_are() -> None:
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {"b": {"type": "array", "items": {"type": "object", "required": ["c"], "properties": {}}}},
        "additionalProperties": {"type": "integer"},
    }
    found = faults(schema, {"b": [{"c": 1}, {}], "z": "x"})
    assert sorted(c.field for c in found) == ["x.a", "x.b[1].c", "x.z"]
    [cause] = faults({"type": "integer", "minimum": 1}, 0, base="status")
    assert (cause.field, cause.message.partition(": x")[1]) == ("status.x", ": x")


def test_one_of_any_of_all_of_and_not() -> None:
    either = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    one = {**either, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert faults(one, {"a": ""}) == []
    none, both = faults(one, {}), faults(one, {"a": "", "b": ""})
    assert none[0].message == 'Invalid value: "": "x" must validate one and only one schema (oneOf). Found none valid'
    assert (none[0].field, none[1].field) == ("<nil>", "x.a")
    assert [c.message for c in both] == [
        'Invalid value: "": "x" must validate one and only one schema (oneOf). Found 2 valid alternatives'
    ]
    assert faults({"type": "string", "anyOf": [{"maxLength": 1}, {"pattern": "^a"}]}, "ab") == []
    assert (
        "must validate at least one schema (anyOf)"
        in faults({"type": "string", "anyOf": [{"maxLength": 1}]}, "ab")[0].message
    )
    assert "must validate all the schemas (allOf). None validated" in faults(
        {"type": "string", "allOf": [{"maxLength": 1}]}, "ab"
    )[-1].message  # fmt: skip
    assert "must not validate the schema (not)" in faults({"type": "string", "not": {"maxLength": 9}}, "ab")[0].message


def test_items_that_have_not_changed_are_told_by_their_key() -> None:
    schema = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer", "maximum": 1}}},
    }
    old = [{"name": "a", "n": 5}, {"name": "b", "n": 5}]
    assert faults(schema, [{"name": "b", "n": 5}, {"name": "c", "n": 1}], old) == []
    [cause] = faults(schema, [{"name": "b", "n": 6}], old)
    assert cause.field == "x[0].n"


# ---------------------------------------------------------------- defaults and pruning

FILLING: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "a": {"type": "string", "default": "d"},
                "maybe": {"type": "string", "nullable": True, "default": "d"},
                "no": {"type": "string"},
                "deep": {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 7}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"default": 1}}}},
                "map": {
                    "type": "object",
                    "additionalProperties": {"type": "object", "properties": {"k": {"default": 2}}},
                },
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"known": {"type": "object", "properties": {}}},
                },
                "raw": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": {"type": "object"}},
                },
            },
        }
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "expected", "unknown"),
    [
        ({}, {"a": "d", "maybe": "d", "deep": {"n": 7}}, []),
        ({"a": None, "maybe": None, "no": None}, {"a": "d", "maybe": None, "deep": {"n": 7}}, []),
        ({"deep": {"n": 1, "x": 1}}, {"a": "d", "maybe": "d", "deep": {"n": 1}}, ["spec.deep.x"]),
        ({"list": [{}, {"n": 2, "y": 0}]}, {"a": "d", "maybe": "d", "deep": {"n": 7}, "list": [{"n": 1}, {"n": 2}]},
         ["spec.list[1].y"]),
        ({"map": {"q": {}}}, {"a": "d", "maybe": "d", "deep": {"n": 7}, "map": {"q": {"k": 2}}}, []),
        ({"free": {"any": {"x": 1}, "known": {"z": 1}}},
         {"a": "d", "maybe": "d", "deep": {"n": 7}, "free": {"any": {"x": 1}, "known": {}}}, ["spec.free.known.z"]),
        ({"raw": {"kind": "K", "metadata": {"name": "n"}, "other": 1, "spec": {}}},
         {"a": "d", "maybe": "d", "deep": {"n": 7}, "raw": {"kind": "K", "metadata": {"name": "n"}, "spec": {}}},
         ["spec.raw.other"]),
    ],
)  # fmt: skip
def test_filling_and_pruning(spec: Json, expected: Json, unknown: list[str]) -> None:
    schema = Schema.compile(FILLING)
    obj: Json = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "nope": 1}, "top": 1, "spec": spec}
    assert schema.fill(obj) == sorted([*unknown, "metadata.nope", "top"])
    assert obj == {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": expected}
    again = copy.deepcopy(obj)
    assert schema.fill(obj) == []
    assert obj == again


def test_defaults_are_not_shared() -> None:
    schema = Schema.compile(FILLING)
    one: Json = {"metadata": {}, "spec": {}}
    schema.fill(one)
    one["spec"]["deep"]["n"] = 0
    two: Json = {"metadata": {}, "spec": {}}
    schema.fill(two)
    assert two["spec"]["deep"] == {"n": 7}


def test_rules_wait_for_what_they_may_rely_on() -> None:
    schema = Schema.compile({
        "type": "object",
        "properties": {"n": {"type": "integer"}, "m": {"type": "integer", "minimum": 5}},
        "x-kubernetes-validations": [{"rule": "self.n > 0"}],
    })  # fmt: skip
    blocked = schema.faults({"n": "x"})
    assert [c.reason for c in blocked] == ["FieldValueTypeInvalid", "FieldValueInvalid"]
    assert blocked[1].message.startswith("Invalid value: null: some validation rules were not checked")
    assert len(schema.faults({"n": 0, "m": 1})) == 2, "a bound that is merely passed blocks nothing"


def test_duplicates() -> None:
    node = read({
        "type": "object",
        "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
            },
        },
    })  # fmt: skip
    assert duplicates({"set": ["x", "y"], "map": [{"a": "1", "b": 1}, {"a": "1", "b": 2}, {"a": "1"}]}, node) == []
    found = duplicates({"set": ["x", "y", "x", "x"], "map": [{"a": "1", "b": 1}, {"b": 1, "a": "1"}]}, node)
    assert found == [
        Cause("set[2]", "FieldValueDuplicate", 'Duplicate value: "x"'),
        Cause("map[1]", "FieldValueDuplicate", 'Duplicate value: {"a":"1","b":1}'),
    ]


# ---------------------------------------------------------------- formats, durations, quantities, texts

GOOD_AND_BAD: dict[str, tuple[list[str], list[str]]] = {
    "datetime": (["2026-03-01T12:00:00Z", "2026-03-01t12:00:00.123+01:00"], ["2026-03-01", "2026-13-01T00:00:00Z",
                                                                           "2026-03-01T24:00:00Z", "x"]),
    "date": (["2024-02-29"], ["2026-02-29", "2026-3-1", "20260301"]),
    "duration": (["1h30m", "5 days", "1.5s"], ["", "x", "5"]),
    "byte": (["YQ==", "YWJj"], ["", "YQ=", "%%%", "YQ"]),
    "ipv4": (["1.2.3.4", "010.0.0.1"], ["1.2.3", "::1", "256.0.0.1"]),
    "ipv6": (["::1"], ["1.2.3.4", "g::"]),
    "cidr": (["10.0.0.0/8", "::/0"], ["10.0.0.0", "10.0.0.0/33"]),
    "uri": (["https://a.b/c", "/p"], ["a", "https://a b"]),
    "hostname": (["a.example.com", "a"], ["-a", "a..b", "a_b"]),
    "email": (["a@b.c", "A <a@b.c>"], ["a", "@b"]),
    "uuid": (["1f0e1c5e-2d3a-4f5b-8c7d-9e0f1a2b3c4d"], ["1f0e", "x" * 36]),
    "uuid4": (["1f0e1c5e-2d3a-4f5b-8c7d-9e0f1a2b3c4d"], ["1f0e1c5e-2d3a-1f5b-8c7d-9e0f1a2b3c4d"]),
    "mac": (["01:23:45:67:89:ab", "01-23-45-67-89-ab", "0123.4567.89ab"], ["01:23", "01:23-45:67:89:ab"]),
    "isbn": (["0321751043", "978-0321751041"], ["0321751044", "1"]),
    "creditcard": (["4111 1111 1111 1111"], ["4111111111111112"]),
    "ssn": (["123-45-6789"], ["123-456789-0"]),
    "hexcolor": (["#fff", "00ff00"], ["#ffff"]),
    "rgbcolor": (["rgb(255, 0,1)"], ["rgb(256,0,0)"]),
    "bsonobjectid": (["0" * 24], ["0" * 23]),
    "k8sshortname": (["a-b"], ["a.b", "A", "a" * 64]),
    "k8slongname": (["a.b-c"], ["a..b", "A"]),
    "password": ([""], []),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"isbn10", "isbn13", "uuid3", "uuid5"}))
def test_formats(name: str) -> None:
    good, bad = GOOD_AND_BAD[name]
    assert [text for text in good if not FORMATS[name](text)] == []
    assert [text for text in bad if FORMATS[name](text)] == []


@pytest.mark.parametrize(
    ("text", "ns"),
    [("0", 0), ("1ns", 1), ("1.5us", 1500), ("1µs", 1000), ("-1m", -60 * 10**9), ("1h1m1s", 3661 * 10**9),
     (".5s", 5 * 10**8)],
)  # fmt: skip
def test_durations(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "1", "s", "1d", "1 s", "1s\n", "--1s", "9999999h", "."])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadDuration):
        parse_duration(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1Ki", "1024"), ("1k", "1000"), ("500m", "0.5"), ("1e3", "1000"), ("1.5Gi", "1610612736"), ("-1", "-1000m")],
)
def test_quantities(one: str, other: str) -> None:
    assert parse_quantity(one) == parse_quantity(other)


@pytest.mark.parametrize("text", ["", "1KB", "Ki", "1 Gi", "1e99999", "--1", "1_0"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(BadQuantity):
        parse_quantity(text)


def test_values_in_messages() -> None:
    assert quote('a"\\\n\x00\u2028é') == '"a\\"\\\\\\n\\x00\\u2028é"'
    assert [shown(v) for v in (None, True, 1, 1.0, 1e21, 1.5, "a", 1e6, 2**63, 12345.5, 1e-5, 10**9)] == [
        "null", "true", "1", "1", "1e+21", "1.5", '"a"', "1e+06", "9.223372036854776e+18", "12345.5", "1e-05",
        "1000000000",
    ]  # fmt: skip
    assert compact({"b": "<&>", "a": [1]}) == '{"a":[1],"b":"\\u003c\\u0026\\u003e"}'


def test_equality_tells_a_boolean_from_a_number() -> None:
    assert same({"a": [1, 1.0]}, {"a": [1.0, 1]})
    assert not same(1, True)
    assert not same([0], [False])
    assert not same({"a": None}, {})
