"""The standard functions and operators of CEL. Pure."""

import math
from collections.abc import Callable
from typing import Any

from kruntimes.local.apiserver.cel.errors import EvaluationError
from kruntimes.local.apiserver.cel.functions import Library, conversion_error
from kruntimes.local.apiserver.cel.times import (
    SECOND,
    Duration,
    Timestamp,
    checked,
    parse_timestamp,
    timestamp_text,
)
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
    B,
    list_of,
    map_of,
    type_of,
)
from kruntimes.local.apiserver.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    TypeValue,
    UInt,
    equal,
    int_of,
    joined_lists,
    type_name,
    uint_of,
)
from kruntimes.local.apiserver.durations import LIMIT, BadDuration, duration_text, parse_duration
from kruntimes.local.apiserver.regex import BadPattern, compiled
from kruntimes.local.apiserver.values import number

CORE = Library()
_NUMBERS = (INT, UINT, DOUBLE)
_ORDERED = (BOOL, STRING, BYTES, TIMESTAMP, DURATION)


# ---------------------------------------------------------------- arithmetic


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("division by zero")
    quotient = abs(a) // abs(b)
    return int_of(quotient if (a < 0) == (b < 0) else -quotient)


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("modulus by zero")
    return int(math.copysign(abs(a) % abs(b), a)) if abs(a) < 1 << 52 else a - b * _divide(a, b)


def _float_divide(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _float(operation: Callable[[float, float], float]) -> Callable[[float, float], float]:
    def safe(a: float, b: float) -> float:
        try:
            return operation(a, b)
        except OverflowError:
            return math.inf

    return safe


def _arithmetic() -> None:
    whole: dict[str, Callable[[int, int], int]] = {
        "_+_": lambda a, b: a + b, "_-_": lambda a, b: a - b, "_*_": lambda a, b: a * b, "_/_": _divide,
        "_%_": _remainder,
    }  # fmt: skip
    for name, operation in whole.items():
        CORE.function(name, INT, INT, to=INT)(lambda a, b, operation=operation: int_of(operation(a, b)))
        CORE.function(name, UINT, UINT, to=UINT)(lambda a, b, operation=operation: uint_of(operation(int(a), int(b))))
    CORE.function("_+_", DOUBLE, DOUBLE, to=DOUBLE)(_float(lambda a, b: a + b))
    CORE.function("_-_", DOUBLE, DOUBLE, to=DOUBLE)(_float(lambda a, b: a - b))
    CORE.function("_*_", DOUBLE, DOUBLE, to=DOUBLE)(_float(lambda a, b: a * b))
    CORE.function("_/_", DOUBLE, DOUBLE, to=DOUBLE)(_float_divide)
    CORE.function("-_", INT, to=INT)(lambda a: int_of(-a))
    CORE.function("-_", DOUBLE, to=DOUBLE)(lambda a: -a)
    CORE.function("_+_", STRING, STRING, to=STRING)(lambda a, b: a + b)
    CORE.function("_+_", BYTES, BYTES, to=BYTES)(lambda a, b: a + b)
    CORE.function("_+_", list_of(A), list_of(A), to=list_of(A))(joined_lists)
    CORE.function("_+_", TIMESTAMP, DURATION, to=TIMESTAMP)(lambda a, b: _moment(a.ns + b.ns))
    CORE.function("_+_", DURATION, TIMESTAMP, to=TIMESTAMP)(lambda a, b: _moment(a.ns + b.ns))
    CORE.function("_+_", DURATION, DURATION, to=DURATION)(lambda a, b: _length(a.ns + b.ns))
    CORE.function("_-_", TIMESTAMP, DURATION, to=TIMESTAMP)(lambda a, b: _moment(a.ns - b.ns))
    CORE.function("_-_", TIMESTAMP, TIMESTAMP, to=DURATION)(lambda a, b: _length(a.ns - b.ns))
    CORE.function("_-_", DURATION, DURATION, to=DURATION)(lambda a, b: _length(a.ns - b.ns))
    CORE.function("!_", BOOL, to=BOOL)(lambda a: not a)


def _moment(ns: int) -> Timestamp:
    try:
        return checked(ns)
    except ValueError as bad:
        raise EvaluationError("timestamp overflow") from bad


def _length(ns: int) -> Duration:
    if not -LIMIT <= ns < LIMIT:
        raise EvaluationError("duration overflow")
    return Duration(ns)


def _comparisons() -> None:
    operations: dict[str, Callable[[Any, Any], bool]] = {
        "_<_": lambda a, b: a < b, "_<=_": lambda a, b: a <= b, "_>_": lambda a, b: a > b, "_>=_": lambda a, b: a >= b,
    }  # fmt: skip
    for name, operation in operations.items():
        for type_ in _ORDERED:
            CORE.function(name, type_, type_, to=BOOL)(operation)
        for a in _NUMBERS:
            for b in _NUMBERS:
                CORE.function(name, a, b, to=BOOL)(operation)
    CORE.function("_==_", A, A, to=BOOL)(equal)
    CORE.function("_!=_", A, A, to=BOOL)(lambda a, b: not equal(a, b))
    CORE.function("@in", A, list_of(A), to=BOOL)(lambda a, held: any(equal(a, item) for item in held))
    CORE.function("@in", A, map_of(A, B), to=BOOL, walks=False)(has_key)
    CORE.function("_[_]", list_of(A), INT, to=A, walks=False)(_item)
    CORE.function("_[_]", map_of(A, B), A, to=B, walks=False)(_entry)


def has_key(key: Any, held: Any) -> bool:
    """Whether a map has a key; 1 and 1.0 are one key, and true is none of them."""
    try:
        if key not in held:
            return False
    except TypeError:
        return False
    return not isinstance(key, bool | int | float) or any(equal(key, k) for k in held)


def _item(held: Any, i: int) -> Any:
    if isinstance(i, bool) or not isinstance(i, int):
        raise EvaluationError(f"no such overload: list[{type_name(i)}]")
    if not 0 <= i < len(held):
        raise EvaluationError(f"index out of bounds: {i}")
    return held[i]


def _entry(held: Any, key: Any) -> Any:
    if not has_key(key, held):
        raise EvaluationError(f"no such key: {key}")
    return held[key]


# ---------------------------------------------------------------- texts and sizes


def _texts() -> None:
    CORE.both("size", STRING, to=INT)(len)
    CORE.both("size", BYTES, to=INT, walks=False)(len)
    CORE.both("size", list_of(A), to=INT, walks=False)(len)
    CORE.both("size", map_of(A, B), to=INT, walks=False)(len)
    CORE.member("contains", STRING, STRING, to=BOOL)(lambda text, part: part in text)
    CORE.member("startsWith", STRING, STRING, to=BOOL)(str.startswith)
    CORE.member("endsWith", STRING, STRING, to=BOOL)(str.endswith)
    CORE.both("matches", STRING, STRING, to=BOOL)(matches)


def matches(text: str, pattern: str) -> bool:
    """Whether *pattern* matches anywhere in *text*."""
    try:
        return compiled(pattern).search(text) is not None
    except BadPattern as bad:
        raise EvaluationError(str(bad)) from bad


# ---------------------------------------------------------------- conversions


def _conversions() -> None:
    for type_ in (INT, UINT, DOUBLE, STRING, BYTES, BOOL, DURATION, TIMESTAMP):
        name = {DURATION: "duration", TIMESTAMP: "timestamp"}.get(type_, type_.name)
        CORE.function(name, type_, to=type_, walks=False)(lambda value: value)
    CORE.function("dyn", A, to=DYN, walks=False)(lambda value: value)
    CORE.function("type", A, to=type_of(A), walks=False)(lambda value: TypeValue(type_name(value)))
    for type_ in (INT, UINT, DOUBLE, BOOL, BYTES, DURATION, TIMESTAMP):
        CORE.function("string", type_, to=STRING)(_string)
    CORE.function("bytes", STRING, to=BYTES)(str.encode)
    CORE.function("bool", STRING, to=BOOL)(_bool)
    for type_ in (UINT, DOUBLE, STRING, TIMESTAMP):
        CORE.function("int", type_, to=INT)(_int)
    for type_ in (INT, DOUBLE, STRING):
        CORE.function("uint", type_, to=UINT)(_uint)
    for type_ in (INT, UINT, STRING):
        CORE.function("double", type_, to=DOUBLE)(_double)
    CORE.function("duration", STRING, to=DURATION)(_duration)
    CORE.function("timestamp", STRING, to=TIMESTAMP)(_timestamp)
    CORE.function("timestamp", INT, to=TIMESTAMP)(lambda seconds: _moment(seconds * SECOND))


def _string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number(value) if isinstance(value, float) else str(int(value))
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as bad:
                raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from bad
        case Duration():
            return duration_text(value.ns)
        case _:
            return timestamp_text(value)


def _bool(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise conversion_error(text, "bool")


def _digits(text: str, wanted: str, *, signed: bool) -> int:
    plain = text[1:] if signed and text[:1] in ("+", "-") else text
    if not (plain.isascii() and plain.isdigit()) or len(plain) > 20:
        raise conversion_error(text, wanted)
    return int(text)


def _int(value: Any) -> int:
    match value:
        case str():
            return int_of(_digits(value, "int", signed=True))
        case float():
            if not INT_MIN < value < INT_MAX:
                raise EvaluationError("integer overflow")
            return int(value)
        case Timestamp():
            return value.ns // SECOND
        case _:
            return int_of(int(value))


def _uint(value: Any) -> UInt:
    if isinstance(value, str):
        return uint_of(_digits(value, "uint", signed=False))
    if isinstance(value, float) and not 0 <= value < UINT_MAX:
        raise EvaluationError("unsigned integer overflow")
    return uint_of(int(value))


def _double(value: Any) -> float:
    if isinstance(value, str) and "_" in value:
        raise conversion_error(value, "double")
    try:
        return float(value)
    except ValueError as bad:
        raise conversion_error(value, "double") from bad


def _duration(text: str) -> Duration:
    try:
        return Duration(parse_duration(text))
    except BadDuration as bad:
        raise conversion_error(text, "google.protobuf.Duration") from bad


def _timestamp(text: str) -> Timestamp:
    try:
        return parse_timestamp(text)
    except ValueError as bad:
        raise conversion_error(text, "google.protobuf.Timestamp") from bad


# ---------------------------------------------------------------- calendar


def _calendar() -> None:
    parts: dict[str, Callable[[Any], int]] = {
        "getFullYear": lambda t: t.year, "getMonth": lambda t: t.month - 1, "getDate": lambda t: t.day,
        "getDayOfMonth": lambda t: t.day - 1, "getDayOfWeek": lambda t: t.isoweekday() % 7,
        "getDayOfYear": lambda t: t.timetuple().tm_yday - 1, "getHours": lambda t: t.hour,
        "getMinutes": lambda t: t.minute, "getSeconds": lambda t: t.second,
        "getMilliseconds": lambda t: t.microsecond // 1000,
    }  # fmt: skip
    for name, part in parts.items():

        def read(moment: Timestamp, zone: str = "", part: Callable[[Any], int] = part) -> int:
            try:
                return part(moment.at(zone))
            except (ValueError, OverflowError) as bad:
                raise EvaluationError(str(bad)) from bad

        CORE.member(name, TIMESTAMP, to=INT)(read)
        CORE.member(name, TIMESTAMP, STRING, to=INT)(read)
    units = {"getHours": 3600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND, "getMilliseconds": 1_000_000}
    for name, unit in units.items():
        CORE.member(name, DURATION, to=INT)(lambda length, unit=unit: int(length.ns / unit))


_arithmetic()
_comparisons()
_texts()
_conversions()
_calendar()
