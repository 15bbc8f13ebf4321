"""ReplicaSets → Pods. Shell over `replicas`."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from kruntimes.local.apiserver.api import Api, private
from kruntimes.local.apiserver.label_selectors import selected
from kruntimes.local.apiserver.loops import replicas
from kruntimes.local.apiserver.loops.notes import note
from kruntimes.local.apiserver.loops.owners import controller_of, reference
from kruntimes.local.apiserver.loops.resource import resource
from kruntimes.local.apiserver.loops.work import follow
from kruntimes.local.apiserver.parts import Json
from kruntimes.local.apiserver.status import StatusError
from kruntimes.local.apiserver.store import Event
from kruntimes.local.apiserver.strategy import DeleteOptions

REPLICA_SETS, PODS = ("apps", "replicasets"), ("", "pods")
COMPONENT = "replicaset-controller"
RETRY_SECONDS = (0.2, 30.0)
"""Until Pods that were refused are tried again: at first, and at most. The reason may go away by itself, as with a
ServiceAccount that is yet to come."""

Key = tuple[str, str]


class ReplicaSets:
    """The loop: keys are (namespace, name)."""

    def __init__(self, api: Api) -> None:
        self._api, self._store = api, api.store
        self._sets, self._pods = resource(api, REPLICA_SETS), resource(api, PODS)
        self._refused: dict[Key, tuple[datetime, float]] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        start = [_key(obj) for obj in self._store.list(REPLICA_SETS)]
        await follow(self._api, keys=self.keys, reconcile=self.reconcile, start=start)

    def keys(self, event: Event) -> Iterable[Key]:
        """The ReplicaSets that a write is about: itself, the owner of a Pod, or who may want a Pod without owner."""
        if event.resource == REPLICA_SETS:
            return [_key(event.object)]
        if event.resource != PODS:
            return ()
        namespace = event.object["metadata"]["namespace"]
        found: dict[Key, None] = {}
        for pod in (event.object, event.previous):
            owner = controller_of(pod) if pod is not None else None
            if owner is not None and owner.get("kind") == "ReplicaSet":
                found[namespace, owner["name"]] = None
        if not found and controller_of(event.object) is None and event.type != "DELETED":
            for one in self._store.list(REPLICA_SETS, namespace):
                if selected(one["spec"]["selector"], event.object):
                    found[_key(one)] = None
        return found

    def reconcile(self, key: Key) -> float | None:
        """Makes or deletes Pods, and writes the status."""
        replica_set = self._store.peek(REPLICA_SETS, *key)
        if replica_set is None:
            self._refused.pop(key, None)
            return None
        pods, now = self._owned(replica_set), self._api.context().now
        plan = replicas.plan(replica_set, pods)
        until, wait = self._refused.get(key, (now, 0.0))
        if plan.create and now < until:
            failure, wait = _failure_of(replica_set), (until - now).total_seconds()
        else:
            failure = self._create(replica_set, plan.create)
            wait = min(max(wait * 2, RETRY_SECONDS[0]), RETRY_SECONDS[1])
            self._refused[key] = (now + timedelta(seconds=wait), wait)
        if failure is None:
            self._refused.pop(key, None)
        self._delete(replica_set, plan.delete)
        if plan.create or plan.delete:
            pods = self._owned(replica_set)
        status, change = replicas.status(replica_set, pods, now=now, failure=_since(failure, replica_set))
        if status != replica_set.get("status"):
            self._api.change(self._sets, *key, lambda obj: {**obj, "status": status}, subresource="status")
        return wait if failure else change

    def _owned(self, replica_set: Json) -> list[Json]:
        """Its Pods; one that fits and has no controller becomes its own, one that no longer fits is let go."""
        meta, selector, found = replica_set["metadata"], replica_set["spec"]["selector"], []
        deleting = "deletionTimestamp" in meta
        for pod in self._store.list(PODS, meta["namespace"]):
            owner, fits = controller_of(pod), selected(selector, pod)
            if owner is not None and owner.get("uid") == meta["uid"]:
                if not fits and not deleting:
                    self._own(pod, [o for o in pod["metadata"]["ownerReferences"] if o["uid"] != meta["uid"]])
                    continue
                found.append(pod)
            elif owner is None and fits and not deleting and replicas.active(pod):
                owners = [*(pod["metadata"].get("ownerReferences") or []), reference(replica_set, controller=True)]
                found.append(self._own(pod, owners))
        return found

    def _own(self, pod: Json, owners: list[Json]) -> Json:
        def edit(obj: Json) -> Json:
            obj["metadata"]["ownerReferences"] = owners
            return obj

        return self._api.change(self._pods, pod["metadata"]["namespace"], pod["metadata"]["name"], edit)

    def _create(self, replica_set: Json, count: int) -> Json | None:
        """Makes that many Pods; the condition that says why not, at the first that is refused."""
        namespace = replica_set["metadata"]["namespace"]
        for _ in range(count):
            pod = private(replicas.pod_of(replica_set, reference(replica_set, controller=True)))
            try:
                made = self._api.create(self._pods, namespace, pod)
            except StatusError as refusal:
                if refusal.causes and refusal.causes[0].reason == "NamespaceTerminating":
                    return None
                said = f"Error creating: {refusal.message}"
                note(self._api, replica_set, kind="Warning", reason="FailedCreate", message=said, component=COMPONENT)
                return self._failure("FailedCreate", refusal.message)
            said = f"Created pod: {made['metadata']['name']}"
            note(self._api, replica_set, kind="Normal", reason="SuccessfulCreate", message=said, component=COMPONENT)
        return None

    def _delete(self, replica_set: Json, names: Iterable[str]) -> None:
        namespace = replica_set["metadata"]["namespace"]
        for name in names:
            pod = self._store.peek(PODS, namespace, name)
            if pod is None:
                continue
            self._api.delete(self._pods, namespace, name, DeleteOptions(uid=pod["metadata"]["uid"]))
            said = f"Deleted pod: {name}"
            note(self._api, replica_set, kind="Normal", reason="SuccessfulDelete", message=said, component=COMPONENT)

    def _failure(self, reason: str, message: str) -> Json:
        now = self._api.context().timestamp
        return {
            "type": "ReplicaFailure", "status": "True", "lastTransitionTime": now, "reason": reason, "message": message,
        }  # fmt: skip


def _key(obj: Json) -> Key:
    return (obj["metadata"]["namespace"], obj["metadata"]["name"])


def _failure_of(replica_set: Json) -> Json | None:
    conditions = replica_set.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == "ReplicaFailure"), None)


def _since(failure: Json | None, replica_set: Json) -> Json | None:
    """The condition with the time since when it holds."""
    held = _failure_of(replica_set)
    if failure is None or held is None or held.get("reason") != failure["reason"]:
        return failure
    return {**failure, "lastTransitionTime": held["lastTransitionTime"]}
