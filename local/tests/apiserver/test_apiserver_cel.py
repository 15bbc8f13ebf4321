"""Expressions in CEL: what they yield, where they do not compile, and what they may cost."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.local.apiserver.cel.compiler import compile_expression
from kruntimes.local.apiserver.cel.errors import CompileError, EvaluationError, NoOverload, OverBudget
from kruntimes.local.apiserver.cel.types import DYN

SELF: dict[str, Any] = {
    "n": 3, "f": 2.5, "s": "abc", "list": [1, 2, 3], "map": {"a": 1, "b": 2}, "objects": [{"x": 1}, {"x": 2}],
    "nothing": None, "yes": True,
}  # fmt: skip

YIELDS: list[tuple[str, Any]] = [
    # literals and operators
    ("1 + 2 * 3", 7),
    ("-7 / 2", -3),
    ("-7 % 3", -1),
    ("7u % 4u", 3),
    ("1.5 + 1.5", 3.0),
    ("0x1F", 31),
    ("-9223372036854775808", -(2**63)),
    ("'a' + \"b\"", "ab"),
    ("r'\\d' + '''x'''", "\\dx"),
    ("b'\\xff' == b'\\377'", True),
    ("'\\u00e9\\t'", "é\t"),
    ("true ? 1 : 2", 1),
    ("1 < 2.5 && 2u >= 2", True),
    ("[1, 2] + [3]", [1, 2, 3]),
    ("{'a': 1, 'b': 2}.size()", 2),
    ("'a' in {'a': 1} && 2 in [1, 2] && !(3 in [1, 2])", True),
    ("dyn(1) == dyn(1.0) && dyn(1) != dyn('1') && dyn(true) != dyn(1)", True),
    # errors on one side do not count where the other decides
    ("true || 1 / 0 > 0", True),
    ("1 / 0 > 0 || true", True),
    ("false && 1 / 0 > 0", False),
    ("[0, 1].exists(x, 2 / x == 2)", True),
    ("[0, 1].all(x, x != 0 && 1 / x == 1)", False),
    # members
    ("has(self.s) && !has(self.t)", True),
    ("self.map.a + self.map['b']", 3),
    ("self.objects[1].x", 2),
    ("self.nothing == null && self.n != null", True),
    ("type(self.n) == int && type(self.s) == string && type(null) == null_type", True),
    # macros
    ("self.list.all(x, x > 0) && self.list.exists(x, x == 3) && self.list.exists_one(x, x == 2)", True),
    ("self.list.map(x, x * 2)", [2, 4, 6]),
    ("self.list.map(x, x > 1, x * 2)", [4, 6]),
    ("self.list.filter(x, x != 2)", [1, 3]),
    ("self.map.all(k, self.map[k] > 0)", True),
    ("self.list.all(i, v, v == i + 1)", True),
    ("self.map.transformList(k, v, v)", [1, 2]),
    ("self.map.transformMap(k, v, v > 1, v * 10)", {"b": 20}),
    ("self.list.transformMapEntry(i, v, {string(v): i})", {"1": 0, "2": 1, "3": 2}),
    ("[[1, 2], [3]].all(xs, xs.all(x, x < 4))", True),
    # strings
    ("size('é') == 1 && 'é'.size() == 1 && size(bytes('é')) == 2", True),
    ("'a,b'.split(',') == ['a', 'b'] && 'abc'.split('') == ['a', 'b', 'c']", True),
    ("['a', 'b'].join('-')", "a-b"),
    ("'Abc'.lowerAscii() + 'Abc'.upperAscii() + ' x '.trim()", "abcABCx"),
    ("'hello'.substring(1, 3) + 'hello'.charAt(4) + string('hello'.indexOf('l'))", "elo2"),
    ("'hello'.replace('l', 'L', 1)", "heLlo"),
    ("'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1b22'.find('[0-9]+') == '1'", True),
    ("'abc'.matches('^[a-c]+$') && !'abc\\n'.matches('^[a-c]+$')", True),
    ("'%d %s %.2f %x %%'.format([1, ['a', 1.5], 2.5, 255])", '1 ["a", 1.500000] 2.50 ff %'),
    ("'%e %f %s'.format([1.5, 1234.5, {'b': 1, 'a': [null, b'x', duration('1m')]}])",
     '1.500000×10⁰⁰ 1,234.500000 {"a":[null, b"x", duration("60s")], "b":1}'),
    ("string(1e6) + ' ' + string(123456.5) + ' ' + string(1.5e-7) + ' ' + string(0.0)", "1e+06 123456.5 1.5e-07 0"),
    # lists
    ("[3, 1, 2].isSorted() || [1, 2].isSorted()", True),
    ("[3, 1, 2].sum() + [3, 1].min() + [3, 1].max() + [5, 6].indexOf(6)", 11),
    ("[3, 1, 2].sort() == [1, 2, 3] && ['bb', 'a'].sortBy(x, size(x)) == ['a', 'bb']", True),
    ("[1, 1, 2].distinct() == [1, 2] && [1, 2, 3].slice(1, 3) == [2, 3] && [1, 2].reverse() == [2, 1]", True),
    ("sets.contains([1, 2], [2]) && sets.equivalent([1, 1], [1]) && sets.intersects([1], [1, 2])", True),
    # conversions
    ("int('5') + int(1.9) + int(3u)", 9),
    ("string(1.0) + string(1.5) + string(true) + string(b'x')", "11.5truex"),
    ("double('1.5') == 1.5 && bool('true') && uint(3) == 3u", True),
    # times
    ("duration('1h30m') > duration('89m') && duration('1.5s') == duration('1500ms')", True),
    ("timestamp('2026-01-01T00:00:00Z') + duration('24h') == timestamp('2026-01-02T01:00:00+01:00')", True),
    ("timestamp('2026-03-01T12:34:56Z').getMonth() == 2 && duration('90m').getHours() == 1", True),
    ("string(duration('1h1.5s')) + ' ' + string(timestamp('2026-01-01T00:00:00.5Z'))",
     "3601.5s 2026-01-01T00:00:00.5Z"),
    # optionals
    ("self.?t.orValue('none') + self.?s.orValue('none')", "noneabc"),
    ("self.?a.?b.hasValue() || self[?'n'].hasValue()", True),
    ("[?self.?t, 'x'].size() == 1 && {?'k': self.?t}.size() == 0", True),
    ("optional.of(2).optMap(x, x * 2).value() + optional.none().orValue(1)", 5),
    # Kubernetes' own
    ("quantity('1Gi').isGreaterThan(quantity('1G'))", True),
    ("quantity('500m').add(quantity('0.5')) == quantity('1') && quantity('2k').asInteger() == 2000", True),
    ("isQuantity('1.5Ki') && !isQuantity('1KB')", True),
    ("ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3') && !isIP('10.0.0')", True),
    ("url('https://h:80/p?a=1').getHost() == 'h:80' && url('https://h/p?a=1').getQuery()['a'] == ['1']", True),
    ("!format.dns1123Label().validate('ok').hasValue() && format.dns1123Label().validate('No').hasValue()", True),
    ("semver('1.2.3').isGreaterThan(semver('1.2.3-rc.1')) && isSemver('v1.2', true)", True),
]  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), YIELDS)
def test_yields(source: str, expected: object) -> None:
    value, _ = compile_expression(source, {"self": DYN}).evaluate({"self": SELF})
    assert value == expected
    assert type(value) is type(expected) or isinstance(value, int)


REFUSED: list[tuple[str, int, str]] = [
    # source, the column of the fault, a part of the message
    ("1 +", 4, "Syntax error"),
    ("(1", 3, "missing ')'"),
    ("self.all(x, x > 0", 18, "missing ')'"),
    ("1 2", 3, "extraneous input '2'"),
    ("'abc", 1, "token recognition error"),
    ("a # b", 3, "token recognition error at: '#'"),
    ("nope", 1, "undeclared reference to 'nope'"),
    ("1 + nope", 5, "undeclared reference to 'nope'"),
    ("nope(1)", 5, "undeclared reference to 'nope'"),
    ("for", 1, "reserved identifier: for"),
    ("1 == 'a'", 3, "found no matching overload for '_==_' applied to '(int, string)'"),
    ("'a' + 1", 5, "found no matching overload for '_+_' applied to '(string, int)'"),
    ("'a'.matches(1)", 12, "found no matching overload for 'matches' applied to 'string.(int)'"),
    ("1.size()", 7, "found no matching overload for 'size' applied to 'int.()'"),
    ("1 ? 2 : 3", 3, "found no matching overload for '_?_:_'"),
    ("1 && true", 1, "expected type 'bool' but found 'int'"),
    ("[1, 'a']", 5, "expected type 'int' but found 'string'"),
    ("1.all(x, true)", 1, "cannot be range of a comprehension"),
    ("'a'.all(x, true)", 1, "cannot be range of a comprehension"),
    ("[1].all(1, true)", 9, "argument must be a simple name"),
    ("[1].filter(x, x)", 15, "expected type 'bool' but found 'int'"),
    ("has(self)", 5, "invalid argument to has() macro"),
    ("'a'.matches('(')", 13, "invalid matches argument"),
    ("duration('5d')", 10, "invalid duration argument"),
    ("duration('9999999h')", 10, "invalid duration argument"),
    ("9223372036854775808", 1, "invalid int literal"),
    ("'%d'.format([1.5])", 14, "decimal clause can only be used on integers, was given double"),
    ("'%q'.format([1])", 12, 'unrecognized formatting clause "q"'),
    ("'%s'.format([])", 12, "index 0 out of range"),
    ("'%'.format([])", 11, "unexpected end of string"),
    ("1e400 > 1.0", 1, "invalid double literal"),
    ("[1].existsOne(x, x == 1)", 14, "undeclared reference"),
    ("(" * 200 + "1" + ")" * 200, 51, "recursion limit"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "column", "message"), REFUSED)
def test_does_not_compile(source: str, column: int, message: str) -> None:
    with pytest.raises(CompileError) as refused:
        compile_expression(source, {"self": DYN})
    said = str(refused.value)
    assert message in said
    assert said.startswith(f"ERROR: <input>:1:{column}: ")
    assert said.endswith(f"\n | {'.' * (column - 1)}^")


def test_the_place_is_told_in_a_text_of_several_lines() -> None:
    with pytest.raises(CompileError) as refused:
        compile_expression("self.n > 0 &&\n  self.n < nope", {"self": DYN})
    assert "ERROR: <input>:2:12: undeclared reference" in str(refused.value)
    assert "\n |   self.n < nope\n | ...........^" in str(refused.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("self.t", "no such key: t"),
        ("self.list[3]", "index out of bounds: 3"),
        ("1 / (self.n - 3)", "division by zero"),
        ("9223372036854775807 + self.n", "integer overflow"),
        ("uint(self.n - 4)", "unsigned integer overflow"),
        ("int('x' + self.s)", "type conversion error"),
        ("duration(self.s)", "type conversion error"),
        ("self.s.matches(self.s + '(')", "missing"),
        ("optional.none().value()", "optional.none() dereference"),
        ("self.s + self.n == ''", "no such overload"),
        ("self.n.size() == 1", "no such overload"),
        ("self.n.x == 1", "no such overload"),
        ("self.list.map(x, 1 / (x - 1))", "division by zero"),
        ("{'a': 1, 'a': 2}", "Failed with repeated key: a"),
    ],
)
def test_has_no_value(source: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message.replace("(", r"\(").replace(")", r"\)")):
        compile_expression(source, {"self": DYN}).evaluate({"self": SELF})


def test_an_overload_that_is_missing_is_told_apart() -> None:
    with pytest.raises(NoOverload):
        compile_expression("self.s < self.n", {"self": DYN}).evaluate({"self": SELF})


def test_what_costs_too_much_is_given_up() -> None:
    source = "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))"
    with pytest.raises(OverBudget):
        compile_expression(source, {"self": DYN}).evaluate({"self": list(range(100))}, 20_000)
    with pytest.raises(OverBudget):
        compile_expression("self.exists(x, 'a' in self)", {"self": DYN}).evaluate({"self": ["x" * 10] * 5000}, 20_000)


def test_long_chains_are_no_deep_trees() -> None:
    assert compile_expression(" && ".join(["true"] * 5000), {}).evaluate({})[0] is True


@given(st.text(alphabet="self.abx()[]{}?:!&|<>=+-*/%'\"\\, \n10un", max_size=40))
def test_any_text_compiles_or_is_refused(source: str) -> None:
    with contextlib.suppress(CompileError, EvaluationError, OverBudget):
        compile_expression(source, {"self": DYN}).evaluate({"self": SELF}, 10_000)
