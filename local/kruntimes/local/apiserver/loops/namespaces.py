"""Namespaces: what each has from its start, and how it is emptied. Shell."""

from collections.abc import Iterable

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.kinds.namespaces import FINALIZER
from kruntimes.local.apiserver.loops.resource import resource
from kruntimes.local.apiserver.loops.work import follow
from kruntimes.local.apiserver.parts import Json
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import StatusError
from kruntimes.local.apiserver.store import Event
from kruntimes.local.apiserver.strategy import DeleteOptions

NAMESPACES, ACCOUNTS, CONFIG_MAPS = ("", "namespaces"), ("", "serviceaccounts"), ("", "configmaps")
PODS = ("", "pods")
DEFAULT_ACCOUNT, ROOT_CA = "default", "kube-root-ca.crt"
_ABOUT_ROOT_CA = "The CA that signs the certificate of the API server, for whoever talks to it from within."


class Furnisher:
    """Gives each Namespace its ServiceAccount `default` and the API server's CA, again when they are deleted.

    ca: PEM.
    """

    def __init__(self, api: Api, *, ca: str) -> None:
        self._api, self._store, self._ca = api, api.store, ca

    async def run(self) -> None:
        """Until it is cancelled."""
        start = [obj["metadata"]["name"] for obj in self._store.list(NAMESPACES)]
        await follow(self._api, keys=self.keys, reconcile=self.reconcile, start=start)

    def keys(self, event: Event) -> Iterable[str]:
        """Namespaces that are new, or that lack something now."""
        meta = event.object["metadata"]
        if event.resource == NAMESPACES and event.type == "ADDED":
            return [meta["name"]]
        lost = event.resource == ACCOUNTS and meta["name"] == DEFAULT_ACCOUNT and event.type == "DELETED"
        changed = event.resource == CONFIG_MAPS and meta["name"] == ROOT_CA and event.type != "ADDED"
        return [meta["namespace"]] if lost or changed else ()

    def reconcile(self, name: str) -> float | None:
        """Brings both where they should be."""
        namespace = self._store.peek(NAMESPACES, "", name)
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            return None
        if self._store.peek(ACCOUNTS, name, DEFAULT_ACCOUNT) is None:
            self._api.create(resource(self._api, ACCOUNTS), name, {"metadata": {"name": DEFAULT_ACCOUNT}})
        maps, held = resource(self._api, CONFIG_MAPS), self._store.peek(CONFIG_MAPS, name, ROOT_CA)
        if held is None:
            about = {"kubernetes.io/description": _ABOUT_ROOT_CA}
            made = {"metadata": {"name": ROOT_CA, "annotations": about}, "data": {"ca.crt": self._ca}}
            self._api.create(maps, name, made)
        elif held.get("data") != {"ca.crt": self._ca}:
            self._api.change(maps, name, ROOT_CA, lambda obj: {**obj, "data": {"ca.crt": self._ca}})
        return None


class Emptier:
    """Deletes everything in a Namespace that is being deleted, says what remains, and lets it go when nothing does."""

    def __init__(self, api: Api) -> None:
        self._api, self._store = api, api.store
        self._namespaces = resource(api, NAMESPACES)

    async def run(self) -> None:
        """Until it is cancelled."""
        start = [obj["metadata"]["name"] for obj in self._store.list(NAMESPACES)]
        await follow(self._api, keys=self.keys, reconcile=self.reconcile, start=start)

    def keys(self, event: Event) -> Iterable[str]:
        """Namespaces that are being deleted, when they or something in them changes."""
        meta = event.object["metadata"]
        name = meta["name"] if event.resource == NAMESPACES else meta.get("namespace", "")
        if not name or event.type == "ADDED":
            return ()
        found = self._store.peek(NAMESPACES, "", name)
        return [name] if found is not None and "deletionTimestamp" in found["metadata"] else ()

    def reconcile(self, name: str) -> float | None:
        """One pass: over the Pods, and once none is left over everything else, which Pods may need until their end."""
        namespace = self._store.peek(NAMESPACES, "", name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return None
        if FINALIZER not in (namespace["spec"].get("finalizers") or ()):
            return None
        left = self._emptied(name, [resource(self._api, PODS)])
        if not left:
            kinds = {r.key: r for r in self._api.resources if r.namespaced and not r.virtual}
            left = self._emptied(name, kinds.values())
        if left:
            self._tell(namespace, left)
        else:
            self._api.change(self._namespaces, "", name, _finalized, subresource="finalize")
        return None

    def _emptied(self, namespace: str, kinds: Iterable[Resource]) -> dict[str, list[Json]]:
        """Deletes everything of some kinds; what is left all the same, by resource."""
        left: dict[str, list[Json]] = {}
        for kind in kinds:
            self._delete_all(kind, namespace)
            remaining = self._store.list(kind.key, namespace)
            if remaining:
                left[kind.about().qualified if kind.group else f"{kind.plural}."] = remaining
        return left

    def _delete_all(self, kind: Resource, namespace: str) -> None:
        for obj in self._store.list(kind.key, namespace):
            meta = obj["metadata"]
            if "deletionTimestamp" in meta:
                continue
            options = DeleteOptions(uid=meta["uid"], propagation="Background")
            try:
                self._api.delete(kind, namespace, meta["name"], options)
            except StatusError:
                continue

    def _tell(self, namespace: Json, left: dict[str, list[Json]]) -> None:
        now = self._api.context().timestamp
        conditions = remaining(left, namespace.get("status", {}).get("conditions") or [], now)
        if conditions != namespace.get("status", {}).get("conditions"):
            status = {**namespace["status"], "conditions": conditions}
            name = namespace["metadata"]["name"]
            self._api.change(self._namespaces, "", name, lambda obj: {**obj, "status": status}, subresource="status")


def _finalized(namespace: Json) -> Json:
    kept = [f for f in namespace["spec"].get("finalizers") or () if f != FINALIZER]
    namespace["spec"]["finalizers"] = kept
    if not kept:
        del namespace["spec"]["finalizers"]
    return namespace


def remaining(left: dict[str, list[Json]], before: list[Json], now: str) -> list[Json]:
    """The conditions of a Namespace in which objects are left, by resource."""
    finalizers: dict[str, int] = {}
    for objects in left.values():
        for obj in objects:
            for finalizer in obj["metadata"].get("finalizers") or ():
                finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
    counts = ", ".join(f"{kind} has {len(objects)} resource instances" for kind, objects in sorted(left.items()))
    held = ", ".join(f"{finalizer} in {count} resource instances" for finalizer, count in sorted(finalizers.items()))
    said = [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered",
         "All resources successfully discovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions",
         "All legacy kube types successfully parsed"),
        ("NamespaceDeletionContentFailure", "False", "ContentDeleted",
         "All content successfully deleted, may be waiting on finalization"),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {counts}"),
        ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain",
         f"Some content in the namespace has finalizers remaining: {held}") if held else
        ("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers",
         "All content-preserving finalizers finished"),
    ]  # fmt: skip
    times = {(c["type"], c["status"]): c["lastTransitionTime"] for c in before}
    return [
        {"type": kind, "status": status, "lastTransitionTime": times.get((kind, status), now), "reason": reason,
         "message": message}
        for kind, status, reason, message in said
    ]  # fmt: skip
