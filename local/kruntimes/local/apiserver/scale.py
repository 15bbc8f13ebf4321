"""The scale subresource: one number of an object, as `autoscaling/v1` Scale. Pure."""

from collections.abc import Callable
from typing import Any

from kruntimes.local.apiserver.metadata import invalid_value
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import STALE, conflict, invalid
from kruntimes.local.apiserver.tables import at_path

Json = dict[str, Any]

SCALE = Resource(group="autoscaling", version="v1", plural="scales", singular="scale", kind="Scale", namespaced=True)


def of(resource: Resource, obj: Json) -> Json:
    """The Scale of an object; the paths are the resource's."""
    spec, status, selector = resource.scale
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas: Json = {"replicas": at_path(obj, status) or 0}
    wanted = at_path(obj, spec) or 0
    chosen = at_path(obj, selector) if selector else None
    if isinstance(chosen, dict):
        chosen = ",".join(f"{k}={v}" for k, v in sorted((chosen.get("matchLabels") or {}).items()))
    if chosen:
        replicas["selector"] = chosen
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": wanted} if wanted or resource.custom else {},
        "status": replicas,
    }


def edit(resource: Resource, stored: Json, wanted: Json) -> Callable[[Json], Json]:
    """The change of the object that a written Scale asks for. Raises Conflict and Invalid."""
    name = stored["metadata"]["name"]
    version = (wanted.get("metadata") or {}).get("resourceVersion")
    if version and version != stored["metadata"]["resourceVersion"]:
        raise conflict(resource.about(name), STALE)
    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        path, why = resource.scale[0], "should be a non-negative integer"
        if not resource.custom:
            path, why = path.removeprefix("."), "must be greater than or equal to 0"
        raise invalid(resource.about_kind(name), [invalid_value(path, replicas, why)])

    def change(obj: Json) -> Json:
        *parents, last = resource.scale[0].strip(".").split(".")
        at = obj
        for step in parents:
            at = at.setdefault(step, {})
        at[last] = replicas
        return obj

    return change
