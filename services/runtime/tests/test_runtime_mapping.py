"""From bytes to an event and from a returned value to bytes: each kind, and what is refused by name."""

import dataclasses
import json
import math
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.runtime.host.answer import BYTES, JSON, TEXT, BadInput, Unencodable, decode_event, encode_answer


@dataclasses.dataclass
class Point:
    x: int
    at: datetime


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


Pair = namedtuple("Pair", "a b")
CYCLE: dict[str, object] = {}
CYCLE["me"] = [CYCLE]


def pieces(*items: object) -> object:
    return (item for item in items)


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "body", "content_type"),
    [
        pytest.param("hé", "hé".encode(), TEXT, id="str"),
        pytest.param("", b"", TEXT, id="empty-str"),
        pytest.param(b"\x00\xff", b"\x00\xff", BYTES, id="bytes"),
        pytest.param(bytearray(b"x"), b"x", BYTES, id="bytearray"),
        pytest.param(memoryview(b"x"), b"x", BYTES, id="memoryview"),
        pytest.param(None, b"null", JSON, id="none"),
        pytest.param(True, b"true", JSON, id="bool"),
        pytest.param(2**70, b"1180591620717411303424", JSON, id="large-int"),
        pytest.param(0.1, b"0.1", JSON, id="float"),
        pytest.param([1, (2, "x")], b'[1,[2,"x"]]', JSON, id="list-and-tuple"),
        pytest.param({"a": {"b": None}}, b'{"a":{"b":null}}', JSON, id="dict"),
        pytest.param(OrderedDict(z=1, a=2), b'{"z":1,"a":2}', JSON, id="order-is-kept"),
        pytest.param(Pair(1, 2), b"[1,2]", JSON, id="namedtuple"),
        pytest.param({"ü\u2028": "\x00"}, '{"ü\u2028":"\\u0000"}'.encode(), JSON, id="text-is-not-escaped-needlessly"),
        pytest.param(Point(1, datetime(2026, 1, 2, tzinfo=UTC)), b'{"x":1,"at":"2026-01-02T00:00:00+00:00"}', JSON,
                     id="dataclass-and-datetime"),
        pytest.param(date(2026, 1, 2), b'"2026-01-02"', JSON, id="date"),
        pytest.param([Colour.RED, Level.LOW], b'["red",1]', JSON, id="enum"),
        pytest.param(Decimal("1.10"), b'"1.10"', JSON, id="decimal-keeps-its-digits"),
        pytest.param(UUID(int=1), b'"00000000-0000-0000-0000-000000000001"', JSON, id="uuid"),
        pytest.param(pieces("a", "b"), b"ab", TEXT, id="generator-of-text"),
        pytest.param(pieces(b"a", b"b"), b"ab", BYTES, id="generator-of-bytes"),
        pytest.param(pieces(1, "a"), b'[1,"a"]', JSON, id="generator-of-values"),
        pytest.param(pieces(), b"[]", JSON, id="empty-generator"),
        pytest.param(deep(200), b"[" * 200 + b"1" + b"]" * 200, JSON, id="deep"),
    ],
)  # fmt: skip
def test_answers(value: object, body: bytes, content_type: str) -> None:
    assert encode_answer(value) == (body, content_type)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param({"a": [1, math.nan]}, "$.a[1] is nan", id="nan"),
        pytest.param([math.inf], "$[0] is inf", id="infinity"),
        pytest.param(Decimal("NaN"), "$ is NaN", id="decimal-nan"),
        pytest.param("x\ud800", "$ holds a lone surrogate at index 1", id="surrogate"),
        pytest.param({"k": "\udfff"}, "$.k holds a lone surrogate", id="surrogate-inside"),
        pytest.param({"\udfff": 1}, "a key of $ holds a lone surrogate", id="surrogate-in-a-key"),
        pytest.param({"k": {1, 2}}, "$.k is a set", id="set"),
        pytest.param([b"x"], "$[0] is a bytes", id="bytes-inside"),
        pytest.param({1: 2}, "$ has the key 1, which is an int", id="int-key"),
        pytest.param({None: 2}, "$ has the key None", id="none-key"),
        pytest.param(CYCLE, "$.me[0] contains itself", id="cycle"),
        pytest.param(object(), "$ is an object", id="object"),
        pytest.param(1j, "$ is a complex", id="complex"),
        pytest.param(Point, "$ is a type", id="class"),
        pytest.param(map(str, [1]), "$ is a map", id="iterator"),
        pytest.param(10**5000, "$ is an int of 16610 bits", id="endless-int"),
        pytest.param(deep(201), "is nested deeper than 200", id="too-deep"),
        pytest.param("x" * (1024 * 1024 + 1), "the answer has 1048577 bytes", id="too-large"),
        pytest.param(("x" * 100_000 for _ in iter(int, 1)), "the generator yielded more", id="endless-generator"),
    ],
)
def test_what_has_no_form_is_refused_with_its_path(value: object, says: str) -> None:
    with pytest.raises(Unencodable) as error:
        encode_answer(value)
    assert says in str(error.value)


def test_the_largest_answer_passes() -> None:
    assert len(encode_answer("x" * 1024 * 1024)[0]) == 1024 * 1024


def test_a_content_type_of_ones_own() -> None:
    assert encode_answer("<p>", "text/html; charset=utf-8") == (b"<p>", "text/html; charset=utf-8")
    for bad in ("text", "text/html\r\nx: y", 7):
        with pytest.raises(Unencodable):
            encode_answer("<p>", bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("payload", "content_type", "event"),
    [
        pytest.param(b'{"a": 1}', "application/json", {"a": 1}, id="json"),
        pytest.param(b"[1]", "application/json; charset=utf-8", [1], id="json-with-charset"),
        pytest.param(b"1", "application/vnd.x+json", 1, id="json-suffix"),
        pytest.param(b"1", "APPLICATION/JSON", 1, id="upper-case"),
        pytest.param(b"1180591620717411303424", "application/json", 2**70, id="large-int"),
        pytest.param(b"", "application/json", None, id="no-body-under-json"),
        pytest.param(b"", "", None, id="no-body-and-no-type"),
        pytest.param(b"x", "", b"x", id="no-type"),
        pytest.param(b"", "text/plain", b"", id="empty-text"),
        pytest.param(b'{"a":1}', "text/plain", b'{"a":1}', id="text-is-bytes"),
        pytest.param(b"1", "application/jsonp", b"1", id="only-json-is-json"),
    ],
)
def test_events(payload: bytes, content_type: str, event: object) -> None:
    assert decode_event(payload, content_type) == event


@pytest.mark.parametrize(
    "payload", [b"{", b"NaN", b"[Infinity]", b"1e999", b"\xff", b"\xef\xbb\xbf1", b"[" * 100_000, b"1" * 5000]
)
def test_bad_json_is_refused(payload: bytes) -> None:
    with pytest.raises(BadInput):
        decode_event(payload, "application/json")


WORDS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@given(VALUES)
def test_json_values_come_back_as_they_went(value: object) -> None:
    body, content_type = encode_answer([value])
    assert content_type == JSON
    assert json.loads(body) == [value]
    assert decode_event(body, content_type) == [value]
