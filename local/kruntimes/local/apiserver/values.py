"""JSON values as the rules compare them and as messages write them. Pure.

Messages follow the API server's, which is written in Go: its quoting and its number format are part of the wording.
"""

import re
from typing import Any

import msgspec

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {"\\": "\\\\", '"': '\\"'}
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f-\xa0\xad\u2028\u2029\ue000-\uf8ff\ufeff]')
_ORDERED = msgspec.json.Encoder(order="sorted")
LARGE_EXPONENT = 21
"""From this power of ten on, a number is written with an exponent."""


def same(a: object, b: object) -> bool:
    """Whether two JSON values are equal: a boolean is no number, and 1 equals 1.0."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def type_of(value: object) -> str:
    """The JSON type; a whole number is `integer`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
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
    """A number: whole ones without a point, very large and small ones with an exponent."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 10.0**LARGE_EXPONENT:
        return str(int(value))
    return re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", repr(value))


def compact(value: object) -> str:
    """JSON with sorted keys and without spaces; `<`, `>` and `&` are escaped."""
    text = _ORDERED.encode(value).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


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
