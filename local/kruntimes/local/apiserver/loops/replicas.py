"""What a ReplicaSet owes: which Pods to make and to delete, and what its status says. Pure.

Which Pods go first is what Kubernetes promises: unassigned, pending and unready ones, then by their deletion cost, so
that the operator can protect those that serve (design §4).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Json = dict[str, Any]

BURST = 500
"""Pods made or deleted at one go; the rest follows when these are there."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_LONG_AGO = "0000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """create: how many Pods. delete: names, first to go first."""

    create: int = 0
    delete: tuple[str, ...] = ()


def active(pod: Json) -> bool:
    """Whether it counts as a replica."""
    finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not finished and "deletionTimestamp" not in pod["metadata"]


def plan(replica_set: Json, pods: Sequence[Json]) -> Plan:
    """What is to be done. pods: all that the ReplicaSet owns."""
    if "deletionTimestamp" in replica_set["metadata"]:
        return Plan()
    replicas = [pod for pod in pods if active(pod)]
    lacking = replica_set["spec"]["replicas"] - len(replicas)
    if lacking >= 0:
        return Plan(create=min(lacking, BURST))
    crowd = Counter(pod["spec"].get("nodeName", "") for pod in replicas)
    ranked = sorted(replicas, key=lambda pod: _rank(pod, crowd))
    return Plan(delete=tuple(pod["metadata"]["name"] for pod in ranked[: min(-lacking, BURST)]))


def condition(pod: Json, kind: str) -> Json | None:
    """A condition of a Pod's status."""
    return next((c for c in pod.get("status", {}).get("conditions") or () if c.get("type") == kind), None)


def ready_since(pod: Json) -> str | None:
    """When it became Ready; None while it is not."""
    found = condition(pod, "Ready")
    return (found.get("lastTransitionTime") or _LONG_AGO) if found and found.get("status") == "True" else None


def _rank(pod: Json, crowd: Counter[str]) -> tuple[Any, ...]:
    """Smaller is deleted sooner."""
    meta, status = pod["metadata"], pod.get("status", {})
    node, since = pod["spec"].get("nodeName", ""), ready_since(pod)
    restarts = max((c.get("restartCount", 0) for c in status.get("containerStatuses") or ()), default=0)
    return (
        bool(node),
        _PHASES.get(status.get("phase", ""), 1),
        since is not None,
        cost(pod),
        -crowd[node],
        _Later(since or _LONG_AGO),
        -restarts,
        _Later(meta.get("creationTimestamp") or _LONG_AGO),
        meta["name"],
    )


class _Later(str):
    """A time that sorts before earlier ones."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def cost(pod: Json) -> int:
    """Its deletion cost; what is no number is none."""
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    return int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= 11 else 0


def pod_of(replica_set: Json, reference: Json) -> Json:
    """A new Pod by the template, not yet named. reference: the ReplicaSet as an owner."""
    template = replica_set["spec"]["template"]
    described = template.get("metadata") or {}
    meta: Json = {
        "generateName": f"{replica_set['metadata']['name']}-",
        "ownerReferences": [reference],
        **{key: described[key] for key in ("labels", "annotations", "finalizers") if described.get(key)},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template.get("spec") or {}}


def status(
    replica_set: Json, pods: Iterable[Json], *, now: datetime, failure: Json | None
) -> tuple[Json, float | None]:
    """The status to write, and the seconds until it changes by itself (a Pod becomes available).

    failure: the condition ReplicaFailure, where Pods could not be made or deleted.
    """
    meta, spec = replica_set["metadata"], replica_set["spec"]
    replicas = [pod for pod in pods if active(pod)]
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    labelled = sum(labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in replicas)
    ready = [since for pod in replicas if (since := ready_since(pod)) is not None]
    rest = [left for since in ready if (left := _left(since, spec.get("minReadySeconds", 0), now)) > 0]
    terminating = sum("deletionTimestamp" in p["metadata"] for p in pods if p.get("status", {}).get("phase") not in
                      ("Succeeded", "Failed"))  # fmt: skip
    counts = {
        "fullyLabeledReplicas": labelled,
        "readyReplicas": len(ready),
        "availableReplicas": len(ready) - len(rest),
        "observedGeneration": meta.get("generation", 0),
    }
    made: Json = {"replicas": len(replicas), **{key: count for key, count in counts.items() if count}}
    made["terminatingReplicas"] = terminating
    others = [c for c in replica_set.get("status", {}).get("conditions") or () if c["type"] != "ReplicaFailure"]
    if others or failure:
        made["conditions"] = [*others, *([failure] if failure else [])]
    return made, min(rest, default=None)


def _left(since: str, seconds: int, now: datetime) -> float:
    """Seconds until a Pod that is Ready since then counts as available."""
    if not seconds or since == _LONG_AGO:
        return 0.0
    return (datetime.fromisoformat(since) + timedelta(seconds=seconds) - now).total_seconds()
