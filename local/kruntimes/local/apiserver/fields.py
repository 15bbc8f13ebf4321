"""The fields of the built-in kinds: their JSON names, types and protobuf numbers, read from `fields.txt`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources

SCALARS = frozenset({"string", "int", "bool", "bytes", "Time", "MicroTime", "Quantity", "IntOrString", "FieldsV1"})


class Many(Enum):
    """How many values a field has."""

    ONE = "one"
    LIST = "list"
    MAP = "map"
    MAP_OF_LISTS = "map of lists"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field. type: one of SCALARS or a message's name. name: empty where the message's fields stand for it.

    kept: whether an empty value says something else than none.
    """

    number: int
    name: str
    type: str
    many: Many
    kept: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A message with its fields, by protobuf number and by JSON name (those of inlined messages among them)."""

    name: str
    by_number: Mapping[int, Field]
    by_name: Mapping[str, Field]


def _field(text: str) -> Field:
    number, name, *rest = text.split()
    kind = rest[0] if rest else ""
    kept, many = kind.startswith("*"), Many.ONE
    kind = kind.removeprefix("*")
    if kind.startswith("["):
        kind, many = kind[1:-1], Many.LIST
    elif kind.startswith("{"):
        kind, many = kind[1:-1], Many.MAP
        if kind == "[]":
            kind, many = "", Many.MAP_OF_LISTS
    return Field(number=int(number), name="" if name == "." else name, type=kind or "string", many=many, kept=kept)


@cache
def messages() -> Mapping[str, Message]:
    """Every message by name."""
    text = resources.files("kruntimes.local.apiserver").joinpath("fields.txt").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    parsed: dict[str, dict[int, Field]] = {}
    for entry in lines.replace("\n  ", " ").splitlines():
        name, _, fields = entry.partition(":")
        found = [_field(one) for one in fields.split(";") if one.strip()]
        parsed[name] = {field.number: field for field in found}
    return {name: Message(name, fields, _by_name(parsed, name)) for name, fields in parsed.items()}


def _by_name(parsed: Mapping[str, Mapping[int, Field]], name: str) -> dict[str, Field]:
    found: dict[str, Field] = {}
    for field in parsed[name].values():
        if field.name:
            found[field.name] = field
        else:
            found.update(_by_name(parsed, field.type))
    return found
