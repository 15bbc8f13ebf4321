"""JSON values as the rules compare them and as messages write them. Pure.

Messages follow the API server's, which is written in Go: its quoting and its number format are part of the wording.
"""

import math
import re
from decimal import Decimal
from typing import Any

import msgspec

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {"\\": "\\\\", '"': '\\"'}
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f-\xa0\xad\u2028\u2029\ue000-\uf8ff\ufeff]')
_ORDERED = msgspec.json.Encoder(order="sorted")
INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
LEAST_POWER, LARGE_POWER = -4, 6
"""Powers of ten between which a number with a fraction is written without an exponent."""


def same(a: object, b: object) -> bool:
    """Whether two JSON values are equal: a boolean is no number, and 1 equals 1.0."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def type_of(value: object) -> str:
    """The JSON type; a whole number that fits 64 bits is `integer`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() if INT_MIN <= value <= INT_MAX:
            return "integer"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def quote(text: str) -> str:
    """*text* in double quotes, with everything that does not print escaped."""
    return f'"{_SPECIAL.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"


def number(value: float) -> str:
    """A number: one with a fraction, and any beyond 64 bits, gets an exponent from a million on and below 1/10000."""
    if isinstance(value, int) and INT_MIN <= value <= INT_MAX:
        return str(int(value))
    value = float(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    plain = Decimal(repr(value)).normalize()
    sign, digits, exponent = plain.as_tuple()
    assert isinstance(exponent, int)
    power = len(digits) + exponent - 1
    if value == 0 or LEAST_POWER <= power < LARGE_POWER:
        return f"{plain:f}"
    text = "".join(map(str, digits))
    mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def compact(value: object) -> str:
    """JSON with sorted keys and without spaces; `<`, `>` and `&` are escaped."""
    text = _ORDERED.encode(value).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def go_value(value: Any) -> str:
    """A value as Go's `%v` prints it."""
    match value:
        case None:
            return "<nil>"
        case str():
            return value
        case list():
            return f"[{' '.join(map(go_value, value))}]"
        case dict():
            return f"map[{' '.join(f'{key}:{go_value(value[key])}' for key in sorted(value))}]"
    return shown(value)


def go_type(value: Any) -> str:
    """The type that Go has decoded JSON in."""
    found = {"null": "<nil>", "boolean": "bool", "integer": "int64", "number": "float64", "string": "string"}
    return (found | {"array": "[]interface {}", "object": "map[string]interface {}"})[type_of(value)]


def shown(value: Any) -> str:
    """A value within a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number(value)
        case str():
            return quote(value)
        case _:
            return compact(value)
