"""The types of the built-in kinds: which fields they have, and what stands in them. Pure.

A body that does not fit is refused before any rule sees it, in the words of Go's JSON decoder; unknown fields are taken
out and told. What `null` says is left out, as there, and so are empty lists and maps. The table holds the fields that a
local control plane has use for and those that clients of it are known to send; it is the API's of Kubernetes 1.37.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

from kruntimes.local.apiserver.fields import Field, Many, Message, messages
from kruntimes.local.apiserver.quantities import BadQuantity, parse_quantity

Json = dict[str, Any]

_ANY = "Object"
MAX_DEPTH = 32
"""Of a body; no kind nests so far."""


class Misfit(Exception):
    """A value of another type than its field has; the message is Go's."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A type. kind: one of the letters below, `list`, `map` or `struct`; of: the items' or values' type; fields: those
    of a struct, by name.

    s text, i integer, f number, b boolean, t time, u time with microseconds, q quantity, o integer or text, a anything.
    """

    kind: str
    name: str
    of: "Shape | None" = None
    fields: "dict[str, Shape] | None" = None


_GO = {
    "s": "string", "i": "int64", "f": "float64", "b": "bool", "t": "string", "u": "string", "q": "resource.Quantity",
    "o": "intstr.IntOrString", "a": "any",
}  # fmt: skip
_FITS: dict[str, tuple[type, ...]] = {
    "s": (str,), "i": (int,), "f": (int, float), "b": (bool,), "t": (str,), "u": (str,),
    "o": (str, int), "a": (object,), "struct": (dict,), "map": (dict,), "list": (list,),
}  # fmt: skip
_KEPT = frozenset({
    "v1.PodSpec.containers", "v1.Role.rules", "v1.ClusterRole.rules", "v1.PolicyRule.verbs",
    "v1.EndpointSlice.endpoints", "v1.EndpointSlice.ports", "v1.Endpoint.addresses",
    "v1.ProjectedVolumeSource.sources", "v1.TokenRequestSpec.audiences", "v1.NodeSelector.nodeSelectorTerms",
})  # fmt: skip
"""Lists that are shown though they are empty; every other one, and every map, is left out then."""
_TIMES = {"t": "2006-01-02T15:04:05Z07:00", "u": "2006-01-02T15:04:05.000000Z07:00"}
_MICROSECONDS = re.compile(r".*\.[0-9]{6}(Z|[-+][0-9]{2}:[0-9]{2})")
_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


def fit(kind: str, obj: Json) -> list[str]:
    """Makes *obj* fit the kind, in place; returns the paths of the unknown fields that were taken out.

    A kind that is not in the table is held to the shape of its metadata alone. Raises Misfit.
    """
    unknown: list[str] = []
    known = kind != _ANY and kind in table()
    _fit_struct(table()[kind if known else _ANY], obj, "", "", unknown, open_ended=not known)
    return unknown


def _fit_struct(
    shape: Shape, value: Json, path: str, named: str, unknown: list[str], *, open_ended: bool = False
) -> None:
    """path: with indexes and keys, for what is unknown; named: of fields alone, as Go names them."""
    fields = shape.fields or {}
    for key in list(value):
        at, below = f"{path}.{key}" if path else key, f"{named}.{key}" if named else key
        field = fields.get(key)
        if field is None:
            if not open_ended:
                unknown.append(at)
                del value[key]
        elif value[key] is None and field.kind not in _TIMES:
            del value[key]
        elif value[key] is not None:
            # A custom kind has no struct in Go, but its metadata has: its fields are named from there.
            _fit(field, value[key], at, "" if open_ended and key == "metadata" else below, _go_name(shape), unknown)
            if field.kind in ("list", "map") and not value[key] and f"{shape.name}.{key}" not in _KEPT:
                del value[key]


def _fit(shape: Shape, value: Any, path: str, named: str, owner: str, unknown: list[str]) -> None:
    if named.count(".") > MAX_DEPTH:
        raise Misfit("json: exceeded max depth")
    if shape.kind == "q":
        _fit_quantity(value)
        return
    good: Any = _FITS[shape.kind]
    if not isinstance(value, good) or (isinstance(value, bool) and bool not in good):
        found = _JSON_NAMES.get(type(value), "null")
        wanted = f"v1.{_go_name(shape)}" if shape.kind == "struct" else shape.name
        raise Misfit(f"json: cannot unmarshal {found} into Go struct field {owner}.{named} of type {wanted}")
    if shape.kind == "struct":
        _fit_struct(shape, value, path, named, unknown)
    elif shape.kind == "map" and shape.of is not None:
        for key, item in value.items():
            if item is not None:
                _fit(shape.of, item, f"{path}.{key}", named, owner, unknown)
    elif shape.kind == "list" and shape.of is not None:
        for i, item in enumerate(value):
            _fit(shape.of, item, f"{path}[{i}]", named, owner, unknown)
    elif shape.kind in _TIMES:
        _fit_time(value, _TIMES[shape.kind], micro=shape.kind == "u")


def _go_name(shape: Shape) -> str:
    return shape.name.removeprefix("v1.")


def _fit_quantity(value: Any) -> None:
    """A quantity reads its own JSON, so that a value of another type is a wrong text to it, like any other."""
    try:
        parse_quantity("" if isinstance(value, bool | list | dict) else str(value))
    except BadQuantity:
        pattern = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        raise Misfit(f"quantities must match the regular expression {pattern}") from None


def _fit_time(value: str, layout: str, *, micro: bool) -> None:
    try:
        zoned = datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        zoned = False
    if not zoned:
        raise Misfit(f'parsing time "{value[:60]}" as "{layout}": cannot parse "{value[:60]}" as "2006"')
    if micro and not _MICROSECONDS.fullmatch(value):
        raise Misfit(f'parsing time "{value}" as "{layout}": cannot parse "{value[19:]}" as ".000000"')


_LETTERS = {
    "string": "s", "bytes": "s", "int": "i", "bool": "b", "Time": "t", "MicroTime": "u", "Quantity": "q",
    "IntOrString": "o", "FieldsV1": "a",
}  # fmt: skip
"""What the scalars of `fields` are in JSON."""
_TYPE_FIELDS = {"apiVersion": Shape("s", "string"), "kind": Shape("s", "string")}
"""What the message of a whole object leaves to its envelope."""


@cache
def table() -> dict[str, Shape]:
    """The shapes by name, made when first asked for: those of `fields`, and what `shapes.txt` has besides."""
    made: dict[str, Shape] = {}
    for message in messages().values():
        _of_message(message, made)
    text = resources.files("kruntimes.local.apiserver").joinpath("shapes.txt").read_text(encoding="utf-8")
    raw: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            name, _, line = line.partition(":")
            raw[name] = ""
        raw[name] += f" {line.strip()}"
    for key in raw:
        _struct(key, raw, made)
    return made


def _of_message(message: Message, made: dict[str, Shape]) -> Shape:
    if message.name not in made:
        whole = "metadata" in message.by_name and message.by_name["metadata"].type == "ObjectMeta"
        fields: dict[str, Shape] = dict(_TYPE_FIELDS) if whole else {}
        made[message.name] = Shape("struct", f"v1.{message.name}", fields=fields)
        fields.update({name: _of_field(field, made) for name, field in message.by_name.items()})
    return made[message.name]


def _of_field(field: Field, made: dict[str, Shape]) -> Shape:
    letter = _LETTERS.get(field.type)
    one = Shape(letter, _GO[letter]) if letter is not None else _of_message(messages()[field.type], made)
    match field.many:
        case Many.ONE:
            return one
        case Many.LIST:
            return Shape("list", f"[]{one.name}", of=one)
        case Many.MAP:
            return Shape("map", f"map[string]{one.name}", of=one)
        case Many.MAP_OF_LISTS:
            return Shape("map", f"map[string][]{one.name}", of=Shape("list", f"[]{one.name}", of=one))


def _struct(name: str, raw: dict[str, str], made: dict[str, Shape]) -> Shape:
    if name not in made:
        fields: dict[str, Shape] = {}
        made[name] = Shape("struct", f"v1.{name}", fields=fields)
        for entry in raw[name].split():
            names, _, type = entry.partition("=")
            shape = _type(type or "s", raw, made)
            fields.update(dict.fromkeys(names.split(","), shape))
    return made[name]


def _type(text: str, raw: dict[str, str], made: dict[str, Shape]) -> Shape:
    if text.startswith("["):
        of = _type(text[1:-1], raw, made)
        return Shape("list", f"[]{of.name}", of=of)
    if text.startswith("{"):
        of = _type(text[1:-1], raw, made)
        return Shape("map", f"map[string]{of.name}", of=of)
    if text in _GO:
        return Shape(text, _GO[text])
    return _struct(text, raw, made)
