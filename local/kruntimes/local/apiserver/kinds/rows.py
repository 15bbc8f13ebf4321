"""What `kubectl get` prints of the built-in kinds: the columns, and the cells of one object. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kruntimes.local.apiserver.kinds.pod_rows import pod_cells
from kruntimes.local.apiserver.resources import Column
from kruntimes.local.apiserver.times import age

Json = dict[str, Any]
Cells = Callable[[Json, datetime], list[Any]]

NONE = "<none>"
MAX_ENDPOINTS = 3
"""Addresses and ports of a slice that are named one by one."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns (the name's and the age's among them) and the function that fills them."""

    columns: tuple[Column, ...]
    cells: Cells


def _columns(text: str) -> tuple[Column, ...]:
    """Reads `Name Status Cluster_IP+ Data:integer`: + for wide output only, _ for a space."""
    made = []
    for word in text.split():
        name, _, kind = word.partition(":")
        wide = name.endswith("+")
        made.append(Column(name.removesuffix("+").replace("_", " "), kind or "string", "", priority=int(wide)))
    return tuple(made)


def _age(obj: Json, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp", ""), now)


def _labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _joined(values: Iterable[Any]) -> str:
    return ",".join(str(value) for value in values)


def _config_map(obj: Json, now: datetime) -> list[Any]:
    return [len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj, now)]


def _secret(obj: Json, now: datetime) -> list[Any]:
    return [obj.get("type", ""), len(obj.get("data") or {}), _age(obj, now)]


def _service(obj: Json, now: datetime) -> list[Any]:
    spec = obj["spec"]
    ports = []
    for port in spec.get("ports") or []:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port['port']}{node}/{port.get('protocol', 'TCP')}")
    external = _joined(spec.get("externalIPs") or []) or spec.get("externalName") or NONE
    if spec.get("type") == "LoadBalancer" and external == NONE:
        external = "<pending>"
    return [
        spec.get("type", ""), spec.get("clusterIP") or NONE, external, _joined(ports) or NONE, _age(obj, now),
        _labels(spec.get("selector")),
    ]  # fmt: skip


def _namespace(obj: Json, now: datetime) -> list[Any]:
    return [obj.get("status", {}).get("phase", ""), _age(obj, now)]


def _node(obj: Json, now: datetime) -> list[Any]:
    status = obj.get("status", {})
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "Unknown")
    words = [{"True": "Ready", "False": "NotReady"}.get(ready, "Unknown" if "conditions" not in status else "NotReady")]
    if obj.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(k.removeprefix(prefix) for k in obj["metadata"].get("labels") or {} if k.startswith(prefix))
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or []}
    info = status.get("nodeInfo") or {}
    known = ("osImage", "kernelVersion", "containerRuntimeVersion")
    return [
        _joined(words), _joined(roles) or NONE, _age(obj, now), info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE), addresses.get("ExternalIP", NONE),
        *(info.get(key) or "<unknown>" for key in known),
    ]  # fmt: skip


def _event(obj: Json, now: datetime) -> list[Any]:
    about, source = obj.get("involvedObject") or {}, obj.get("source") or {}
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    last = (obj.get("series") or {}).get("lastObservedTime") or obj.get("lastTimestamp") or first
    component = source.get("component") or obj.get("reportingComponent") or ""
    where = f", {source['host']}" if source.get("host") else ""
    return [
        age(last or "", now), obj.get("type", ""), obj.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}", about.get("fieldPath", ""), f"{component}{where}",
        (obj.get("message") or "").strip(), age(first or "", now),
        (obj.get("series") or {}).get("count") or obj.get("count") or 1, obj["metadata"]["name"],
    ]  # fmt: skip


def _replica_set(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    containers = spec["template"].get("spec", {}).get("containers") or []
    return [
        spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0), _age(obj, now),
        _joined(c["name"] for c in containers), _joined(c.get("image", "") for c in containers),
        _labels((spec.get("selector") or {}).get("matchLabels")),
    ]  # fmt: skip


def _lease(obj: Json, now: datetime) -> list[Any]:
    return [obj.get("spec", {}).get("holderIdentity") or "", _age(obj, now)]


def _some(values: list[str]) -> str:
    rest = len(values) - MAX_ENDPOINTS
    return ",".join(values[:MAX_ENDPOINTS]) + (f" + {rest} more..." if rest > 0 else "")


def _endpoint_slice(obj: Json, now: datetime) -> list[Any]:
    ports = [str(p["port"]) for p in obj.get("ports") or [] if p.get("port")]
    addresses = [a for e in obj.get("endpoints") or [] for a in e.get("addresses") or []]
    return [obj.get("addressType", ""), _some(ports) or "<unset>", _some(addresses) or "<unset>", _age(obj, now)]


def _created(obj: Json, now: datetime) -> list[Any]:
    return [obj["metadata"].get("creationTimestamp")]


def _binding(obj: Json, now: datetime) -> list[Any]:
    role, subjects = obj["roleRef"], obj.get("subjects") or []

    def of(kind: str) -> str:
        return ", ".join(s["name"] for s in subjects if s.get("kind") == kind)

    accounts = [s for s in subjects if s.get("kind") == "ServiceAccount"]
    full = ", ".join(f"{s.get('namespace', '')}/{s['name']}" for s in accounts)
    return [f"{role.get('kind')}/{role.get('name')}", _age(obj, now), of("User"), of("Group"), full]


def _signing_request(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    kinds = {c["type"] for c in status.get("conditions") or []}
    words = [kind for kind in ("Approved", "Denied", "Failed") if kind in kinds] or ["Pending"]
    if status.get("certificate"):
        words.append("Issued")
    seconds = spec.get("expirationSeconds")
    lasts = NONE if seconds is None else age("", now, seconds=int(seconds))
    return [_age(obj, now), spec.get("signerName") or NONE, spec.get("username", ""), lasts, _joined(words)]


def _definition(obj: Json, now: datetime) -> list[Any]:
    spec, names = obj["spec"], obj["spec"]["names"]
    versions = [f"{v['name']}{'(storage)' if v.get('storage') else ''}" for v in spec["versions"] if v.get("served")]
    conditions = obj.get("status", {}).get("conditions") or []
    established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
    return [
        spec.get("scope"), _joined(versions), obj["metadata"].get("creationTimestamp"), spec.get("group"),
        names.get("kind"), _joined(names.get("shortNames") or []), established,
    ]  # fmt: skip


def _claim(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return [
        "Terminating" if "deletionTimestamp" in obj["metadata"] else status.get("phase", ""),
        spec.get("volumeName", ""), (status.get("capacity") or {}).get("storage", ""),
        _joined(short.get(m, m) for m in status.get("accessModes") or []), spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", "<unset>"), _age(obj, now), spec.get("volumeMode") or "<unset>",
    ]  # fmt: skip


def _named(cells: Cells) -> Cells:
    """With the name in front, where it stands for nearly all kinds."""
    return lambda obj, now: [obj["metadata"].get("name", ""), *cells(obj, now)]


_RBAC = "rbac.authorization.k8s.io"
_BINDING = Rows(_columns("Name Role Age Users+ Groups+ ServiceAccounts+"), _named(_binding))
_ROLE = Rows(_columns("Name Created_At:date"), _named(_created))
ROWS: Mapping[tuple[str, str], Rows] = {
    ("", "pods"): Rows(
        _columns("Name Ready Status Restarts Age IP+ Node+ Nominated_Node+ Readiness_Gates+"),
        pod_cells,
    ),
    ("", "configmaps"): Rows(_columns("Name Data Age"), _named(_config_map)),
    ("", "secrets"): Rows(_columns("Name Type Data Age"), _named(_secret)),
    ("", "services"): Rows(_columns("Name Type Cluster-IP External-IP Port(s) Age Selector+"), _named(_service)),
    ("", "namespaces"): Rows(_columns("Name Status Age"), _named(_namespace)),
    ("", "nodes"): Rows(
        _columns(
            "Name Status Roles Age Version Internal-IP+ External-IP+ OS-Image+ Kernel-Version+ Container-Runtime+"
        ),
        _named(_node),
    ),
    ("", "events"): Rows(
        _columns("Last_Seen Type Reason Object Subobject+ Source+ Message First_Seen+ Count+:integer Name+"), _event
    ),
    ("", "persistentvolumeclaims"): Rows(
        _columns("Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode+"),
        _named(_claim),
    ),
    ("apps", "replicasets"): Rows(
        _columns("Name Desired:integer Current:integer Ready:integer Age Containers+ Images+ Selector+"),
        _named(_replica_set),
    ),
    ("coordination.k8s.io", "leases"): Rows(_columns("Name Holder Age"), _named(_lease)),
    ("discovery.k8s.io", "endpointslices"): Rows(
        _columns("Name AddressType Ports Endpoints Age"), _named(_endpoint_slice)
    ),
    (_RBAC, "roles"): _ROLE,
    (_RBAC, "clusterroles"): _ROLE,
    (_RBAC, "rolebindings"): _BINDING,
    (_RBAC, "clusterrolebindings"): _BINDING,
    ("certificates.k8s.io", "certificatesigningrequests"): Rows(
        _columns("Name Age SignerName Requestor RequestedDuration Condition"), _named(_signing_request)
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"): Rows(
        _columns("Name Scope Versions Created_At:date Group+ Kind+ ShortNames+ Established+:boolean"),
        _named(_definition),
    ),
}
"""By group and plural; the other kinds show their name and their age."""
