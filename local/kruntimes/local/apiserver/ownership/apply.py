"""Who owns which field of an object: what each write takes over, and server-side apply. Pure.

Rules as of the API server: an applier owns what it names and no one else changes it unasked; who writes otherwise owns
what it changed; what an applier names no more goes, unless someone else owns it.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kruntimes.local.apiserver.ownership import managers as entries
from kruntimes.local.apiserver.ownership.fields import Fields, of_value, with_parents
from kruntimes.local.apiserver.ownership.managers import APPLY, UPDATE, Manager, Managers
from kruntimes.local.apiserver.ownership.merging import Difference, Unfit, check, difference, merge, removed
from kruntimes.local.apiserver.ownership.places import Place
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.schema.structural import ABSENT
from kruntimes.local.apiserver.status import StatusError, bad_request
from kruntimes.local.apiserver.values import same

Json = dict[str, Any]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NEVER_OWNED = frozenset({
    ("f:apiVersion",), ("f:kind",), ("f:metadata",),
    *(("f:metadata", f"f:{name}") for name in (
        "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
        "resourceVersion",
    )),
})  # fmt: skip


class FieldOwnership:
    """As `parts.Ownership`. place: tells what the fields of a resource are."""

    def __init__(self, place: Callable[[Resource], Place]) -> None:
        self._place = place

    def written(
        self, resource: Resource, new: Json, old: Json | None, *, manager: str, subresource: str, timestamp: str
    ) -> Json:
        """After a create, an update or a patch: the writer owns what it changed, and what it brought."""
        given = new["metadata"].pop("managedFields", None)
        managers = _held(given, old, subresource)
        if managers or old is None:
            me = Manager(
                name=manager or "unknown", operation=UPDATE, version=resource.api_version, subresource=subresource,
                time=timestamp,
            )  # fmt: skip
            before = without_managers(old) if old is not None else {}
            changes = _visible(difference(before, new, self._place(resource)), resource, subresource)
            managers = entries.capped(_taken(managers, me, changes))
        return _with(new, managers)

    def applied(
        self,
        resource: Resource,
        patch: Json,
        old: Json | None,
        *,
        manager: str,
        force: bool,
        subresource: str,
        timestamp: str,
    ) -> Json:
        """Server-side apply. Raises Conflict, BadRequest, and 500 for what does not fit the schema."""
        _for(resource, patch)
        place = self._place(resource)
        try:
            check(patch, place)
        except Unfit as bad:
            raise StatusError(
                500, "", f"failed to create typed patch object ({_named(resource, patch)}): {bad}"
            ) from bad
        live: Json = without_managers(old) if old is not None else _blank(resource, patch)
        managers = _held(None, old, subresource)
        if old is not None and not managers:
            first = Manager(
                name=entries.BEFORE_APPLY, operation=UPDATE, version=resource.api_version, time=timestamp,
            )  # fmt: skip
            managers = _taken({}, first, _visible(difference({}, live, place), resource, ""))
        me = Manager(
            name=manager, operation=APPLY, version=resource.api_version, subresource=subresource, time=timestamp,
        )  # fmt: skip
        config = _own_part(patch, resource, subresource)
        before = managers.get(me.key)
        me = replace(me, fields=of_value(config, place))
        merged = merge(live, config, place)
        merged = _pruned(merged, place, managers | {me.key: me}, before)
        changes = _visible(difference(live, merged, place), resource, subresource)
        conflicts = _conflicts(managers, me, changes)
        if conflicts and not force and not (manager == "kubectl" and _allowed(conflicts, live, place)):
            raise entries.conflict(conflicts)
        held = _without(managers, me, changes)
        me = replace(me, fields=me.fields - _NEVER_OWNED)
        if before is not None and same(live, merged):
            me = replace(me, time=before.time)
        held[me.key] = me
        if manager == "kubectl":
            _refresh_last_applied(merged, patch)
        if old is None:
            merged["metadata"].pop("resourceVersion", None)
        return _with(merged, held)


# ---------------------------------------------------------------- managers before and after


def without_managers(obj: Json) -> Json:
    """The object without its managedFields; the rest is shared."""
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def _with(obj: Json, managers: Managers) -> Json:
    written = entries.write(managers)
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": {**meta, "managedFields": written} if written else meta}


def _held(given: Any, old: Json | None, subresource: str) -> Managers:
    """Who owns fields before this write: a write of the whole object may bring that along."""
    if not subresource and given is not None:
        if entries.resets(given):
            return {}
        try:
            found = entries.read(given)
        except ValueError:
            found = {}
        if found:
            return found
    if old is None:
        return {}
    try:
        return entries.read(old["metadata"].get("managedFields"))
    except ValueError:
        return {}


def _visible(changes: Difference, resource: Resource, subresource: str) -> Difference:
    """The changes that this door lets through: the status has its own."""
    if subresource == "status":
        return changes.within(only="status") if resource.custom else changes.within(but="spec")
    return changes.within(but="status") if "status" in resource.subresources else changes


def _own_part(patch: Json, resource: Resource, subresource: str) -> Json:
    """What of a configuration counts at this door."""
    if subresource == "status":
        return {key: value for key, value in patch.items() if key in ("apiVersion", "kind", "metadata", "status")}
    if "status" in resource.subresources:
        return {key: value for key, value in patch.items() if key != "status"}
    return patch


def _conflicts(managers: Managers, me: Manager, changes: Difference) -> list[Manager]:
    """The others, each with the fields that it owns and that change."""
    touched = changes.modified | changes.added
    found = (replace(m, fields=m.fields & touched) for key, m in managers.items() if key != me.key)
    return [manager for manager in found if manager.fields]


def _without(managers: Managers, me: Manager, changes: Difference) -> Managers:
    """The others without what changed."""
    gone = changes.modified | changes.added | changes.removed
    left = {key: replace(m, fields=m.fields - gone) for key, m in managers.items() if key != me.key}
    return {key: manager for key, manager in left.items() if manager.fields}


def _taken(managers: Managers, me: Manager, changes: Difference) -> Managers:
    """After a write that did not apply: the writer takes over what changed, without asking."""
    mine = (changes.modified | changes.added) - _NEVER_OWNED
    held = {
        key: manager
        for key, m in managers.items()
        if (manager := replace(m, fields=m.fields - changes.removed - _foreign(key, me, changes))).fields
    }
    if not mine:
        return held
    before = managers.get(me.key)
    earlier = (before.fields - changes.removed) if before is not None else frozenset()
    return {**held, me.key: replace(me, fields=earlier | mine)}


def _foreign(key: tuple[str, str, str, str], me: Manager, changes: Difference) -> Fields:
    return frozenset() if key == me.key else changes.modified | changes.added


# ---------------------------------------------------------------- fields that are given up


def _pruned(merged: Json, place: Place, managers: Managers, before: Manager | None) -> Json:
    """Without what the applier named before and names no more, unless someone owns it."""
    if before is None or not before.fields:
        return merged
    last = with_parents(before.fields, place)
    owned = with_parents(frozenset[tuple[str, ...]]().union(*(m.fields for m in managers.values())), place)
    there = with_parents(of_value(merged, place), place)
    without = _fields(removed(merged, last, place), place)
    without = _fields(removed(merged, there - (without | owned), place), place)
    found: Json = removed(merged, (there - without) & last, place)
    return found


def _fields(value: Any, place: Place) -> Fields:
    return with_parents(of_value({} if value is ABSENT else value, place), place)


# ---------------------------------------------------------------- the rest


def _for(resource: Resource, patch: Json) -> None:
    version, kind = patch.get("apiVersion"), patch.get("kind")
    if not kind or not version:
        raise bad_request("Object 'Kind' is missing" if not kind else "Object 'apiVersion' is missing")
    if (version, kind) != (resource.api_version, resource.kind):
        raise bad_request(f"invalid object type: {version}, Kind={kind}")
    if patch["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")


def _named(resource: Resource, patch: Json) -> str:
    meta = patch["metadata"]
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}; {resource.api_version}, Kind={resource.kind}"


def _blank(resource: Resource, patch: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}}


def _allowed(conflicts: list[Manager], live: Json, place: Place) -> bool:
    """kubectl may take over what its own client-side apply wrote, and nobody has changed since."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        last = json.loads(text or "")
        check(last, place)
    except (ValueError, Unfit):
        return False
    changes = difference(last, live, place)
    mine = of_value(last, place) - changes.modified - changes.added - changes.removed
    return all(manager.fields <= mine for manager in conflicts)


def _refresh_last_applied(merged: Json, patch: Json) -> None:
    annotations = merged["metadata"].get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    meta = dict(patch["metadata"])
    if "annotations" in meta:
        meta["annotations"] = {k: v for k, v in meta["annotations"].items() if k != LAST_APPLIED}
    text = json.dumps({**patch, "metadata": meta}, separators=(",", ":"), ensure_ascii=False) + "\n"
    merged["metadata"] = {**merged["metadata"], "annotations": {**annotations, LAST_APPLIED: text}}
