"""The garbage collector. Shell over `garbage`."""

from collections.abc import Iterable

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.checks import FOREGROUND, ORPHAN
from kruntimes.local.apiserver.loops import garbage
from kruntimes.local.apiserver.loops.garbage import Delete, Disown, Owner
from kruntimes.local.apiserver.loops.owners import owners_of
from kruntimes.local.apiserver.loops.work import follow
from kruntimes.local.apiserver.parts import Json
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.store import Event
from kruntimes.local.apiserver.strategy import DeleteOptions

Key = tuple[tuple[str, str], str, str]
"""Group and plural, namespace, name."""
MAX_GONE = 4096
"""UIDs of owners remembered as gone: their kind may be gone with them, and then nobody could look any more."""


class Collector:
    """The loop, and who owns what by the owner's UID."""

    def __init__(self, api: Api) -> None:
        self._api, self._store = api, api.store
        self._dependents: dict[str, dict[Key, None]] = {}
        self._gone: dict[str, None] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        start: list[Key] = []
        for resource in {r.key: r for r in self._api.resources if not r.virtual}.values():
            for obj in self._store.list(resource.key):
                start += self._noted(_key(resource.key, obj), None, obj)
        await follow(self._api, keys=self.keys, reconcile=self.reconcile, start=start)

    def keys(self, event: Event) -> Iterable[Key]:
        """The objects that a write may decide about."""
        key = _key(event.resource, event.object)
        if event.type != "DELETED":
            return self._noted(key, event.previous, event.object)
        self._noted(key, event.object, None)
        waiting = [self._key_of_owner(owner, key[1]) for owner in owners_of(event.object)]
        uid = event.object["metadata"]["uid"]
        dependents = self._dependents.get(uid, {})
        if dependents:
            self._gone[uid] = None
            if len(self._gone) > MAX_GONE:
                del self._gone[next(iter(self._gone))]
        return [*dependents, *(w for w in waiting if w is not None)]

    def _noted(self, key: Key, before: Json | None, now: Json | None) -> list[Key]:
        """Keeps the index; the key itself where it has to be looked at."""
        held = {owner["uid"] for owner in owners_of(before)} if before else set()
        holds = {owner["uid"] for owner in owners_of(now)} if now else set()
        for uid in held - holds:
            dependents = self._dependents.get(uid, {})
            dependents.pop(key, None)
            if not dependents:
                self._dependents.pop(uid, None)
        for uid in holds - held:
            self._dependents.setdefault(uid, {})[key] = None
        if now is None:
            return []
        looked_at = holds != held or garbage.waits(now, FOREGROUND) or garbage.waits(now, ORPHAN)
        if before is not None and garbage.waits(now, FOREGROUND) and not garbage.waits(before, FOREGROUND):
            return [key, *self._dependents.get(now["metadata"]["uid"], ())]
        return [key] if looked_at else []

    def reconcile(self, key: Key) -> float | None:
        """Deletes, lets go or finishes one object."""
        obj, resource = self._store.peek(*key), self._resource(key[0])
        if obj is None or resource is None:
            return None
        dependents = self._of(obj)
        if garbage.waits(obj, ORPHAN):
            self._orphan(obj, dependents)
            self._release(resource, obj, ORPHAN)
        elif garbage.waits(obj, FOREGROUND):
            if not garbage.blocking(obj, [found for _, found in dependents]):
                self._release(resource, obj, FOREGROUND)
        else:
            self._carry_out(resource, obj, owns=bool(dependents))
        return None

    def _carry_out(self, resource: Resource, obj: Json, *, owns: bool) -> None:
        meta = obj["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        match garbage.fate(obj, lambda owner: self._look(owner, namespace), owns=owns):
            case Delete(propagation):
                options = DeleteOptions(uid=meta["uid"], propagation=propagation)
                self._api.delete(resource, namespace, name, options)
            case Disown(owners):
                self._own(resource, obj, list(owners))

    def _own(self, resource: Resource, obj: Json, owners: list[Json]) -> None:
        def edit(new: Json) -> Json:
            new["metadata"]["ownerReferences"] = owners
            if not owners:
                del new["metadata"]["ownerReferences"]
            return new

        self._api.change(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], edit)

    def _orphan(self, owner: Json, dependents: list[tuple[Resource, Json]]) -> None:
        uid = owner["metadata"]["uid"]
        for resource, obj in dependents:
            self._own(resource, obj, [one for one in owners_of(obj) if one["uid"] != uid])

    def _release(self, resource: Resource, obj: Json, finalizer: str) -> None:
        def edit(new: Json) -> Json:
            new["metadata"]["finalizers"] = [f for f in new["metadata"].get("finalizers") or () if f != finalizer]
            return new

        self._api.change(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], edit)

    def _of(self, owner: Json) -> list[tuple[Resource, Json]]:
        """What it owns."""
        found = []
        for key in self._dependents.get(owner["metadata"]["uid"], ()):
            obj, resource = self._store.peek(*key), self._resource(key[0])
            if obj is not None and resource is not None:
                found.append((resource, obj))
        return found

    def _resource(self, key: tuple[str, str]) -> Resource | None:
        return next((r for r in self._api.resources if r.key == key), None)

    def _key_of_owner(self, owner: Json, namespace: str) -> Key | None:
        kind = self._api.resources.of_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
        return (kind.key, namespace if kind.namespaced else "", owner["name"]) if kind is not None else None

    def _look(self, owner: Json, namespace: str) -> Owner:
        if owner["uid"] in self._gone:
            return Owner.GONE
        key = self._key_of_owner(owner, namespace)
        if key is None or (key[1] == "" and namespace == "" and self._is_namespaced(key)):
            return Owner.UNKNOWN
        found = self._store.peek(*key)
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            return Owner.GONE
        return Owner.GOING if garbage.waits(found, FOREGROUND) else Owner.THERE

    def _is_namespaced(self, key: Key) -> bool:
        resource = self._resource(key[0])
        return resource is not None and resource.namespaced


def _key(resource: tuple[str, str], obj: Json) -> Key:
    return (resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
