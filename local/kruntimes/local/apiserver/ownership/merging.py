"""Merging, comparing and removing by fields. Pure. Nothing that is given is changed; results share with it."""

from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.ownership.fields import Fields, Path, shown
from kruntimes.local.apiserver.ownership.places import FREE, Place, element, seen_as
from kruntimes.local.apiserver.schema.structural import ABSENT
from kruntimes.local.apiserver.values import same

Json = dict[str, Any]


_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "numeric": (int, float),
    "any scalar": (str, int, float, bool),
}  # fmt: skip


class Unfit(Exception):
    """The configuration does not fit the schema: `.spec.nope: field not declared in schema`."""


def check(value: Any, place: Place, path: Path = ()) -> None:
    """Raises Unfit for a configuration with unknown fields, wrong types or items twice."""
    place = seen_as(place, value)
    if value is None or place.kind == "free":
        return
    if place.kind in ("struct", "map") or (place.kind == "leaf" and place.fields):
        if not isinstance(value, dict):
            raise Unfit(f"{shown(path)}: expected map, got {_got(value)}")
        for name, member in value.items():
            below = place.child(name)
            if below is None:
                raise Unfit(f"{shown((*path, f'f:{name}'))}: field not declared in schema")
            check(member, below, (*path, f"f:{name}"))
    elif place.kind in ("keyed", "set"):
        if not isinstance(value, list):
            raise Unfit(f"{shown(path)}: expected list, got {_got(value)}")
        seen: set[str] = set()
        for i, item in enumerate(value):
            name = element(place, item)
            if name is None:
                what = "associative list with keys has an element that omits all key fields"
                raise Unfit(f"{shown(path)}: element {i}: {what}")
            if name in seen:
                raise Unfit(f"{shown(path)}: duplicate entries for key {shown((name,))}")
            seen.add(name)
            check(item, place.of or FREE, (*path, name))
    elif place.type in _SCALARS:
        fits = _SCALARS[place.type]
        if not isinstance(value, fits) or (isinstance(value, bool) and bool not in fits):
            raise Unfit(f"{shown(path)}: expected {place.type}, got {_got(value)}")


def _got(value: Any) -> str:
    return f"&value.valueUnstructured{{Value:{value!r}}}"


def merge(live: Any, config: Any, place: Place) -> Any:
    """*live* with *config* laid over it; ABSENT stands for nothing on either side."""
    if config is ABSENT or live is ABSENT:
        return live if config is ABSENT else config
    place = seen_as(place, config if config is not None else live)
    if place.kind in ("struct", "map") and isinstance(config, dict) and isinstance(live, dict):
        names = [*live, *(name for name in config if name not in live)]
        return {
            name: merge(live.get(name, ABSENT), config.get(name, ABSENT), place.child(name) or FREE) for name in names
        }
    if place.kind in ("keyed", "set") and isinstance(config, list) and isinstance(live, list):
        return _merge_lists(live, config, place)
    return config


def _merge_lists(live: list[Any], config: list[Any], place: Place) -> list[Any]:
    """Items of both are in the order of *config*; those of *live* alone stay before what they stood before."""
    ours = {element(place, item): item for item in config}
    theirs = {element(place, item): item for item in live}
    names = list(ours)
    shared = [name for name in names if name in theirs]
    waiting = [element(place, item) for item in live]
    merged: list[Any] = []
    done: set[str | None] = set()
    at = 0
    while waiting or at < len(names):
        if waiting:
            name = waiting[0]
            if name not in ours:
                merged.append(live[len(live) - len(waiting)])
                waiting.pop(0)
                continue
            if name in done or name != shared[0]:
                waiting.pop(0)
                continue
        if at < len(names):
            name = names[at]
            merged.append(merge(theirs.get(name, ABSENT), ours[name], place.of or FREE))
            done.add(name)
            at += 1
            if shared and shared[0] == name:
                shared.pop(0)
    return merged


def removed(value: Any, fields: Fields, place: Place) -> Any:
    """*value* without the fields of a set; what becomes empty by that goes, too."""
    if not fields:
        return value
    place = seen_as(place, value)
    here = {path[0] for path in fields if len(path) == 1}
    below: dict[str, set[Path]] = {}
    for path in fields:
        if len(path) > 1:
            below.setdefault(path[0], set()).add(path[1:])
    if isinstance(value, dict) and place.kind in ("struct", "map"):
        kept: Json = {}
        for name, member in value.items():
            key = f"f:{name}"
            if key in here:
                continue
            if key in below:
                member = removed(member, frozenset(below[key]), place.child(name) or FREE)
                if member is ABSENT:
                    continue
            kept[name] = member
        return kept if kept or not value else ABSENT
    if isinstance(value, list) and place.kind in ("keyed", "set"):
        items: list[Any] = []
        for item in value:
            key = element(place, item) or ""
            if key in here:
                continue
            if key in below:
                item = removed(item, frozenset(below[key]), place.of or FREE)
            if item is not ABSENT:
                items.append(item)
        return items if items or not value else ABSENT
    return value


@dataclass(frozen=True, slots=True)
class Difference:
    """The fields that a change took away, changed and brought."""

    removed: Fields
    modified: Fields
    added: Fields

    def within(self, *, only: str = "", but: str = "") -> "Difference":
        """The part of it below one field, or all but that."""

        def kept(fields: Fields) -> Fields:
            return frozenset(
                path for path in fields if (not only or path[0] == f"f:{only}") and (not but or path[0] != f"f:{but}")
            )

        return Difference(kept(self.removed), kept(self.modified), kept(self.added))

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return not (self.removed or self.modified or self.added)


def difference(old: Any, new: Any, place: Place) -> Difference:
    """What changed between two objects."""
    walk = _Comparison()
    walk.compare(old, new, place, ())
    return Difference(frozenset(walk.removed), frozenset(walk.modified), frozenset(walk.added))


class _Comparison:
    def __init__(self) -> None:
        self.removed: set[Path] = set()
        self.modified: set[Path] = set()
        self.added: set[Path] = set()

    def compare(self, old: Any, new: Any, place: Place, path: Path) -> None:
        """Notes what differs here and below; ABSENT stands for nothing."""
        if old == new and old is not ABSENT:
            return
        place = seen_as(place, old if new is ABSENT or new is None else new)
        empty = not _filled(old) and not _filled(new)
        if place.kind in ("struct", "map") and not empty and _of(dict, old, new):
            before, after = (old if _filled(old) else {}), (new if _filled(new) else {})
            for name in before | after:
                sides = before.get(name, ABSENT), after.get(name, ABSENT)
                self.compare(*sides, place.child(name) or FREE, (*path, f"f:{name}"))
        elif place.kind in ("keyed", "set") and not empty and _of(list, old, new):
            before = {element(place, item): item for item in (old if _filled(old) else [])}
            after = {element(place, item): item for item in (new if _filled(new) else [])}
            for key in before | after:
                if key is not None:
                    sides = before.get(key, ABSENT), after.get(key, ABSENT)
                    self.compare(*sides, place.of or FREE, (*path, key))
        elif old is not ABSENT and new is not ABSENT and not same(old, new) and path:
            self.modified.add(path)
        if path and old is ABSENT:
            self.added.add(path)
        elif path and new is ABSENT:
            self.removed.add(path)


def _filled(value: Any) -> bool:
    return value is not ABSENT and bool(value)


def _of(kind: type, *values: Any) -> bool:
    return all(value is ABSENT or value is None or isinstance(value, kind) for value in values)
