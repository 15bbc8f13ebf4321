"""How a Pod's many states become one word and two numbers in a row. Pure; the words are those of `kubectl get pods`."""

from datetime import datetime
from typing import Any

from kruntimes.local.apiserver.times import age

Json = dict[str, Any]

NONE = "<none>"


def pod_cells(pod: Json, now: datetime) -> list[Any]:
    """Name, Ready, Status, Restarts, Age, and for wide output IP, Node, Nominated Node, Readiness Gates."""
    spec, status, meta = pod["spec"], pod.get("status", {}), pod["metadata"]
    sidecars = {c["name"] for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"}
    initial = status.get("initContainerStatuses") or []
    main = status.get("containerStatuses") or []
    counted = [*(c for c in initial if c["name"] in sidecars), *main]
    word, initializing = _initial_word(spec, initial, sidecars)
    if not initializing:
        word = _main_word(main) or status.get("reason") or status.get("phase") or "Unknown"
    if "deletionTimestamp" in meta and status.get("reason") != "NodeLost":
        word = "Terminating"
    gates = [gate["conditionType"] for gate in spec.get("readinessGates") or []]
    fulfilled = {c["type"] for c in status.get("conditions") or [] if c["status"] == "True"}
    restarted = initial if initializing else counted
    return [
        meta.get("name", ""),
        f"{sum(1 for c in counted if _is_up(c))}/{len(spec.get('containers') or []) + len(sidecars)}",
        word,
        _restarts(restarted, now),
        age(meta.get("creationTimestamp", ""), now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{sum(1 for g in gates if g in fulfilled)}/{len(gates)}" if gates else NONE,
    ]


def _is_up(container: Json) -> bool:
    return bool(container.get("ready")) and "running" in (container.get("state") or {})


def _restarts(containers: list[Json], now: datetime) -> str:
    count = sum(c.get("restartCount", 0) for c in containers)
    ended = [((c.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for c in containers]
    latest = max((at for at in ended if at), default=None)
    return f"{count} ({age(latest, now)} ago)" if count and latest else str(count)


def _initial_word(spec: Json, statuses: list[Json], sidecars: set[str]) -> tuple[str, bool]:
    """The word while the Pod initializes, and whether it still does."""
    total = len(spec.get("initContainers") or [])
    for i, container in enumerate(statuses):
        state = container.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and ended.get("exitCode") == 0:
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_end_word(ended)}", True
        reason = (state.get("waiting") or {}).get("reason", "")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}", True
        return f"Init:{i}/{total}", True
    return "", False


def _end_word(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _main_word(statuses: list[Json]) -> str:
    """The reason of the first container that has one; Running where another runs beside one that completed."""
    word, running = "", False
    for container in reversed(statuses):
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            word = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            word = _end_word(state["terminated"])
        elif _is_up(container):
            running = True
    return "Running" if word == "Completed" and running else word
