"""What the core looks at in an object or in options before any kind's rules: place, name, preconditions. Pure."""

from collections.abc import Iterable
from typing import Any

from kruntimes.local.apiserver import metadata
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import bad_request, conflict
from kruntimes.local.apiserver.strategy import DeleteOptions

Json = dict[str, Any]

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
PROPAGATION = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


def metadata_of(obj: Json) -> Json:
    """The metadata of a decoded object, made where there is none. Raises BadRequest where it is no object."""
    meta = obj.setdefault("metadata", {})
    if meta is None:
        meta = obj["metadata"] = {}
    if not isinstance(meta, dict):
        raise bad_request("metadata must be an object")
    metadata.tidy(meta)
    return meta


def named(meta: Json, name: str) -> None:
    """The name of the path is the object's."""
    if not meta.get("name"):
        raise bad_request("name must be provided")
    if meta["name"] != name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")


def place(resource: Resource, namespace: str, meta: Json) -> None:
    """The namespace of the path is the object's."""
    if not resource.namespaced:
        if meta.pop("namespace", ""):
            raise bad_request("namespace is not allowed on this type")
        return
    if meta.setdefault("namespace", namespace) not in (namespace, ""):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    meta["namespace"] = namespace


def unconvertible(resource: Resource, meta: Json, why: str) -> str:
    """What is said of an applied object that passes the schema and is none of its kind for all that."""
    kind = f"{resource.api_version}, Kind={resource.kind}"
    place = f"{meta.get('namespace', '')}/{meta.get('name', '')}; {kind}"
    converted = f"unable to convert unstructured object to {kind}: {why}"
    return f"failed to convert new object ({place}) to proper version: {converted}"


def preconditions(resource: Resource, stored: Json, options: DeleteOptions) -> None:
    meta = stored["metadata"]
    if options.uid is not None and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource.about_kind(meta["name"]), why)
    if options.resource_version is not None and options.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise conflict(resource.about_kind(meta["name"]), why)


def finalizers(held: Iterable[str], options: DeleteOptions) -> list[str]:
    """The finalizers of an object whose deletion is asked for with a propagation policy."""
    kept = list(held)
    if options.propagation is None:
        return kept
    wanted = PROPAGATION.get(options.propagation)
    kept = [f for f in kept if f not in (FOREGROUND, ORPHAN) or f == wanted]
    if wanted is not None and wanted not in kept:
        kept.append(wanted)
    return kept
