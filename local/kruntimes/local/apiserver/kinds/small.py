"""The kinds with a rule or two: ServiceAccount, Event, Node, Lease, EndpointSlice, PersistentVolumeClaim. Pure."""

import ipaddress
from typing import Any

from kruntimes.local.apiserver.metadata import forbidden_value, invalid_value, not_supported, required
from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.strategy import Context, Strategy

Json = dict[str, Any]


class ServiceAccounts(Strategy):
    """An identity; its tokens are made on request and not kept."""

    answers_with_object = True


class Events(Strategy):
    """A note about an object of the same namespace (of `default` where that object has none)."""

    made_by_put = True

    def default(self, obj: Json) -> list[str]:
        """What Go writes for what is not there."""
        for key, value in (("source", {}), ("firstTimestamp", None), ("lastTimestamp", None), ("eventTime", None),
                           ("reportingComponent", ""), ("reportingInstance", "")):  # fmt: skip
            obj.setdefault(key, value)
        return []

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """The namespaces must agree."""
        about = (obj.get("involvedObject") or {}).get("namespace", "")
        namespace = obj["metadata"]["namespace"]
        if about != namespace and not (not about and namespace in ("default", "kube-system")):
            return [invalid_value("involvedObject.namespace", about, "does not match event.namespace")]
        return []

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """Anything goes: repetitions are counted by writing over."""
        return self.validate(obj, ctx)


class Nodes(Strategy):
    """Its status may come with it, and it is not ready until it has said so."""

    def default(self, obj: Json) -> list[str]:
        """There is always a spec."""
        obj.setdefault("spec", {})
        return []

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """Nothing may be put on it before its first heartbeat."""
        taints = obj["spec"].setdefault("taints", [])
        key = "node.kubernetes.io/not-ready"
        if not any(taint.get("key") == key and taint.get("effect") == "NoSchedule" for taint in taints):
            taints.append({"key": key, "effect": "NoSchedule"})


class Leases(Strategy):
    """Who leads, and until when; written often."""

    made_by_put = True

    def default(self, obj: Json) -> list[str]:
        """There is always a spec."""
        obj.setdefault("spec", {})
        return []

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Durations are positive."""
        spec = obj["spec"]
        causes: list[Cause] = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        return causes


class EndpointSlices(Strategy):
    """Where a Service's Pods are. Labels count as a change of the slice, unlike with other kinds."""

    generation = True
    _types = ("FQDN", "IPv4", "IPv6")

    def default(self, obj: Json) -> list[str]:
        """Lists are never absent."""
        obj.setdefault("endpoints", [])
        obj.setdefault("ports", [])
        for port in obj["ports"] or []:
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")
        return []

    def counts(self, obj: Json, old: Json) -> bool:
        """Labels too."""
        return super().counts(obj, old) or obj["metadata"].get("labels") != old["metadata"].get("labels")

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Addresses are of the type that the slice has, and are no loopback or link-local ones."""
        kind = obj.get("addressType")
        if not kind:
            return [required("addressType")]
        if kind not in self._types:
            return [not_supported("addressType", kind, list(self._types))]
        causes: list[Cause] = []
        for i, endpoint in enumerate(obj["endpoints"] or []):
            if not endpoint.get("addresses"):
                causes.append(required(f"endpoints[{i}].addresses", "must contain at least 1 address"))
            for k, address in enumerate(endpoint.get("addresses") or []):
                causes += _address(address, kind, f"endpoints[{i}].addresses[{k}]")
        return causes

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """The type stays."""
        causes = self.validate(obj, ctx)
        if obj.get("addressType") != old.get("addressType"):
            causes.append(invalid_value("addressType", obj.get("addressType"), "field is immutable"))
        return causes


def _address(address: str, kind: str, at: str) -> list[Cause]:
    if kind == "FQDN":
        return []
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return [invalid_value(at, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    if f"IPv{found.version}" != kind:
        return [invalid_value(at, address, f"must be an {kind} address")]
    if found.is_unspecified:
        return [invalid_value(at, address, f"may not be unspecified ({address})")]
    if found.is_loopback:
        return [invalid_value(at, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")]
    if found.is_link_local:
        return [invalid_value(at, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")]
    return []


class Claims(Strategy):
    """A wish for storage; a local control plane has nobody who grants it."""

    answers_with_object = True
    _modes = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")

    def default(self, obj: Json) -> list[str]:
        """A file system."""
        obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        return []

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """It waits."""
        obj["status"] = {"phase": "Pending"}

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Modes and size are asked for."""
        spec = obj["spec"]
        modes = spec.get("accessModes") or []
        causes = [] if modes else [required("spec.accessModes", "at least 1 access mode is required")]
        causes += [not_supported("spec.accessModes", m, list(self._modes)) for m in modes if m not in self._modes]
        if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
            causes.append(required("spec.resources[storage]"))
        return causes

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """Nothing but the size changes."""
        if subresource:
            return []
        causes = self.validate(obj, ctx)
        if {**obj["spec"], "resources": None} != {**old["spec"], "resources": None}:
            why = (
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound "
                "claims"
            )
            causes.append(forbidden_value("spec", why))
        return causes
