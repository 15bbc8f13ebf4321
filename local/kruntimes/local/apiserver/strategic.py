"""Strategic merge patch of the built-in kinds: lists are merged by their keys, and directives say otherwise. Pure.

Directives: `$patch: delete | replace | merge`, `$deleteFromPrimitiveList/NAME`, `$setElementOrder/NAME`,
`$retainKeys`.
"""

from typing import Any

from kruntimes.local.apiserver.ownership.places import FREE, Place, built_in
from kruntimes.local.apiserver.patches import without_nulls
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import bad_request

Json = dict[str, Any]

_DELETE, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"
_DIRECTIVES = ("$patch", "$retainKeys")


def strategic_patch(resource: Resource, current: Json, patch: object) -> Json:
    """The document with *patch* laid over it; *current* is not changed."""
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch must be an object")
    return _struct(current, patch, built_in(resource.kind))


def _struct(current: Json, patch: Json, place: Place) -> Json:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: _new(value, place.child(key) or FREE) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    result = dict(current)
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key in _DIRECTIVES or key.startswith((_DELETE, _ORDER)):
            continue
        below = place.child(key) or FREE
        held = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(held, dict):
            result[key] = _struct(held, value, below)
        elif isinstance(value, list) and isinstance(held, list):
            result[key] = _list(held, value, below)
        else:
            result[key] = _new(value, below)
    for key, value in patch.items():
        if key.startswith(_DELETE):
            name = key.removeprefix(_DELETE)
            result[name] = [item for item in result.get(name) or [] if item not in value]
    for key, value in patch.items():
        if key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            if isinstance(result.get(name), list):
                server = current.get(name) or []
                result[name] = _ordered(result[name], value, server, (place.child(name) or FREE).merge_key)
    return result


def _list(held: list[Any], patch: list[Any], place: Place) -> list[Any]:
    if place.kind == "set":
        return _ordered([*held, *(item for item in patch if item not in held)], patch, held, "")
    key = place.merge_key
    if not key:
        return [_new(item, place.of or FREE) for item in patch]
    if any(not isinstance(item, dict) for item in patch):
        raise bad_request("Invalid patch: the items of a list that is merged must be objects")
    if any(item.get("$patch") == "replace" for item in patch):
        return [_new(item, place.of or FREE) for item in patch if item.get("$patch") != "replace"]
    result = list(held)
    named = [item for item in patch if "$patch" not in item]
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        found = [i for i, other in enumerate(result) if isinstance(other, dict) and other.get(key) == item[key]]
        if item.get("$patch") == "delete":
            result = [other for i, other in enumerate(result) if i not in found]
        elif found:
            result[found[0]] = _struct(result[found[0]], item, place.of or FREE)
        else:
            result.append(_new(item, place.of or FREE))
    return _ordered(result, named, held, key)


def _ordered(merged: list[Any], order: list[Any], server: list[Any], key: str) -> list[Any]:
    """Items that *order* names, in its order; the others before what they stood before in *server*."""

    def name(item: Any) -> Any:
        return item.get(key) if isinstance(item, dict) else item

    wanted, stood = [name(item) for item in order], [name(item) for item in server]
    ours = sorted((item for item in merged if name(item) in wanted), key=lambda item: wanted.index(name(item)))
    theirs = [item for item in merged if name(item) not in wanted]
    result: list[Any] = []
    while ours and theirs:
        one, other = name(theirs[0]), name(ours[0])
        first = one in stood and other in stood and stood.index(one) < stood.index(other)
        result.append(theirs.pop(0) if first else ours.pop(0))
    return [*result, *ours, *theirs]


def _new(value: Any, place: Place) -> Any:
    """A value that comes in new: without directives and nulls."""
    if isinstance(value, dict):
        if value.get("$patch") == "delete":
            return {}
        plain = {k: v for k, v in value.items() if k not in _DIRECTIVES and not k.startswith((_DELETE, _ORDER))}
        return {k: _new(v, place.child(k) or FREE) for k, v in plain.items() if v is not None}
    if isinstance(value, list):
        kept = [item for item in value if not (isinstance(item, dict) and item.get("$patch") == "delete")]
        return [_new(item, place.of or FREE) for item in kept]
    return without_nulls(value)
