"""Tables and metadata-only forms of objects: what `kubectl get` and metadata watchers ask for. Pure.

`Accept: application/json;as=Table;g=meta.k8s.io;v=v1` asks for a Table of one row for each object, with the columns of
the resource; `as=PartialObjectMetadata` (or `…List`) for objects without spec and status.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kruntimes.local.apiserver.kinds.rows import ROWS, Rows
from kruntimes.local.apiserver.resources import Column, Resource
from kruntimes.local.apiserver.times import age

Json = dict[str, Any]

META = "meta.k8s.io"


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which an answer is wanted. kind: empty for the object itself, `Table`, or `PartialObjectMetadata`.
    listed: a metadata form was asked for as a list. yaml: as YAML, which only whole objects are."""

    kind: str = ""
    listed: bool = False
    yaml: bool = False


def wanted(accept: str) -> Form | None:
    """Reads an Accept header; None where nothing in it can be answered.

    The first understood entry of the highest `q` wins.
    """
    if not accept.strip():
        return Form()
    for media, values in _by_preference(accept):
        kind = values.get("as", "")
        if not kind and media in ("application/json", "*/*"):
            return Form()
        if not kind and media == "application/yaml":
            return Form(yaml=True)
        if media != "application/json" or values.get("g") != META or values.get("v") != "v1":
            continue
        if kind in ("Table", "PartialObjectMetadata"):
            return Form(kind)
        if kind == "PartialObjectMetadataList":
            return Form("PartialObjectMetadata", listed=True)
    return None


def _by_preference(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Media types with their parameters, the most wanted first."""
    found = []
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        found.append((media, dict(p.split("=", 1) for p in parameters if "=" in p)))
    return sorted(found, key=lambda each: -_quality(each[1].get("q", "1")))


def _quality(text: str) -> float:
    return float(text) if re.fullmatch(r"[01](\.[0-9]{0,3})?", text) else 0.0


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


_NAME = Column("Name", "string", "", "Name must be unique within a namespace.")
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
    shown = ROWS.get(resource.key) or _custom(resource.columns or (_AGE,))
    rows: list[Json] = []
    for item in items:
        row: Json = {"cells": shown.cells(item, now)}
        if include == "Metadata":
            row["object"] = partial(item)
        elif include == "Object":
            row["object"] = item
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": f"{META}/v1",
        "metadata": meta,
        "columnDefinitions": [_definition(column) for column in shown.columns] if columns else None,
        "rows": rows,
    }


def empty_row(resource: Resource) -> list[None]:
    """The cells of a row that only carries an object: a bookmark's."""
    shown = ROWS.get(resource.key) or _custom(resource.columns or (_AGE,))
    return [None] * len(shown.columns)


def _custom(columns: tuple[Column, ...]) -> Rows:
    """Rows by the printer columns of a definition."""

    def cells(obj: Json, now: datetime) -> list[Any]:
        return [obj["metadata"].get("name", ""), *(_cell(obj, column, now) for column in columns)]

    return Rows((_NAME, *columns), cells)


def _definition(column: Column) -> Json:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" and not column.path else "",
        "description": column.description,
        "priority": column.priority,
    }
