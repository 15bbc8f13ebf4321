"""Kubernetes' functions on strings and lists: CEL's string, list and set extensions, and `find`. Pure."""

import re
from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from kruntimes.local.apiserver.cel.core import CORE
from kruntimes.local.apiserver.cel.errors import EvaluationError, NoOverload
from kruntimes.local.apiserver.cel.formatting import formatted
from kruntimes.local.apiserver.cel.functions import takes
from kruntimes.local.apiserver.cel.times import Duration
from kruntimes.local.apiserver.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Type,
    list_of,
)
from kruntimes.local.apiserver.cel.values import LISTS, UInt, equal, int_of, type_name, uint_of
from kruntimes.local.apiserver.regex import BadPattern, compiled

TEXTS = list_of(STRING)
MAX_RANGE = 1_000_000
"""Items that `lists.range` makes at most."""
_SUMMABLE = (INT, UINT, DOUBLE, DURATION)
_COMPARABLE = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)


def _upper(text: str) -> str:
    return re.sub("[a-z]+", lambda m: m[0].upper(), text)


def _lower(text: str) -> str:
    return re.sub("[A-Z]+", lambda m: m[0].lower(), text)


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0 or start > len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, end: int | None = None) -> int:
    if end is None:
        return text.rfind(part)
    if end < 0 or end > len(text):
        raise EvaluationError(f"index out of range: {end}")
    return text.rfind(part, 0, end + len(part))


def _char_at(text: str, i: int) -> str:
    if i < 0 or i > len(text):
        raise EvaluationError(f"index out of range: {i}")
    return text[i : i + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise EvaluationError(f"index out of range: {end}")
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        parts = list(text)
        return parts if limit < 0 or len(parts) <= limit else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, limit if limit >= 0 else -1)


def _join(parts: Any, separator: str = "") -> str:
    held = list(parts)
    if any(not isinstance(part, str) for part in held):
        raise NoOverload
    return separator.join(held)


def _quote(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
               "\t": "\\t", "\v": "\\v"}  # fmt: skip
    return '"' + "".join(escapes.get(c, c) for c in text) + '"'


def _strings() -> None:
    member = CORE.member
    member("charAt", STRING, INT, to=STRING)(_char_at)
    member("indexOf", STRING, STRING, to=INT)(_index_of)
    member("indexOf", STRING, STRING, INT, to=INT)(_index_of)
    member("lastIndexOf", STRING, STRING, to=INT)(_last_index_of)
    member("lastIndexOf", STRING, STRING, INT, to=INT)(_last_index_of)
    member("lowerAscii", STRING, to=STRING)(_lower)
    member("upperAscii", STRING, to=STRING)(_upper)
    member("replace", STRING, STRING, STRING, to=STRING)(_replace)
    member("replace", STRING, STRING, STRING, INT, to=STRING)(_replace)
    member("split", STRING, STRING, to=TEXTS)(_split)
    member("split", STRING, STRING, INT, to=TEXTS)(_split)
    member("substring", STRING, INT, to=STRING)(_substring)
    member("substring", STRING, INT, INT, to=STRING)(_substring)
    member("trim", STRING, to=STRING)(str.strip)
    member("join", TEXTS, to=STRING)(_join)
    member("join", TEXTS, STRING, to=STRING)(_join)
    member("format", STRING, list_of(DYN), to=STRING)(formatted)
    CORE.function("strings.quote", STRING, to=STRING)(_quote)
    member("find", STRING, STRING, to=STRING)(_find)
    member("findAll", STRING, STRING, to=TEXTS)(_find_all)
    member("findAll", STRING, STRING, INT, to=TEXTS)(_find_all)


def _find(text: str, pattern: str) -> str:
    return next(iter(_find_all(text, pattern, 1)), "")


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    try:
        matched: Any = compiled(pattern)
    except BadPattern as bad:
        raise EvaluationError(str(bad)) from bad
    found: list[str] = []
    for match in matched.finditer(text):
        if len(found) == limit:
            break
        found.append(match.group())
    return found


# ---------------------------------------------------------------- lists


def compared(a: Any, b: Any) -> int:
    """-1, 0 or 1. Raises NoOverload for what has no order."""
    if type_name(a) != type_name(b) or not any(takes(type_, a) for type_ in _COMPARABLE):
        raise NoOverload
    return int(a > b) - int(a < b)


def in_order(items: list[Any], keys: list[Any]) -> list[Any]:
    """*items* in the order of their *keys*."""

    def order(a: tuple[Any, Any], b: tuple[Any, Any]) -> int:
        return compared(a[1], b[1])

    return [item for item, _ in sorted(zip(items, keys, strict=True), key=cmp_to_key(order))]


def _sorted(held: Any) -> list[Any]:
    return in_order(list(held), list(held))


def _is_sorted(held: Any) -> bool:
    items = list(held)
    return all(compared(a, b) <= 0 for a, b in pairwise(items))


def _extreme(name: str, wanted: int) -> Callable[[Any], Any]:
    def find(held: Any) -> Any:
        items = list(held)
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        best = items[0]
        for item in items[1:]:
            best = item if compared(item, best) == wanted else best
        return best

    return find


def _sum(zero: Any) -> Callable[[Any], Any]:
    def total(held: Any) -> Any:
        first = next(iter(held), zero)
        if isinstance(first, Duration):
            return Duration(int_of(sum(item.ns for item in held)))
        if not isinstance(first, int | float) or isinstance(first, bool):
            raise NoOverload
        found = sum(held)
        return found if isinstance(first, float) else uint_of(found) if isinstance(first, UInt) else int_of(found)

    return total


def _index(held: Any, value: Any) -> int:
    return next((i for i, item in enumerate(held) if equal(item, value)), -1)


def _last_index(held: Any, value: Any) -> int:
    return max((i for i, item in enumerate(held) if equal(item, value)), default=-1)


def _distinct(held: Any) -> list[Any]:
    found: list[Any] = []
    for item in held:
        if not any(equal(item, other) for other in found):
            found.append(item)
    return found


def _flatten(held: Any, depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    found: list[Any] = []
    for item in held:
        if isinstance(item, LISTS) and depth > 0:
            found += _flatten(item, depth - 1)
        else:
            found.append(item)
    return found


def _slice(held: Any, start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(held):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(held)}")
    return list(held)[start:end]


def _range(count: int) -> list[int]:
    if count > MAX_RANGE:
        raise EvaluationError("lists.range: too many items")
    return list(range(count))


def _lists() -> None:
    zeros: dict[Type, Any] = {INT: 0, UINT: UInt(0), DOUBLE: 0.0, DURATION: Duration(0)}
    for type_ in _SUMMABLE:
        CORE.member("sum", list_of(type_), to=type_)(_sum(zeros[type_]))
    for type_ in _COMPARABLE:
        CORE.member("min", list_of(type_), to=type_)(_extreme("min", -1))
        CORE.member("max", list_of(type_), to=type_)(_extreme("max", 1))
        CORE.member("isSorted", list_of(type_), to=BOOL)(_is_sorted)
        CORE.member("sort", list_of(type_), to=list_of(type_))(_sorted)
    CORE.member("indexOf", list_of(A), A, to=INT)(_index)
    CORE.member("lastIndexOf", list_of(A), A, to=INT)(_last_index)
    CORE.member("distinct", list_of(A), to=list_of(A))(_distinct)
    CORE.member("flatten", list_of(A), to=list_of(DYN))(_flatten)
    CORE.member("flatten", list_of(A), INT, to=list_of(DYN))(_flatten)
    CORE.member("reverse", list_of(A), to=list_of(A))(lambda held: list(held)[::-1])
    CORE.member("slice", list_of(A), INT, INT, to=list_of(A))(_slice)
    CORE.function("lists.range", INT, to=list_of(INT))(_range)


def _within(a: Any, b: Any) -> bool:
    return all(any(equal(item, other) for other in a) for item in b)


def _sets() -> None:
    two = (list_of(A), list_of(A))
    CORE.function("sets.contains", *two, to=BOOL)(_within)
    CORE.function("sets.equivalent", *two, to=BOOL)(lambda a, b: _within(a, b) and _within(b, a))
    CORE.function("sets.intersects", *two, to=BOOL)(lambda a, b: any(equal(x, y) for x in a for y in b))


_strings()
_lists()
_sets()
