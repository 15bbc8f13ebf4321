"""metadata.managedFields: who owns which fields, read and written. Pure."""

import json
from dataclasses import dataclass, replace
from typing import Any

from kruntimes.local.apiserver.ownership.fields import Fields, decoded, encoded, shown
from kruntimes.local.apiserver.status import Cause, StatusError

Json = dict[str, Any]

APPLY, UPDATE = "Apply", "Update"
MAX_UPDATERS = 10
"""Managers that wrote without applying; older ones are put together."""
OLDER = "ancient-changes"
BEFORE_APPLY = "before-first-apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """One entry. version: the apiVersion that its fields are of; it does not tell one applier from another."""

    name: str
    operation: str
    version: str
    subresource: str = ""
    fields: Fields = frozenset()
    time: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes it another manager."""
        return (self.name, self.operation, "" if self.operation == APPLY else self.version, self.subresource)

    @property
    def identifier(self) -> str:
        """The key as the API server writes it; conflicts are told in its order."""
        found = {"manager": self.name, "operation": self.operation}
        if self.operation == UPDATE:
            found["apiVersion"] = self.version
        if self.subresource:
            found["subresource"] = self.subresource
        return json.dumps(found, separators=(",", ":"))

    @property
    def described(self) -> str:
        """How a conflict names it."""
        said = json.dumps(self.name, ensure_ascii=False)
        if self.subresource:
            said += f" with subresource {json.dumps(self.subresource)}"
        return said if self.operation == APPLY else f"{said} using {self.version}"


Managers = dict[tuple[str, str, str, str], Manager]


def read(raw: Any) -> Managers:
    """The managers of an object. Raises ValueError for entries that are none."""
    found: Managers = {}
    for entry in raw or []:
        if not isinstance(entry, dict) or entry.get("operation") not in (APPLY, UPDATE) or not entry.get("apiVersion"):
            raise ValueError("operation must be `Apply` or `Update`")
        if entry.get("fieldsType") != "FieldsV1":
            raise ValueError("missing or invalid fieldsType")
        manager = Manager(
            name=entry.get("manager") or "",
            operation=entry["operation"],
            version=entry["apiVersion"],
            subresource=entry.get("subresource") or "",
            fields=decoded(entry.get("fieldsV1") or {}),
            time=entry.get("time") or "",
        )
        found[manager.key] = manager
    return found


def resets(raw: Any) -> bool:
    """Whether a written managedFields asks for all of them to be forgotten."""
    return isinstance(raw, list) and (not raw or raw == [{}])


def write(managers: Managers) -> list[Json]:
    """As metadata.managedFields."""
    return [_entry(manager) for manager in sorted(managers.values(), key=_order) if manager.fields]


def _order(manager: Manager) -> tuple[str, ...]:
    return (manager.operation, manager.time, manager.name, manager.version, manager.subresource)


def _entry(manager: Manager) -> Json:
    entry: Json = {"manager": manager.name, "operation": manager.operation, "apiVersion": manager.version}
    if manager.time:
        entry["time"] = manager.time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": encoded(manager.fields)}
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def capped(managers: Managers) -> Managers:
    """With the oldest of too many updaters put together, by version."""
    updaters = sorted((m for m in managers.values() if m.operation == UPDATE), key=lambda m: (m.time, m.identifier))
    found, many = dict(managers), len(updaters)
    first: dict[str, Manager] = {}
    for manager in updaters:
        if many <= MAX_UPDATERS:
            break
        earlier = first.get(manager.version)
        if earlier is None:
            first[manager.version] = manager
            continue
        del found[manager.key]
        found.pop(earlier.key, None)
        both = replace(earlier, name=OLDER, subresource="", fields=earlier.fields | manager.fields, time=manager.time)
        found[both.key] = first[manager.version] = both
        many -= 1
    return found


def conflict(found: list[Manager]) -> StatusError:
    """The refusal of an apply: each of *found* with the fields that it owns and that would change."""
    ordered = sorted(found, key=lambda manager: manager.identifier)
    told = [(manager, shown(path)) for manager in ordered for path in sorted(manager.fields)]
    causes = [Cause(path, "FieldManagerConflict", f"conflict with {manager.described}") for manager, path in told]
    if len(told) == 1:
        manager, path = told[0]
        message = f"Apply failed with 1 conflict: conflict with {manager.described}: {path}"
    else:
        lines = []
        for manager in ordered:
            lines.append(f"conflicts with {manager.described}:")
            lines += [f"- {path}" for owner, path in told if owner is manager]
        message = f"Apply failed with {len(told)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", message, causes=causes)
