"""Label and field selectors: what they match, and how they are refused."""

from typing import Any

import pytest

from kruntimes.local.apiserver.resources import Resource, Resources
from kruntimes.local.apiserver.selectors import MAX_SELECTOR, parse_fields, parse_labels, selector
from kruntimes.local.apiserver.status import StatusError

Json = dict[str, Any]


def resource(plural: str) -> Resource:
    """A built-in resource."""
    return next(r for r in Resources.built_in() if r.plural == plural)


RUNS = Resource(
    group="kruntimes.io", version="v1", plural="runs", singular="run", kind="Run", namespaced=True, custom=True,
    selectable=(".spec.size", ".spec.on", ".status.phase"),
)  # fmt: skip

LABELS: list[tuple[str, dict[str, str], bool]] = [
    ("a", {"a": ""}, True),
    ("a", {}, False),
    ("!a", {}, True),
    ("! a", {"a": "1"}, False),
    ("a=1", {"a": "1"}, True),
    (" a == 1 , b != 2 ", {"a": "1"}, True),
    ("a!=1", {"a": "1"}, False),
    ("a=", {"a": ""}, True),
    ("a=,b", {"a": "", "b": "1"}, True),
    ("a in (1,2)", {"a": "2"}, True),
    ("a in ( 1 , 2 )", {"a": "3"}, False),
    ("a in (,1)", {"a": ""}, True),
    ("a in (1,)", {"a": ""}, True),
    ("a in (1,,2)", {"a": ""}, True),
    ("a in ()", {"a": ""}, True),
    ("a notin (1)", {}, True),
    ("a notin (1)", {"a": "1"}, False),
    ("in in (in,notin)", {"in": "notin"}, True),
    ("n>5", {"n": "7"}, True),
    ("n<5", {"n": "7"}, False),
    ("n>5", {"n": "x"}, False),
    ("n>5", {}, False),
    ("example.com/a.b_c=x.y_z-1", {"example.com/a.b_c": "x.y_z-1"}, True),
    ("", {}, True),
    ("  ", {"a": "1"}, True),
]


@pytest.mark.parametrize(("text", "labels", "matches"), LABELS, ids=[f"{row[0]}-{row[1]}" for row in LABELS])
def test_labels(text: str, labels: dict[str, str], matches: bool) -> None:
    assert all(term.matches(labels) for term in parse_labels(text)) == matches


BAD_LABELS: list[tuple[str, str]] = [
    ("=", "found '=', expected: !, identifier, or 'end of string'"),
    ("a=b=c", "found '=', expected: ',' or 'end of string'"),
    ("a,", "found '', expected: identifier after ','"),
    ("a,,b", "found ',', expected: identifier after ','"),
    ("!", "unable to parse requirement: found '', expected: identifier"),
    ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ("a in", "unable to parse requirement: found '' expected: '('"),
    ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
    ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
    ("a in (b,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
    ("a=(", "unable to parse requirement: found '(', expected: identifier"),
    ("a/b/c", 'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key must consist of'),
    ("a=-", 'unable to parse requirement: values[0][a]: Invalid value: "-": a valid label must be an empty string'),
    (f"a={'x' * 64}", "must be no more than 63 characters"),
    ("a>b", "values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer"),
]


@pytest.mark.parametrize(("text", "message"), BAD_LABELS, ids=[row[0][:9] for row in BAD_LABELS])
def test_labels_that_are_none(text: str, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_labels(text)
    assert refused.value.code == 400
    assert message in refused.value.message


FIELDS: list[tuple[str, Json, bool]] = [
    ("metadata.name=a", {}, True),
    ("metadata.name!=a", {}, False),
    ("metadata.namespace==n", {}, True),
    ("spec.size=3", {"spec": {"size": 3}}, True),
    ("spec.size=03", {"spec": {"size": 3}}, False),
    ("spec.on=true", {"spec": {"on": True}}, True),
    ("spec.on=", {"spec": {"on": None}}, True),
    ("status.phase=", {}, True),
    ("status.phase=", {"status": "odd"}, True),
    ("status.phase=x\\,y\\=z\\\\", {"status": {"phase": "x,y=z\\"}}, True),
    ("spec.size=3,spec.on=true", {"spec": {"size": 3}}, False),
    (",", {}, True),
]


@pytest.mark.parametrize(("text", "rest", "matches"), FIELDS, ids=[row[0] for row in FIELDS])
def test_fields(text: str, rest: Json, matches: bool) -> None:
    found = selector("", text, RUNS)({"metadata": {"name": "a", "namespace": "n"}, **rest})
    assert found == matches


BAD_FIELDS: list[tuple[str, str, str]] = [
    ("runs", "spec.other=x", "field label not supported: spec.other"),
    ("runs", ".spec.size=3", "field label not supported: .spec.size"),
    ("pods", "spec.hostname=x", "field label not supported: spec.hostname"),
    ("nodes", "metadata.namespace=x", "field label not supported: metadata.namespace"),
    ("leases", "spec.x=y", '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ("pods", "words", "invalid selector: 'words'; can't understand 'words'"),
    ("pods", "metadata.name=a\\b", "invalid field selector: invalid escape sequence"),
    ("pods", "metadata.name=a\\", "invalid field selector: invalid escape sequence"),
    ("pods", "metadata.name=a=b", "invalid field selector: unescaped character in value"),
]


@pytest.mark.parametrize(("plural", "text", "message"), BAD_FIELDS, ids=[f"{r[0]}-{r[1]}" for r in BAD_FIELDS])
def test_fields_that_are_none(plural: str, text: str, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_fields(text, RUNS if plural == "runs" else resource(plural))
    assert refused.value.code == 400
    assert message in refused.value.message


@pytest.mark.parametrize("parse", [parse_labels, lambda text: parse_fields(text, RUNS)], ids=["labels", "fields"])
def test_a_selector_is_bounded(parse: Any) -> None:
    with pytest.raises(StatusError, match="too long"):
        parse("x" * (MAX_SELECTOR + 1))


def test_a_field_that_is_false_where_it_is_absent() -> None:
    nodes = resource("nodes")
    assert selector("", "spec.unschedulable=false", nodes)({"metadata": {"name": "a"}, "spec": {}})
    assert not selector("", "spec.unschedulable=false", nodes)({"metadata": {}, "spec": {"unschedulable": True}})
