"""JSON patch and merge patch, as the API server carries them out. Pure.

The operations are RFC 6902 and RFC 7386 with the server's own habits: an index of an array may be negative, a `test`
against null passes where the key is not there, and every operation that does not apply gets one and the same 422.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import StatusError, bad_request
from kruntimes.local.apiserver.values import same, type_of

Json = dict[str, Any]

MAX_OPERATIONS = 10_000
MAX_DEPTH = 64
"""Of a path: no object of the API is deeper, and `copy` could double an object's depth with each operation."""
MAX_COPIED = 3 * 1024 * 1024
"""Values that `copy` may bring in, each string counted by its length: what a request body may hold at most."""


class NotApplicable(Exception):
    """An operation does not fit the document."""


_GO_NAMES = {"integer": "number", "boolean": "bool"}


def _undecodable(value: object, target: str) -> StatusError:
    found = type_of(value)
    return bad_request(
        f"error decoding patch: json: cannot unmarshal {_GO_NAMES.get(found, found)} into Go value of type {target}"
    )


def json_patch(resource: Resource, current: Json, patch: object) -> Json:
    """The document after all operations; *current* is not changed."""
    if not isinstance(patch, list):
        raise _undecodable(patch, "[]handlers.jsonPatchOp")
    for op in patch:
        if op is not None and not isinstance(op, dict):
            raise _undecodable(op, "handlers.jsonPatchOp")
    if len(patch) > MAX_OPERATIONS:
        allowed = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {allowed}")
    try:
        patched = operate(current, [op or {} for op in patch])
    except NotApplicable:
        message = "the server rejected our request due to an error in our request"
        raise StatusError(422, "Invalid", message) from None
    if not isinstance(patched, dict):
        raise bad_request("the patched object is no object")
    return patched


def operate(document: object, operations: Sequence[Json]) -> object:
    """*document* after *operations*; shares with it what has not changed. Raises NotApplicable."""
    budget = MAX_COPIED
    for op in operations:
        kind, path = op.get("op"), _steps(op.get("path"))
        if kind == "remove":
            document = _at(document, path, _remove)
        elif kind in ("add", "replace"):
            act, value = (_add if kind == "add" else _replace), op.get("value")
            document = value if not path else _at(document, path, _with(act, value))
        elif kind == "move":
            source = _steps(op.get("from"))
            value = _read(document, source)
            document = _at(_at(document, source, _remove), path, _with(_add, value))
        elif kind == "copy":
            value = _read(document, _steps(op.get("from")))
            budget -= _weight(value)
            if budget < 0:
                raise NotApplicable
            document = _at(document, path, _with(_add, value))
        elif kind == "test":
            if not same(_read(document, path), op.get("value")):
                raise NotApplicable
        else:
            raise NotApplicable
    return document


Act = Callable[[Any, str], Any]
"""(container, key) → the container as it becomes; the given one is not changed."""


def _with(act: Callable[[Any, str, Any], Any], value: object) -> Act:
    return lambda container, key: act(container, key, value)


def _steps(pointer: object) -> list[str]:
    if not isinstance(pointer, str) or (pointer and pointer[0] != "/"):
        raise NotApplicable
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    if len(steps) > MAX_DEPTH:
        raise NotApplicable
    return steps


def _at(node: Any, path: Sequence[str], act: Act) -> Any:
    """The tree with *act* carried out at the parent of the last step; nodes on the way there are copied."""
    if not path:
        raise NotApplicable
    if len(path) == 1:
        return act(node, path[0])
    child = _at(_child(node, path[0]), path[1:], act)
    return _put(node, path[0], child)


def _put(node: Any, key: str, value: Any) -> Any:
    if isinstance(node, dict):
        return {**node, key: value}
    i = _index(node, key, len(node))
    return [*node[:i], value, *node[i + 1 :]]


def _child(node: Any, key: str) -> Any:
    if isinstance(node, dict):
        found = node.get(key)
    elif isinstance(node, list):
        found = node[_index(node, key, len(node))]
    else:
        raise NotApplicable
    if found is None:
        raise NotApplicable
    return found


def _index(array: list[Any], key: str, size: int) -> int:
    """The position that *key* names among *size*, counted from the end where it is negative."""
    digits = key.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(size)) + 1:
        raise NotApplicable
    i = int(key)
    i = i + size if i < 0 else i
    if not 0 <= i < size:
        raise NotApplicable
    return i


def _read(document: Any, path: Sequence[str]) -> Any:
    if not path:
        return document
    for step in path[:-1]:
        document = _child(document, step)
    if isinstance(document, dict):
        return document.get(path[-1])
    if isinstance(document, list):
        return document[_index(document, path[-1], len(document))]
    raise NotApplicable


def _add(container: Any, key: str, value: Any) -> Any:
    if isinstance(container, dict):
        return {**container, key: value}
    if not isinstance(container, list):
        raise NotApplicable
    i = len(container) if key == "-" else _index(container, key, len(container) + 1)
    return [*container[:i], value, *container[i:]]


def _replace(container: Any, key: str, value: Any) -> Any:
    if isinstance(container, dict):
        return {**container, key: value}
    if not isinstance(container, list):
        raise NotApplicable
    return _put(container, key, value)


def _remove(container: Any, key: str) -> Any:
    if isinstance(container, dict):
        if key not in container:
            raise NotApplicable
        return {k: v for k, v in container.items() if k != key}
    if not isinstance(container, list):
        raise NotApplicable
    i = _index(container, key, len(container))
    return container[:i] + container[i + 1 :]


def _weight(value: object) -> int:
    if isinstance(value, dict):
        return sum(len(k) + _weight(v) for k, v in value.items())
    if isinstance(value, list):
        return sum(map(_weight, value))
    return len(value) if isinstance(value, str) else 8


def merge_patch(resource: Resource, current: Json, patch: object) -> Json:
    """The document with *patch* laid over it; null removes. *current* is not changed."""
    if not isinstance(patch, dict):
        kind = type_of(patch)
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )
    return merged(current, patch)


def merged(current: Json, patch: Json) -> Json:
    """RFC 7386 for objects: shares with both what it can."""
    result = dict(current)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = without_nulls(value)
    return result


def without_nulls(value: Any) -> Any:
    """A value that comes in new: its objects' null members are left out, those within arrays too."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value
