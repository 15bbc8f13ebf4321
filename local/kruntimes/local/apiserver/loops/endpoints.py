"""The EndpointSlices that a Service should have. Pure.

Loopback addresses are left out, since no EndpointSlice may hold one: on one machine, where Pods have nothing else,
slices stay empty, and kruntimes takes the addresses of its Pods from the Pods themselves (design §10).
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Any

Json = dict[str, Any]

MAX_ENDPOINTS = 100
"""Of one slice, as on a real control plane."""
MANAGER = "endpointslice-controller.k8s.io"
SERVICE_NAME, MANAGED_BY = "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"

Slice = tuple[list[Json], list[Json]]
"""Ports and endpoints."""


def wanted(service: Json, pods: Iterable[Json]) -> list[Slice]:
    """Ports and endpoints of each slice. pods: those that the Service selects. There is always one slice."""
    spec = service["spec"]
    by_ports: dict[str, tuple[list[Json], list[Json]]] = {}
    for pod in sorted(pods, key=lambda p: str(p["metadata"]["name"])):
        endpoint = _endpoint(pod, publish=bool(spec.get("publishNotReadyAddresses")))
        if endpoint is None:
            continue
        ports = _ports(spec.get("ports") or (), pod)
        by_ports.setdefault(repr(ports), (ports, []))[1].append(endpoint)
    slices: list[Slice] = []
    for ports, endpoints in by_ports.values():
        slices += [(ports, endpoints[i : i + MAX_ENDPOINTS]) for i in range(0, len(endpoints), MAX_ENDPOINTS)]
    return slices or [([], [])]


def _endpoint(pod: Json, *, publish: bool) -> Json | None:
    status, meta = pod.get("status", {}), pod["metadata"]
    address = status.get("podIP")
    if not address or status.get("phase") in ("Succeeded", "Failed") or _is_local(address):
        return None
    conditions = status.get("conditions") or ()
    serving = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    terminating = "deletionTimestamp" in meta
    made: Json = {
        "addresses": [address],
        "conditions": {
            "ready": publish or (serving and not terminating), "serving": serving, "terminating": terminating,
        },
        "targetRef": {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
    }  # fmt: skip
    if pod["spec"].get("nodeName"):
        made["nodeName"] = pod["spec"]["nodeName"]
    return made


def _is_local(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return True
    return parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified or parsed.is_multicast


def _ports(ports: Iterable[Json], pod: Json) -> list[Json]:
    """The Service's ports as they are on that Pod; a named port that it does not have is left out."""
    made = []
    for port in ports:
        number = _number(port.get("targetPort", port.get("port")), port.get("protocol", "TCP"), pod)
        if number is not None:
            one = {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
            made.append(one | ({"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {}))
    return made


def _number(target: object, protocol: str, pod: Json) -> int | None:
    if isinstance(target, int):
        return target
    containers: Sequence[Json] = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    for container in containers:
        for port in container.get("ports") or ():
            if port.get("name") == target and port.get("protocol", "TCP") == protocol:
                return int(port["containerPort"])
    return None
