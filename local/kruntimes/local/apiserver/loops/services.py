"""Services with a selector → EndpointSlices. Shell over `endpoints`."""

from collections.abc import Iterable

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.loops import endpoints
from kruntimes.local.apiserver.loops.endpoints import MANAGED_BY, MANAGER, SERVICE_NAME, Slice
from kruntimes.local.apiserver.loops.owners import reference
from kruntimes.local.apiserver.loops.resource import resource
from kruntimes.local.apiserver.loops.work import follow
from kruntimes.local.apiserver.parts import Json
from kruntimes.local.apiserver.store import Event

SERVICES, PODS, SLICES = ("", "services"), ("", "pods"), ("discovery.k8s.io", "endpointslices")

Key = tuple[str, str]


class Services:
    """The loop: keys are (namespace, name) of Services."""

    def __init__(self, api: Api) -> None:
        self._api, self._store = api, api.store
        self._slices = resource(api, SLICES)

    async def run(self) -> None:
        """Until it is cancelled."""
        start = [_key(obj) for obj in self._store.list(SERVICES)]
        await follow(self._api, keys=self.keys, reconcile=self.reconcile, start=start)

    def keys(self, event: Event) -> Iterable[Key]:
        """The Services that a write is about."""
        meta = event.object["metadata"]
        if event.resource == SERVICES:
            return [_key(event.object)]
        if event.resource == SLICES:
            owner = (meta.get("labels") or {}).get(SERVICE_NAME)
            return [(meta["namespace"], owner)] if owner else ()
        if event.resource != PODS:
            return ()
        versions = [event.object, *([event.previous] if event.previous is not None else [])]
        services = self._store.list(SERVICES, meta["namespace"])
        return [_key(one) for one in services if any(_selects(one, pod) for pod in versions)]

    def reconcile(self, key: Key) -> float | None:
        """Writes the slices that differ, and removes those that are too many."""
        service = self._store.peek(SERVICES, *key)
        if service is None or "deletionTimestamp" in service["metadata"] or not service["spec"].get("selector"):
            return None
        pods = [pod for pod in self._store.list(PODS, key[0]) if _selects(service, pod)]
        wanted = endpoints.wanted(service, pods)
        held = [one for one in self._store.list(SLICES, key[0]) if _is_ours(one, service)]
        for i, content in enumerate(wanted):
            if i >= len(held):
                self._api.create(self._slices, key[0], _new(service, content))
            elif (held[i].get("ports") or [], held[i].get("endpoints") or []) != content:
                self._fill(held[i], content)
        for surplus in held[len(wanted) :]:
            self._api.delete(self._slices, key[0], surplus["metadata"]["name"])
        return None

    def _fill(self, one: Json, content: Slice) -> None:
        ports, found = content
        meta = one["metadata"]
        self._api.change(
            self._slices, meta["namespace"], meta["name"], lambda obj: {**obj, "ports": ports, "endpoints": found}
        )


def _key(obj: Json) -> Key:
    return (obj["metadata"]["namespace"], obj["metadata"]["name"])


def _selects(service: Json, pod: Json) -> bool:
    selector = service["spec"].get("selector")
    return bool(selector) and selector.items() <= (pod["metadata"].get("labels") or {}).items()


def _is_ours(one: Json, service: Json) -> bool:
    labels = one["metadata"].get("labels") or {}
    return labels.get(SERVICE_NAME) == service["metadata"]["name"] and labels.get(MANAGED_BY) == MANAGER


def _new(service: Json, content: Slice) -> Json:
    name = service["metadata"]["name"]
    labels = {**(service["metadata"].get("labels") or {}), SERVICE_NAME: name, MANAGED_BY: MANAGER}
    meta = {"generateName": f"{name}-", "labels": labels, "ownerReferences": [reference(service, controller=True)]}
    return {"metadata": meta, "addressType": "IPv4", "endpoints": content[1], "ports": content[0]}
