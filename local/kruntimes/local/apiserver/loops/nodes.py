"""Nodes that report, fall silent and go. Shell over `node_life`."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.loops import node_life
from kruntimes.local.apiserver.loops.resource import resource
from kruntimes.local.apiserver.loops.work import follow
from kruntimes.local.apiserver.parts import Json
from kruntimes.local.apiserver.store import Event
from kruntimes.local.apiserver.strategy import DeleteOptions

NODES, PODS, LEASES = ("", "nodes"), ("", "pods"), ("coordination.k8s.io", "leases")
LEASE_NAMESPACE = "kube-node-lease"


class Nodes:
    """The loop: keys are names of nodes.

    A sign of life is a write of the node's Lease or of its heartbeat, by our own clock: the node's may be wrong.
    """

    def __init__(self, api: Api) -> None:
        self._api, self._store = api, api.store
        self._nodes, self._pods = resource(api, NODES), resource(api, PODS)
        self._seen: dict[str, datetime] = {}
        self._lost: dict[str, dict[str, datetime]] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        start = [obj["metadata"]["name"] for obj in self._store.list(NODES)]
        await follow(self._api, keys=self.keys, reconcile=self.reconcile, start=start)

    def keys(self, event: Event) -> Iterable[str]:
        """Nodes that are new, changed or gone, and those of Pods that got a node."""
        meta = event.object["metadata"]
        if event.resource == LEASES and meta["namespace"] == LEASE_NAMESPACE:
            self._seen[meta["name"]] = self._api.context().now
            return [meta["name"]] if self._silent(meta["name"]) else ()
        if event.resource == NODES:
            if event.type != "DELETED" and _heartbeat(event.object) != _heartbeat(event.previous):
                self._seen[meta["name"]] = self._api.context().now
            return [meta["name"]]
        if event.resource == PODS and event.type != "DELETED":
            node = event.object["spec"].get("nodeName")
            return [node] if node and (node not in self._seen or self._silent(node)) else ()
        return ()

    def _silent(self, name: str) -> bool:
        node = self._store.peek(NODES, "", name)
        return node is not None and bool(node.get("spec", {}).get("taints"))

    def reconcile(self, name: str) -> float | None:
        """Brings a node and its Pods where its silence, or its absence, puts them."""
        node, now = self._store.peek(NODES, "", name), self._api.context().now
        if node is None:
            self._seen.pop(name, None)
            return self._without_node(name, now)
        self._lost.pop(name, None)
        view = node_life.look(node, seen=self._seen.setdefault(name, now), now=now)
        self._write(node, view)
        waits = [view.wait] if view.wait is not None else []
        for pod in node_life.running(self._store.list(PODS), name):
            waits += self._pod(pod, view, now)
        return min(waits, default=None)

    def _write(self, node: Json, view: node_life.View) -> None:
        name = node["metadata"]["name"]
        if view.conditions != (node.get("status", {}).get("conditions") or []):

            def say(obj: Json) -> Json:
                obj.setdefault("status", {})["conditions"] = view.conditions
                return obj

            self._api.change(self._nodes, "", name, say, subresource="status")
        if view.taints != (node.get("spec", {}).get("taints") or []):

            def taint(obj: Json) -> Json:
                obj.setdefault("spec", {})["taints"] = view.taints
                if not view.taints:
                    del obj["spec"]["taints"]
                return obj

            self._api.change(self._nodes, "", name, taint)

    def _pod(self, pod: Json, view: node_life.View, now: datetime) -> list[float]:
        """Carries out what the node's taints mean for one Pod; the seconds until it has to go."""
        meta = pod["metadata"]
        unreachable = any(taint["key"] == node_life.UNREACHABLE for taint in view.taints)
        conditions = node_life.unready(pod, node_life.stamp(now)) if unreachable else None
        if conditions is not None:
            self._api.change(
                self._pods, meta["namespace"], meta["name"],
                lambda obj: {**obj, "status": {**obj["status"], "conditions": conditions}}, subresource="status",
            )  # fmt: skip
        if "deletionTimestamp" in meta:
            return []
        end = node_life.evicted_at(pod, view.taints)
        if end is None:
            return []
        if end > now:
            return [(end - now).total_seconds()]
        self._api.delete(self._pods, meta["namespace"], meta["name"], DeleteOptions(uid=meta["uid"]))
        return []

    def _without_node(self, name: str, now: datetime) -> float | None:
        """Removes the Pods of a node that is not there, each so long after it was first seen without one."""
        pods = [pod for pod in self._store.list(PODS) if pod["spec"].get("nodeName") == name]
        before = self._lost.pop(name, {})
        since = {pod["metadata"]["uid"]: before.get(pod["metadata"]["uid"], now) for pod in pods}
        waits: list[float] = []
        for pod in pods:
            meta = pod["metadata"]
            left = (since[meta["uid"]] + timedelta(seconds=node_life.ORPHAN_SECONDS) - now).total_seconds()
            if left > 0:
                waits.append(left)
                self._lost.setdefault(name, {})[meta["uid"]] = since[meta["uid"]]
                continue
            options = DeleteOptions(uid=meta["uid"], grace_seconds=0)
            self._api.delete(self._pods, meta["namespace"], meta["name"], options)
        return min(waits, default=None)


def _heartbeat(node: Json | None) -> list[object]:
    conditions = (node or {}).get("status", {}).get("conditions") or ()
    return [(c.get("type"), c.get("status"), c.get("lastHeartbeatTime")) for c in conditions]
