"""What a node that stops reporting means, for itself and for its Pods. Pure.

As on a real control plane: after the grace time its conditions are Unknown and it is tainted; its Pods are not Ready
any more, and those that do not tolerate the taint are deleted when their time is over. A Pod of a node that does not
exist is nobody's to end, so it is removed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Json = dict[str, Any]

GRACE_SECONDS = 40.0
"""Without a sign of life until a node counts as gone: its Lease is renewed four times in it."""
ORPHAN_SECONDS = 40.0
"""A Pod's node may be registered again; so much later the Pod is removed."""
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
SILENT = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
NEVER = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A node after a look at it. taints: all of its spec. wait: seconds until it has to be looked at again."""

    conditions: list[Json]
    taints: list[Json]
    wait: float | None


def look(node: Json, *, seen: datetime, now: datetime) -> View:
    """What the node's conditions and taints should be. seen: its last sign of life."""
    left = (seen + timedelta(seconds=GRACE_SECONDS) - now).total_seconds()
    conditions: list[Json] = list(node.get("status", {}).get("conditions") or ())
    if left <= 0:
        conditions = _unknown(conditions, stamp(now))
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), "False")
    wanted = {"True": None, "Unknown": UNREACHABLE}.get(str(ready), NOT_READY)
    held: list[Json] = node.get("spec", {}).get("taints") or []
    kept = [taint for taint in held if taint.get("key") not in (NOT_READY, UNREACHABLE)]
    if wanted is not None:
        for effect in ("NoSchedule", "NoExecute"):
            same = [t for t in held if t.get("key") == wanted and t.get("effect") == effect and "timeAdded" in t]
            kept.append(same[0] if same else {"key": wanted, "effect": effect, "timeAdded": stamp(now)})
    return View(conditions=conditions, taints=kept, wait=left if left > 0 else None)


def stamp(now: datetime) -> str:
    """`metav1.Time`."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _unknown(conditions: list[Json], now: str) -> list[Json]:
    known = {c["type"]: c for c in conditions}
    others = [c for c in conditions if c["type"] not in CONDITIONS]
    made: list[Json] = []
    for kind in CONDITIONS:
        before = known.get(kind)
        if before is not None and before.get("status") == "Unknown":
            made.append(before)
            continue
        reason, message = SILENT if before else NEVER
        changed = {"type": kind, "status": "Unknown", "lastTransitionTime": now, "reason": reason, "message": message}
        made.append({**(before or {"lastHeartbeatTime": None}), **changed})
    return [*others, *made]


def unready(pod: Json, now: str) -> list[Json] | None:
    """A Pod's conditions with Ready False because its node is silent; None where they say so already."""
    conditions: list[Json] = pod.get("status", {}).get("conditions") or []
    if not any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        return None
    changed = {
        "status": "False", "lastTransitionTime": now, "reason": "NodeNotReady", "message": "Node is not ready",
    }  # fmt: skip
    return [{**c, **changed} if c.get("type") == "Ready" else c for c in conditions]


def evicted_at(pod: Json, taints: Sequence[Json]) -> datetime | None:
    """When the Pod has to go because of its node's taints; None for never."""
    tolerations: list[Json] = pod["spec"].get("tolerations") or []
    times: list[datetime] = []
    for taint in taints:
        if taint.get("effect") != "NoExecute" or "timeAdded" not in taint:
            continue
        since = datetime.fromisoformat(taint["timeAdded"])
        matching = [t for t in tolerations if tolerates(t, taint)]
        if not matching:
            times.append(since)
            continue
        limits = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
        if limits:
            times.append(since + timedelta(seconds=max(min(limits), 0)))
    return min(times, default=None)


def tolerates(toleration: Json, taint: Json) -> bool:
    """Whether one toleration is about that taint."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    return toleration.get("operator") == "Exists" or (
        bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")
    )


def running(pods: Iterable[Json], node: str) -> list[Json]:
    """The Pods of a node that have not ended."""
    return [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == node and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]
