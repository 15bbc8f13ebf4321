"""A structural schema (`openAPIV3Schema` of a CustomResourceDefinition), read once into typed nodes. Pure.

`Schema` is what a custom resource's rules ask: fill in defaults, remove what is unknown, list the faults.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kruntimes.local.apiserver.schema import formats

Json = dict[str, Any]

ABSENT: Any = object()
"""No value at all, where null is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a value may be beyond its type. enum: allowed values; pattern: RE2; format: a known one, or empty;
    format_text: as the schema spells it."""

    format: str = ""
    format_text: str = ""
    pattern: str = ""
    enum: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False
    min_properties: int | None = None
    max_properties: int | None = None
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One place of a schema. additional: the schema of a map's values, or whether others than *properties* may stand.

    types: what the value may be (`integer` and `string` for int-or-string); empty is anything. list_type: atomic, set
    or map (with list_keys); map_type: atomic or granular. rules: x-kubernetes-validations as they were given.
    """

    types: tuple[str, ...] = ()
    nullable: bool = False
    description: str = ""
    properties: Mapping[str, "Node"] = field(default_factory=dict)
    additional: "Node | bool | None" = None
    items: "Node | None" = None
    bounds: Bounds = Bounds()
    all_of: tuple["Node", ...] = ()
    any_of: tuple["Node", ...] = ()
    one_of: tuple["Node", ...] = ()
    none_of: "Node | None" = None
    default: Any = ABSENT
    preserve: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    map_type: str = "granular"
    rules: tuple[Json, ...] = ()

    @property
    def type(self) -> str:
        """The one type, or empty."""
        return self.types[0] if len(self.types) == 1 else ""

    def field(self, name: str) -> "Node | None":
        """The schema of a member, be it named or of a map; None where it is unknown or free."""
        found = self.properties.get(name)
        if found is None and isinstance(self.additional, Node):
            return self.additional
        return found

    def key_of(self, item: Any) -> tuple[Any, ...] | None:
        """The key of an item in a list of type map, with defaults; None where a part of it is missing."""
        if not isinstance(item, dict):
            return None
        found: list[Any] = []
        for key in self.list_keys:
            value = item.get(key, ABSENT)
            if value is ABSENT and self.items is not None and key in self.items.properties:
                value = self.items.properties[key].default
            if value is ABSENT:
                return None
            found.append(value if isinstance(value, str | int | float | bool) else repr(value))
        return tuple(found)


def read(raw: Mapping[str, Any]) -> Node:
    """The node of a schema that `crds.validate` found to be well-formed."""
    int_or_string = bool(raw.get("x-kubernetes-int-or-string"))
    type_ = raw.get("type") or ""
    types = ("integer", "string") if int_or_string else (type_,) if type_ else ()
    additional = raw.get("additionalProperties")
    items = raw.get("items")
    return Node(
        types=types,
        nullable=bool(raw.get("nullable")),
        description=raw.get("description") or "",
        properties={name: read(sub) for name, sub in (raw.get("properties") or {}).items()},
        additional=read(additional) if isinstance(additional, Mapping) else additional,
        items=read(items) if isinstance(items, Mapping) else None,
        bounds=_bounds(raw, types),
        all_of=tuple(read(sub) for sub in raw.get("allOf") or ()),
        any_of=tuple(read(sub) for sub in raw.get("anyOf") or ()),
        one_of=tuple(read(sub) for sub in raw.get("oneOf") or ()),
        none_of=read(raw["not"]) if raw.get("not") is not None else None,
        default=raw.get("default") if raw.get("default") is not None else ABSENT,
        preserve=bool(raw.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(raw.get("x-kubernetes-embedded-resource")),
        int_or_string=int_or_string,
        list_type=raw.get("x-kubernetes-list-type") or "atomic",
        list_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        map_type=raw.get("x-kubernetes-map-type") or "granular",
        rules=tuple(raw.get("x-kubernetes-validations") or ()),
    )


def _bounds(raw: Mapping[str, Any], types: tuple[str, ...]) -> Bounds:
    type_ = types[0] if len(types) == 1 else "" if not types else "integer,string"
    return Bounds(
        format=formats.known(raw.get("format") or "", type_),
        format_text=raw.get("format") or "",
        pattern=raw.get("pattern") or "",
        enum=tuple(raw.get("enum") or ()),
        minimum=raw.get("minimum"),
        maximum=raw.get("maximum"),
        exclusive_minimum=bool(raw.get("exclusiveMinimum")),
        exclusive_maximum=bool(raw.get("exclusiveMaximum")),
        multiple_of=raw.get("multipleOf"),
        min_length=raw.get("minLength"),
        max_length=raw.get("maxLength"),
        min_items=raw.get("minItems"),
        max_items=raw.get("maxItems"),
        unique_items=bool(raw.get("uniqueItems")),
        min_properties=raw.get("minProperties"),
        max_properties=raw.get("maxProperties"),
        required=tuple(raw.get("required") or ()),
    )


def child(path: str, name: str) -> str:
    """The path of a member: `spec.name`."""
    return f"{path}.{name}" if path else name
