"""The type that a schema has for expressions. Pure.

What has no type (free-form data, anything below `x-kubernetes-preserve-unknown-fields` that the schema does not name)
is not seen by rules, as the API server has it.
"""

import re

from kruntimes.local.apiserver.cel import types
from kruntimes.local.apiserver.cel.lexer import RESERVED
from kruntimes.local.apiserver.cel.types import ObjectType, Type
from kruntimes.local.apiserver.schema.structural import Node

_KEYWORDS = RESERVED | {"true", "false", "null", "in"}
_NAME = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_ESCAPED = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_TEXT = Node(types=("string",))
_METADATA = Node(types=("object",), properties={"name": _TEXT, "generateName": _TEXT})


def escaped(name: str) -> str | None:
    """The name of a property within expressions, or None where it has none."""
    if not _NAME.fullmatch(name):
        return None
    if name in _KEYWORDS:
        return f"__{name}__"
    return re.sub(r"__|[./-]", lambda m: _ESCAPED[m[0]], name)


def with_type_fields(node: Node) -> Node:
    """A resource's schema with what rules see of its apiVersion, kind and metadata."""
    properties = {**node.properties, "apiVersion": _TEXT, "kind": _TEXT, "metadata": _METADATA}
    return Node(
        types=node.types, properties=properties, bounds=node.bounds, all_of=node.all_of, preserve=node.preserve,
        embedded=node.embedded, rules=node.rules, nullable=node.nullable, map_type=node.map_type,
        description=node.description, any_of=node.any_of, one_of=node.one_of, none_of=node.none_of,
        default=node.default,
    )  # fmt: skip


def declared(node: Node) -> Type | None:
    """The type of data of this schema; None where rules do not see it."""
    if node.int_or_string:
        return types.DYN
    match node.type:
        case "array":
            item = declared(seen(node.items)) if node.items is not None else None
            return types.list_of(item) if item is not None else None
        case "object":
            return _object(node)
        case "string":
            formatted = {
                "byte": types.BYTES, "duration": types.DURATION, "date": types.TIMESTAMP, "datetime": types.TIMESTAMP,
            }  # fmt: skip
            return formatted.get(node.bounds.format, types.STRING)
        case "boolean":
            return types.BOOL
        case "number":
            return types.DOUBLE
        case "integer":
            return types.INT
    return None


def seen(node: Node) -> Node:
    """The node as rules see it: an embedded resource has its type fields."""
    return with_type_fields(node) if node.embedded else node


def _object(node: Node) -> Type | None:
    if isinstance(node.additional, Node):
        value = declared(seen(node.additional))
        return types.map_of(types.STRING, value) if value is not None else None
    fields: dict[str, Type] = {}
    raw: dict[str, str] = {}
    for name, sub in node.properties.items():
        type_, shown = declared(seen(sub)), escaped(name)
        if type_ is not None and shown is not None:
            fields[shown], raw[shown] = type_, name
            if name in RESERVED:
                # `self.function` reads as well as `self.__function__`: only a name of its own is reserved.
                fields[name], raw[name] = type_, name
    return ObjectType("object", (), fields, raw)
