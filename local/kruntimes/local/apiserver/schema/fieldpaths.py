"""The `fieldPath` of a rule: a path below its place, such as `.spec.size` or `['spec']['a.b']`. Pure."""

import re

from kruntimes.local.apiserver.schema.structural import Node

_STEP = re.compile(r"\.(?P<plain>[^.\[\]']+)|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def normalized(path: str, node: Node) -> str | None:
    """The path as faults are told: members with a dot, keys of a map in brackets; None where there is no such field."""
    said, at = "", 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        at = step.end()
        name = step["plain"] if step["plain"] is not None else re.sub(r"\\(.)", _unescaped, step["quoted"])
        below = node.properties.get(name)
        if below is not None:
            said += f".{name}"
        elif not node.properties and isinstance(node.additional, Node):
            below = node.additional
            said += f"[{name}]"
        else:
            return None
        node = below
    return said


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[0])
