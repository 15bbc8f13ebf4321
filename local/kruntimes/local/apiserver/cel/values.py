"""Values while an expression is evaluated. Pure.

Strings, booleans, bytes, null, lists and maps are Python's; an int is `int`, a double `float`, and the rest are the
classes here. Data of a schema that needs no conversion is used as it is; other lists and objects are wrapped, and
convert their parts as they are asked for.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.cel import types
from kruntimes.local.apiserver.cel.errors import EvaluationError
from kruntimes.local.apiserver.cel.times import Duration, Timestamp, parse_timestamp
from kruntimes.local.apiserver.durations import BadDuration, parse_duration
from kruntimes.local.apiserver.schema.structural import Node

INT_MIN, INT_MAX, UINT_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1


class UInt(int):
    """An unsigned whole number: a type of its own."""


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """A value, or none."""

    present: bool
    value: Any = None


NONE = Optional(False)


class Listing:
    """A list of a schema whose items convert. Sets and maps are equal whatever their order."""

    __slots__ = ("node", "raw")

    def __init__(self, raw: list[Any], node: Node) -> None:
        self.raw, self.node = raw, node

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, i: int) -> Any:
        return of(self.raw[i], self.node.items)

    def __iter__(self) -> Iterator[Any]:
        return (of(item, self.node.items) for item in self.raw)


class Mapped:
    """An object or map of a schema whose members convert. Only what the schema names is seen of an object."""

    __slots__ = ("node", "raw")

    def __init__(self, raw: dict[str, Any], node: Node) -> None:
        self.raw, self.node = raw, node

    def __len__(self) -> int:
        return len(self.raw)

    def __contains__(self, key: object) -> bool:
        return key in self.raw

    def __getitem__(self, key: str) -> Any:
        return of(self.raw[key], self.node.field(key))

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)


LISTS, MAPS = (list, Listing), (dict, Mapped)


def plain(node: Node | None) -> bool:
    """Whether data of this schema may be used as it is: nothing converts, and order counts in every list."""
    if node is None:
        return True
    if node.bounds.format in ("byte", "duration", "date", "datetime") or "number" in node.types:
        return False
    if node.list_type in ("set", "map") and node.type == "array":
        return False
    if not isinstance(node.additional, bool) and not plain(node.additional):
        return False
    return plain(node.items) and all(plain(sub) for sub in node.properties.values())


def of(raw: Any, node: Node | None) -> Any:
    """JSON data of a schema as a value. Raises EvaluationError where it is not what its format says."""
    if node is None or raw is None:
        return raw
    if isinstance(raw, list):
        return raw if _plain(node) else Listing(raw, node)
    if isinstance(raw, dict):
        return raw if _plain(node) else Mapped(raw, node)
    if isinstance(raw, int) and not isinstance(raw, bool):
        return float(raw) if node.type == "number" else raw
    if isinstance(raw, float):
        return int(raw) if node.type == "integer" and raw.is_integer() else raw
    if isinstance(raw, str) and node.bounds.format and not node.int_or_string:
        return _formatted(raw, node.bounds.format)
    return raw


_PLAIN: dict[int, tuple[Node, bool]] = {}
"""What `plain` said, by the identity of the node, which is kept alive beside it."""
_PLAIN_KEPT = 20_000


def _plain(node: Node) -> bool:
    held = _PLAIN.get(id(node))
    if held is None:
        if len(_PLAIN) >= _PLAIN_KEPT:
            _PLAIN.clear()
        held = _PLAIN[id(node)] = (node, plain(node))
    return held[1]


def _formatted(text: str, format: str) -> Any:
    try:
        match format:
            case "byte":
                return base64.b64decode(text, validate=True)
            case "duration":
                return Duration(parse_duration(text))
            case "date":
                return parse_timestamp(f"{text}T00:00:00Z")
            case "datetime":
                return parse_timestamp(text.upper())
    except (binascii.Error, BadDuration, ValueError) as bad:
        raise EvaluationError(f"Invalid {format} value: {text}") from bad
    return text


def type_name(value: Any) -> str:
    """The name of a value's type, as `type()` gives it."""
    match value:
        case bool():
            return "bool"
        case UInt():
            return "uint"
        case int():
            return "int"
        case float():
            return "double"
        case str():
            return "string"
        case bytes():
            return "bytes"
        case None:
            return "null_type"
        case list() | Listing():
            return "list"
        case dict() | Mapped():
            return "map"
        case Duration():
            return types.DURATION.name
        case Timestamp():
            return types.TIMESTAMP.name
        case Optional():
            return "optional_type"
        case TypeValue():
            return "type"
    return str(value.TYPE.name)


def equal(a: Any, b: Any) -> bool:
    """CEL's equality: across numeric types, and false for values of different kinds."""
    if type(a) is str:
        return type(b) is str and a == b
    if a is b:
        return not (isinstance(a, float) and a != a)
    if isinstance(a, LISTS):
        return isinstance(b, LISTS) and _lists_equal(a, b)
    if isinstance(a, MAPS):
        if not isinstance(b, MAPS) or len(a) != len(b):
            return False
        return all(key in b and equal(a[key], b[key]) for key in a)
    if isinstance(a, Optional):
        return isinstance(b, Optional) and a.present == b.present and (not a.present or equal(a.value, b.value))
    if isinstance(a, bool) or isinstance(b, bool):
        return isinstance(a, bool) and isinstance(b, bool) and a == b
    return bool(a == b)


def _lists_equal(a: Any, b: Any) -> bool:
    """By the rules of the left list: a set or a map has no order."""
    if len(a) != len(b):
        return False
    if not _keyed(a):
        return all(equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(b, Listing) and a.raw == b.raw and _plain(a.node.items or a.node):
        return True
    held = {_key(a.node, raw_of(item)): item for item in b}
    missing = object()
    return all(equal(item, held.get(_key(a.node, raw), missing)) for raw, item in zip(a.raw, a, strict=True))


def joined_lists(a: Any, b: Any) -> Any:
    """`a + b`: a set takes what it has not, a map's items take the place of those with their key."""
    if not _keyed(a):
        return [*a, *b]
    held = {_key(a.node, raw): raw for raw in a.raw}
    for item in b:
        raw = raw_of(item)
        key = _key(a.node, raw)
        if a.node.list_type == "map" or key not in held:
            held[key] = raw
    return Listing(list(held.values()), a.node)


def _keyed(value: Any) -> bool:
    return isinstance(value, Listing) and value.node.list_type in ("set", "map")


def _key(node: Node, raw: Any) -> object:
    """What tells an item from the others in a list that is a set or a map."""
    key: object = node.key_of(raw) if node.list_type == "map" else repr(raw)
    return key


def raw_of(value: Any) -> Any:
    """The data behind a value, where there is some."""
    return value.raw if isinstance(value, Listing | Mapped) else value


def int_of(value: int) -> int:
    """*value*, if it fits an int. Raises EvaluationError."""
    if not INT_MIN <= value <= INT_MAX:
        raise EvaluationError("integer overflow")
    return value


def uint_of(value: int) -> UInt:
    """*value*, if it fits a uint. Raises EvaluationError."""
    if not 0 <= value <= UINT_MAX:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)
