"""What the node says of a Pod: `status` from what runs. Pure; times are RFC 3339 texts made by the caller."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kruntimes.local.node.plan import Ending, Kind, Life, Part, Stage
from kruntimes.local.node.pods import NodePod

OWN_CONDITIONS = ("PodScheduled", "Initialized", "ContainersReady", "Ready", "PodReadyToStartContainers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a status is made of.

    moments: per container, when its present stage began. troubles: per container, why it could not start. began: when
    the node took the Pod up. trouble: what keeps the whole Pod from starting.
    """

    pod: NodePod
    parts: Sequence[Part]
    lives: Mapping[str, Life]
    moments: Mapping[str, str]
    troubles: Mapping[str, str]
    pod_ip: str
    host_ip: str
    began: str
    now: str
    prepared: bool
    over: Ending | None
    trouble: str = ""


def document(report: Report) -> dict[str, Any]:
    """Returns the Pod's whole status; conditions that others write are kept as they are."""
    inits = [p for p in report.parts if p.kind is not Kind.MAIN]
    mains = [p for p in report.parts if p.kind is Kind.MAIN]
    initialized = all(_passed(p, report.lives[p.name]) for p in inits)
    serving = not _over(report)
    containers_ready = serving and initialized and all(report.lives[p.name].ready for p in [*mains, *_sidecars(inits)])
    open_gates = all(report.pod.gate_open(gate.condition_type) for gate in report.pod.spec.readiness_gates)
    return {
        "phase": phase(report),
        "podIP": report.pod_ip,
        "podIPs": [{"ip": report.pod_ip}],
        "hostIP": report.host_ip,
        "hostIPs": [{"ip": report.host_ip}],
        "startTime": report.began,
        "conditions": _conditions(
            report,
            {
                "PodScheduled": (True, "", ""),
                "PodReadyToStartContainers": (report.prepared, "VolumesNotReady", report.trouble),
                "Initialized": (initialized, "ContainersNotInitialized", report.trouble),
                "ContainersReady": (containers_ready, "ContainersNotReady", _unready(report)),
                "Ready": (
                    containers_ready and open_gates,
                    "ReadinessGatesNotReady" if containers_ready else "ContainersNotReady",
                    "a readiness gate is not True" if containers_ready else _unready(report),
                ),
            },
        ),
        "initContainerStatuses": [_container(report, p) for p in inits],
        "containerStatuses": [_container(report, p) for p in mains],
    }


def phase(report: Report) -> str:
    """Pod phase: Pending until every init container has passed once and a main container has started."""
    if report.over is Ending.SUCCEEDED and not _any_up(report):
        return "Succeeded"
    if report.over in (Ending.FAILED, Ending.LOST) and not _any_up(report):
        return "Failed"
    mains = [report.lives[p.name] for p in report.parts if p.kind is Kind.MAIN]
    return "Running" if any(life.stage is not Stage.WAITING for life in mains) else "Pending"


def _any_up(report: Report) -> bool:
    return any(life.up for life in report.lives.values())


def _over(report: Report) -> bool:
    """A deleting Pod stays Ready while its containers run (it still answers); a lost or completed one does not."""
    return report.over in (Ending.LOST, Ending.SUCCEEDED, Ending.FAILED)


def _sidecars(inits: Sequence[Part]) -> list[Part]:
    return [p for p in inits if p.kind is Kind.SIDECAR]


def _passed(part: Part, life: Life) -> bool:
    if part.kind is Kind.SIDECAR:
        return life.started or (life.stage in (Stage.STOPPING, Stage.ENDED))
    return life.stage is Stage.ENDED and life.code == 0


def _unready(report: Report) -> str:
    names = [p.name for p in report.parts if p.kind is not Kind.INIT and not report.lives[p.name].ready]
    return f"containers with unready status: [{' '.join(names)}]" if names else ""


def _conditions(report: Report, own: Mapping[str, tuple[bool, str, str]]) -> list[dict[str, Any]]:
    """Own conditions with their transition times, then those of others untouched."""
    before = {c.get("type"): c for c in report.pod.status.conditions}
    written = []
    for kind, (holds, reason, message) in own.items():
        status = "True" if holds else "False"
        old = before.get(kind, {})
        entry: dict[str, Any] = {"type": kind, "status": status, "lastProbeTime": None}
        entry["lastTransitionTime"] = old.get("lastTransitionTime") if old.get("status") == status else report.now
        if not holds:
            entry["reason"] = reason
            if message:
                entry["message"] = message
        written.append(entry)
    return written + [c for c in report.pod.status.conditions if c.get("type") not in OWN_CONDITIONS]


def _container(report: Report, part: Part) -> dict[str, Any]:
    life = report.lives[part.name]
    spec = next(c for c in (*report.pod.spec.init_containers, *report.pod.spec.containers) if c.name == part.name)
    finished = part.kind is Kind.INIT and life.stage is Stage.ENDED and life.code == 0
    entry: dict[str, Any] = {
        "name": part.name,
        "image": spec.image,
        "imageID": "",
        "ready": life.ready or finished,
        "started": life.stage is Stage.RUNNING and life.started,
        "restartCount": life.restarts,
        "state": _state(report, part, life),
    }
    if life.up:
        entry["containerID"] = f"process://{life.pid}"
    return entry


def _state(report: Report, part: Part, life: Life) -> dict[str, Any]:
    moment = report.moments.get(part.name, report.began)
    if life.up:
        return {"running": {"startedAt": moment}}
    trouble = report.troubles.get(part.name, "")
    if life.stage is Stage.ENDED:
        reason = "StartError" if trouble else "Completed" if life.code == 0 else "Error"
        ended = {"exitCode": life.code, "signal": life.signal, "reason": reason, "finishedAt": moment}
        return {"terminated": {**ended, "message": trouble} if trouble else ended}
    if report.trouble:
        return {"waiting": {"reason": "ContainerCreating", "message": report.trouble}}
    return {"waiting": {"reason": "PodInitializing"}}


def settled(pod: NodePod, written: Mapping[str, Any]) -> bool:
    """Whether the API server still shows what the node wrote last; somebody else may have called the Pod unready."""
    shown = {c.get("type"): c.get("status") for c in pod.status.conditions}
    wanted = {c["type"]: c["status"] for c in written["conditions"] if c["type"] in OWN_CONDITIONS}
    return pod.status.phase == written["phase"] and all(shown.get(kind) == wanted[kind] for kind in wanted)
