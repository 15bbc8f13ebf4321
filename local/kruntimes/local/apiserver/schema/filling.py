"""What a schema changes in an object before it is looked at: nulls, defaults, unknown fields. Pure.

Everything here changes the object in place; what it puts in is a copy.
"""

import copy
from typing import Any

from kruntimes.local.apiserver.schema.structural import ABSENT, Node

TYPE_FIELDS = ("apiVersion", "kind", "metadata")
"""What every object has, whatever its schema says."""
METADATA_FIELDS = frozenset({
    "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
    "generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences",
    "resourceVersion", "selfLink", "uid",
})  # fmt: skip


def prune_nulls(value: Any, node: Node | None) -> None:
    """Removes members that are null where null is not allowed and no default stands in for it."""
    if isinstance(value, dict):
        for name in list(value):
            sub = node.field(name) if node is not None else None
            if value[name] is None and sub is not None and not sub.nullable and sub.default is ABSENT:
                del value[name]
            else:
                prune_nulls(value[name], sub)
    elif isinstance(value, list):
        for item in value:
            prune_nulls(item, node.items if node is not None else None)


def fill(value: Any, node: Node | None) -> None:
    """Puts defaults where members are missing, or null where null is not allowed."""
    if node is None:
        return
    if isinstance(value, dict):
        for name, sub in node.properties.items():
            if sub.default is not ABSENT and (name not in value or _unwanted_null(value[name], sub)):
                value[name] = copy.deepcopy(sub.default)
        for name in value:
            found = node.field(name)
            if found is not None:
                if found.default is not ABSENT and _unwanted_null(value[name], found):
                    value[name] = copy.deepcopy(found.default)
                fill(value[name], found)
    elif isinstance(value, list) and node.items is not None:
        for i, item in enumerate(value):
            if node.items.default is not ABSENT and _unwanted_null(item, node.items):
                value[i] = copy.deepcopy(node.items.default)
            fill(value[i], node.items)


def _unwanted_null(value: Any, node: Node) -> bool:
    return value is None and not node.nullable


def prune(obj: Any, node: Node) -> list[str]:
    """Removes every field that the schema of a resource does not know; returns their paths, sorted."""
    unknown: list[str] = []
    if isinstance(obj, dict):
        _prune_metadata(obj.get("metadata"), "metadata", unknown)
    _prune(obj, node, "", unknown, root=True)
    return sorted(unknown)


def prune_below(value: Any, node: Node) -> None:
    """Removes what the schema of a part of a resource does not know."""
    _prune(value, node, "", [])


def _prune_metadata(meta: Any, path: str, unknown: list[str]) -> None:
    if isinstance(meta, dict):
        for name in [n for n in meta if n not in METADATA_FIELDS]:
            unknown.append(f"{path}.{name}")
            del meta[name]


def _prune(value: Any, node: Node | None, path: str, unknown: list[str], *, root: bool = False) -> None:
    if node is not None and node.preserve:
        _prune_known(value, node, path, unknown)
    elif isinstance(value, dict):
        meta = node is not None and (root or node.embedded)
        for name in list(value):
            if meta and name in TYPE_FIELDS:
                continue
            at = f"{path}.{name}" if path else name
            found = node.field(name) if node is not None else None
            if found is not None:
                _prune(value[name], found, at, unknown)
            elif node is not None and node.additional is True:
                _prune(value[name], None, at, unknown)
            else:
                if path or name not in TYPE_FIELDS:
                    unknown.append(at)
                del value[name]
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _prune(item, node.items if node is not None else None, f"{path}[{i}]", unknown)


def _prune_known(value: Any, node: Node, path: str, unknown: list[str]) -> None:
    """Where unknown fields are preserved, those that are known are pruned all the same."""
    if isinstance(value, dict):
        for name, member in value.items():
            if node.embedded and name in TYPE_FIELDS:
                continue
            found = node.field(name)
            if found is not None:
                _prune(member, found, f"{path}.{name}" if path else name, unknown)
    elif isinstance(value, list) and node.items is not None:
        for i, item in enumerate(value):
            _prune(item, node.items, f"{path}[{i}]", unknown)
