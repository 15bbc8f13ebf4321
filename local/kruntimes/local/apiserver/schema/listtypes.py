"""Lists that are sets or maps have no item twice. Pure."""

from typing import Any

from kruntimes.local.apiserver.schema import faults
from kruntimes.local.apiserver.schema.structural import Node
from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.values import compact


def duplicates(value: Any, node: Node, path: str = "") -> list[Cause]:
    """The faults of every such list in *value*."""
    causes: list[Cause] = []
    if isinstance(value, dict):
        for name, member in value.items():
            sub = node.field(name)
            if sub is not None:
                named = name in node.properties
                at = (f"{path}.{name}" if path else name) if named else f"{path}[{name}]"
                causes += duplicates(member, sub, at)
    elif isinstance(value, list):
        if node.list_type == "set":
            causes += _twice(value, value, path)
        elif node.list_type == "map":
            wrong = [i for i, item in enumerate(value) if item is not None and not isinstance(item, dict)]
            if wrong:
                why = "must be an object for an array of list-type map"
                causes.append(faults.invalid(f"{path}[{wrong[0]}]", value[wrong[0]], why))
            else:
                keys = [{k: item[k] for k in node.list_keys if k in item} if item else {} for item in value]
                causes += _twice(keys, keys, path)
        if node.items is not None:
            for i, item in enumerate(value):
                causes += duplicates(item, node.items, f"{path}[{i}]")
    return causes


def _twice(values: list[Any], said: list[Any], path: str) -> list[Cause]:
    """A fault for the second occurrence of a value; a third one is not told of."""
    seen: dict[str, int] = {}
    causes: list[Cause] = []
    for i, value in enumerate(values):
        text = compact(value)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            causes.append(faults.duplicate(f"{path}[{i}]", said[i]))
    return causes
