"""Rules of a schema: which types they see, what they compare with, and how a fault is told."""

from typing import Any

import pytest

from kruntimes.local.apiserver.cel.errors import CompileError
from kruntimes.local.apiserver.cel.rules import compile_rules, evaluate
from kruntimes.local.apiserver.schema.structural import ABSENT, read
from kruntimes.local.apiserver.status import Cause

Json = dict[str, Any]

PARTS: Json = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}},
}
PROPERTIES: Json = {
    "size": {"type": "integer"},
    "ratio": {"type": "number"},
    "blob": {"type": "string", "format": "byte"},
    "when": {"type": "string", "format": "date-time"},
    "wait": {"type": "string", "format": "duration"},
    "port": {"x-kubernetes-int-or-string": True},
    "parts": PARTS,
    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "a-b": {"type": "string"},
    "namespace": {"type": "string"},
}


def check(rule: str, spec: Json, old: Json | None = None, **more: object) -> list[Cause]:
    """The faults of *spec* by one rule on it."""
    raw = {"type": "object", "properties": {"spec": {"type": "object", "properties": PROPERTIES}}}
    raw["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": rule, **more}]  # type: ignore[index]
    rules = compile_rules(read(raw), root=True)
    assert rules is not None
    return evaluate(rules, {"spec": spec}, old=ABSENT if old is None else {"spec": old})


HOLDS: list[tuple[str, Json]] = [
    ("self.ratio / 2.0 == 0.5", {"ratio": 1}),
    ("size(self.blob) == 3 && self.blob == b'abc'", {"blob": "YWJj"}),
    ("self.when > timestamp('2026-01-01T00:00:00Z')", {"when": "2026-03-01T00:00:00Z"}),
    ("self.wait < duration('2h')", {"wait": "1h30m"}),
    ("type(self.port) == int ? self.port < 10 : self.port.startsWith('http')", {"port": "http"}),
    ("type(self.port) == int ? self.port < 10 : self.port.startsWith('http')", {"port": 5}),
    ("self.parts.exists(p, p.name == 'a' && p.n == 1) && self.parts[0].name == 'b'",
     {"parts": [{"name": "b"}, {"name": "a", "n": 1}]}),
    ("self.labels.all(k, self.labels[k] != '')", {"labels": {"x": "1"}}),
    ("self.a__dash__b == 'x' && self.__namespace__ == 'y' && self.namespace == 'y'", {"a-b": "x", "namespace": "y"}),
    ("'x' in self.tags", {"tags": ["x"]}),
    ("!has(self.size) && !self.?size.hasValue()", {"size": None}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spec"), HOLDS)
def test_holds(rule: str, spec: Json) -> None:
    assert check(rule, spec) == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.nope == 1", "undefined field 'nope'"),
        ("self.free.x == 1", "undefined field 'x'"),
        ("self.size == '1'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.ratio == 1", "found no matching overload for '_==_' applied to '(double, int)'"),
        ("self.parts.all(p, p.nope)", "undefined field 'nope'"),
        ("self.size", "must evaluate to a bool"),
        ("has(self.nope)", "undefined field 'nope'"),
    ],
)
def test_fields_and_types_are_the_schemas(rule: str, message: str) -> None:
    with pytest.raises(CompileError, match=message.replace("(", r"\(").replace(")", r"\)")):
        check(rule, {})


def test_only_names_are_seen_of_a_resources_metadata() -> None:
    raw = {"type": "object", "properties": {}, "x-kubernetes-validations": [{"rule": "self.metadata.name != 'bad'"}]}
    rules = compile_rules(read(raw), root=True)
    assert rules is not None
    assert evaluate(rules, {"metadata": {"name": "good", "labels": {}}}) == []
    [cause] = evaluate(rules, {"metadata": {"name": "bad"}})
    assert cause == Cause("<nil>", "FieldValueInvalid", "Invalid value: failed rule: self.metadata.name != 'bad'")
    raw["x-kubernetes-validations"] = [{"rule": "has(self.metadata.labels)"}]
    with pytest.raises(CompileError, match="undefined field 'labels'"):
        compile_rules(read(raw), root=True)


OLD: Json = {"parts": [{"name": "a", "n": 1}, {"name": "b", "n": 2}], "tags": ["x", "y"], "size": 1}


@pytest.mark.parametrize(
    ("rule", "new", "holds"),
    [
        ("self.size == oldSelf.size", {"size": 1}, True),
        ("self.size == oldSelf.size", {"size": 2}, False),
        ("self.parts == oldSelf.parts", {"parts": OLD["parts"][::-1]}, True),
        ("self.parts == oldSelf.parts", {"parts": OLD["parts"][:1]}, False),
        ("self.tags == oldSelf.tags", {"tags": ["y", "x"]}, True),
        ("self.tags == oldSelf.tags", {"tags": ["y", "z"]}, False),
        ("self.tags == ['y', 'x'] && ['x', 'y'] == self.tags", {}, True),
        ("self.tags + ['z', 'x'] == ['x', 'y', 'z']", {}, True),
        (
            "(self.parts + oldSelf.parts).size() == 3 && (self.parts + oldSelf.parts)[0].n == 1",
            {"parts": [{"name": "a", "n": 9}, {"name": "c"}]},
            True,
        ),
    ],
)
def test_lists_that_are_maps_or_sets_have_no_order(rule: str, new: Json, holds: bool) -> None:
    assert (check(rule, {**OLD, **new}, OLD) == []) is holds


def test_a_rule_about_a_change_waits_for_one() -> None:
    assert check("self.size == oldSelf.size", {"size": 2}) == []
    optional = "oldSelf.hasValue() ? self.size >= oldSelf.value().size : self.size > 0"
    assert check(optional, {"size": 1}, optionalOldSelf=True) == []
    assert check(optional, {"size": 0}, optionalOldSelf=True) != []
    assert check(optional, {"size": 1}, {"size": 2}, optionalOldSelf=True) != []


def test_what_has_not_changed_is_not_found_fault_with_again() -> None:
    assert check("self.size > 5", {"size": 1}, {"size": 1}) == []
    assert check("self.size > 5", {"size": 1}, {"size": 2}) != []


def test_items_are_compared_with_the_item_of_their_key() -> None:
    items = {**PARTS["items"], "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "shrunk"}]}
    rules = compile_rules(read({"type": "object", "properties": {"parts": {**PARTS, "items": items}}}), root=True)
    assert rules is not None
    new = {"parts": [{"name": "b", "n": 1}, {"name": "c", "n": 0}, {"name": "a", "n": 1}]}
    [cause] = evaluate(rules, new, old=OLD)
    assert (cause.field, cause.message) == ("parts[0]", "Invalid value: shrunk")


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({}, Cause("spec", "FieldValueInvalid", "Invalid value: failed rule: self.size > 5")),
        ({"message": " too small "}, Cause("spec", "FieldValueInvalid", "Invalid value: too small")),
        ({"messageExpression": "'is ' + string(self.size)"}, Cause("spec", "FieldValueInvalid", "Invalid value: is 1")),
        ({"messageExpression": "string(1 / (self.size - 1))", "message": "m"},
         Cause("spec", "FieldValueInvalid", "Invalid value: m")),
        ({"message": "m", "fieldPath": ".size"}, Cause("spec.size", "FieldValueInvalid", "Invalid value: m")),
        ({"message": "m", "reason": "FieldValueForbidden"}, Cause("spec", "FieldValueForbidden", "Forbidden: m")),
        ({"message": "m", "reason": "FieldValueRequired", "fieldPath": "['a-b']"},
         Cause("spec.a-b", "FieldValueRequired", "Required value: m")),
    ],
)  # fmt: skip
def test_how_a_fault_is_told(more: Json, cause: Cause) -> None:
    assert check("self.size > 5", {"size": 1}, **more) == [cause]


def test_a_rule_on_a_value_shows_it() -> None:
    raw = {
        "type": "object",
        "properties": {"s": {"type": "string", "x-kubernetes-validations": [{"rule": "self == ''"}]}},
    }
    rules = compile_rules(read(raw), root=True)
    assert rules is not None
    [cause] = evaluate(rules, {"s": 'a"\n'})
    assert cause.message == 'Invalid value: "a\\"\\n": failed rule: self == \'\''
    assert evaluate(rules, {"s": None}) == []


def test_a_rule_that_has_no_value_is_a_fault() -> None:
    [cause] = check("self.parts[5].n == 1", {"parts": []}, message="m")
    assert cause.message == 'Invalid value: "object": index out of bounds: 5 evaluating rule: m'


def test_rules_that_cost_too_much_are_a_fault() -> None:
    rule = "self.tags.all(a, self.tags.all(b, self.tags.all(c, a + b + c != '')))"
    raw = {"type": "object", "properties": PROPERTIES, "x-kubernetes-validations": [{"rule": rule}] * 2}
    rules = compile_rules(read(raw))
    assert rules is not None
    [cause] = evaluate(rules, {"tags": [str(i) for i in range(50)]}, budget=20_000)
    assert "running out of cost budget, no further validation rules will be run" in cause.message
