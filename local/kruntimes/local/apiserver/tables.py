"""Tables and metadata-only forms of objects: what `kubectl get` and metadata watchers ask for. Pure.

`Accept: application/json;as=Table;g=meta.k8s.io;v=v1` asks for a Table of one row for each object, with the columns of
the resource; `as=PartialObjectMetadata` (or `…List`) for objects without spec and status.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kruntimes.local.apiserver.resources import Column, Resource

Json = dict[str, Any]

META = "meta.k8s.io"


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which an answer is wanted. kind: empty for the object itself, `Table`, or `PartialObjectMetadata`."""

    kind: str = ""
    include: str = "Metadata"


def wanted(accept: str) -> Form | None:
    """Reads an Accept header; None where nothing in it can be answered with JSON.

    The first understood entry wins, as clients order them by preference. `includeObject` is the query's, not this.
    """
    if not accept.strip():
        return Form()
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        if media not in ("application/json", "*/*", "application/*"):
            continue
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        kind = values.get("as", "")
        if not kind:
            return Form()
        if values.get("g") != META or values.get("v") != "v1":
            continue
        if kind in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
            return Form(kind.removesuffix("List") if kind.startswith("Partial") else kind)
    return None


def partial(obj: Json) -> Json:
    """The metadata of an object as `PartialObjectMetadata`."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"{META}/v1", "metadata": obj["metadata"]}


def partial_list(items: Iterable[Json], meta: Json) -> Json:
    """A list of them."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"{META}/v1",
        "metadata": meta,
        "items": [partial(item) for item in items],
    }


_NAME = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name must be unique within a namespace.",
    "priority": 0,
}
_AGE = Column("Age", "date", ".metadata.creationTimestamp", "When the object was made.")
_STEP = re.compile(
    r"\.([A-Za-z0-9_-]+|'[^']*')"  # .field
    r"|\[(\d+)\]"  # [0]
    r"|\['([^']+)'\]"  # ['field']
    r"|\[\?\(@\.([A-Za-z0-9_]+)==[\"']([^\"']*)[\"']\)\]"  # [?(@.field=="value")]
)


def at_path(obj: Any, path: str) -> Any:
    """The value at a JSONPath of the simple kind that printer columns use; None where there is none.

    Fields, indexes, `['quoted']` fields and one filter by equality (`[?(@.type=="Ready")]`, its first match) are read.
    """
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return None
        position = step.end()
        name, index, quoted, key, value = step.groups()
        if name is not None or quoted is not None:
            obj = obj.get((name or quoted).strip("'")) if isinstance(obj, Mapping) else None
        elif index is not None:
            obj = obj[int(index)] if isinstance(obj, list) and int(index) < len(obj) else None
        else:
            found = [o for o in obj if isinstance(o, Mapping) and o.get(key) == value] if isinstance(obj, list) else []
            obj = found[0] if found else None
        if obj is None:
            return None
    return obj


def age(created: str, now: datetime) -> str:
    """How long ago that was, as kubectl writes it: `45s`, `3m10s`, `5h`, `12d`."""
    try:
        seconds = int((now - datetime.fromisoformat(created)).total_seconds())
    except (TypeError, ValueError):
        return "<unknown>"
    if seconds < 0:
        return "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        rest = seconds % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    return f"{days}d" if days < 2 * 365 else f"{days // 365}y"


def _cell(obj: Json, column: Column, now: datetime) -> Any:
    value = at_path(obj, column.path)
    if column.type == "date":
        return age(value, now) if isinstance(value, str) else "<unknown>" if column is _AGE else None
    if isinstance(value, list | dict):
        return str(value)
    if column.type == "string" and value is not None and not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def table(resource: Resource, items: Iterable[Json], meta: Json, *, now: datetime, include: str, columns: bool) -> Json:
    """A Table of *items*.

    include: what each row carries beside its cells: `None`, `Metadata` or `Object`. columns: whether the
    definitions stand in it (a watch sends them with its first event alone).
    """
    printed = resource.columns or (_AGE,)
    definitions: list[Json] = [
        _NAME,
        *(
            {"name": c.name, "type": c.type, "format": "", "description": c.description, "priority": c.priority}
            for c in printed
        ),
    ]
    rows: list[Json] = []
    for item in items:
        row: Json = {"cells": [item["metadata"].get("name", ""), *(_cell(item, c, now) for c in printed)]}
        if include == "Metadata":
            row["object"] = partial(item)
        elif include == "Object":
            row["object"] = item
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": f"{META}/v1",
        "metadata": meta,
        "columnDefinitions": definitions if columns else None,
        "rows": rows,
    }
