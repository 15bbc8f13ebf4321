"""Sets of fields, as managedFields writes them (`fieldsV1`). Pure.

A path is a tuple of elements: `f:name` a member, `k:{…}` an item by key, `v:…` an item of a set, `i:…` a position.
"""

import json
from collections.abc import Iterable
from typing import Any

from kruntimes.local.apiserver.ownership.places import Place, element, seen_as

Path = tuple[str, ...]
Fields = frozenset[Path]
Json = dict[str, Any]
MAX_DEPTH = 100


def decoded(raw: Any) -> Fields:
    """The set that a `fieldsV1` holds. Raises ValueError."""
    found: set[Path] = set()
    _decode(raw, (), found)
    return frozenset(found)


def _decode(raw: Any, path: Path, found: set[Path]) -> None:
    if not isinstance(raw, dict) or len(path) > MAX_DEPTH:
        raise ValueError("not a set of fields")
    if path and (not raw or "." in raw):
        found.add(path)
    for name, below in raw.items():
        if name != ".":
            if name[:2] not in ("f:", "k:", "v:", "i:"):
                raise ValueError(f"unknown element {name}")
            _decode(below, (*path, name), found)


def encoded(fields: Iterable[Path]) -> Json:
    """As `fieldsV1`."""
    made: Json = {}
    for path in sorted(fields):
        at = made
        for name in path:
            at = at.setdefault(name, {})
        at["."] = {}
    return _tidied(made)


def _tidied(node: Json) -> Json:
    """A member without anything below it is written as {}."""
    if node == {".": {}}:
        return {}
    return {name: {} if name == "." else _tidied(below) for name, below in node.items()}


def shown(path: Path) -> str:
    """A path as people read it: `.spec.parts[name="p"].count`."""
    said = ""
    for name in path:
        kind, value = name[:2], name[2:]
        if kind == "f:":
            said += f".{value}"
        elif kind == "k:":
            pairs = ",".join(f"{key}={json.dumps(item)}" for key, item in json.loads(value).items())
            said += f"[{pairs}]"
        else:
            said += f"[={value}]" if kind == "v:" else f"[{value}]"
    return said


def of_value(value: Any, place: Place) -> Fields:
    """The fields that an applied configuration claims."""
    found: set[Path] = set()
    _collect(value, place, (), found)
    return frozenset(found)


def _collect(value: Any, place: Place, path: Path, found: set[Path]) -> None:
    place = seen_as(place, value)
    if isinstance(value, dict) and place.kind in ("struct", "map"):
        for name, member in value.items():
            at = (*path, f"f:{name}")
            _collect(member, place.child(name) or seen_as(_FREE, member), at, found)
            if member is None or member == {} or name not in place.fields:
                found.add(at)
    elif isinstance(value, list) and place.kind in ("keyed", "set"):
        for item in value:
            name = element(place, item)
            if name is not None and place.of is not None:
                _collect(item, place.of, (*path, name), found)
                found.add((*path, name))
    elif path:
        found.add(path)


_FREE = Place(kind="free")


def with_parents(fields: Fields, place: Place) -> Fields:
    """The set with every declared field that something in the set lies below."""
    found = set(fields)
    for path in fields:
        at: Place | None = place
        for i, name in enumerate(path[:-1]):
            if name.startswith("f:"):
                if at is not None and name[2:] in at.fields:
                    found.add(path[: i + 1])
                at = at.child(name[2:]) if at is not None else None
            else:
                at = at.of if at is not None else None
    return frozenset(found)
