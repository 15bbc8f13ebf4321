"""Services: an address of their own that never changes. Pure. Nothing routes to it in a local control plane."""

import ipaddress
from typing import Any

from kruntimes.local.apiserver.metadata import invalid_value, label_faults, not_supported, quoted, required
from kruntimes.local.apiserver.status import Cause, internal
from kruntimes.local.apiserver.strategy import Context, Strategy, take

Json = dict[str, Any]

NETWORK = "10.96"
"""/16, as kubeadm and kind have it."""
FIRST = f"{NETWORK}.0.1"
"""The API server's own Service gets the first address."""
FIRST_NODE_PORT, LAST_NODE_PORT = 30000, 32767
ADDRESSES = 0xFFFE
"""That Services can have: all of the network but the first and the last."""
SERVICES = ("", "services")
_TYPES = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
_PROTOCOLS = ["SCTP", "TCP", "UDP"]


class Services(Strategy):
    """The fields that allocate are kept from update to update where a writer leaves them out."""

    names = "label"
    answers_with_object = True
    made_by_put = True

    def default(self, obj: Json) -> list[str]:
        """An inner address, TCP, no affinity."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or []:
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] in ("NodePort", "LoadBalancer"):
            spec.setdefault("externalTrafficPolicy", "Cluster")
            if spec["type"] == "LoadBalancer":
                spec.setdefault("allocateLoadBalancerNodePorts", True)
        return []

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """Gives it an address."""
        obj["status"] = {"loadBalancer": {}}
        self._allocate(obj, ctx)

    def _allocate(self, obj: Json, ctx: Context) -> None:
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        held = ctx.store.list(SERVICES)
        if not spec.get("clusterIP"):
            spec["clusterIP"] = (spec.get("clusterIPs") or [""])[0] or _free(_addresses(held), ctx)
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if spec["type"] in ("NodePort", "LoadBalancer"):
            taken = {p.get("nodePort") for s in held for p in s["spec"].get("ports") or []}
            for port in spec.get("ports") or []:
                if not port.get("nodePort"):
                    port["nodePort"] = next(
                        (n for n in range(FIRST_NODE_PORT, LAST_NODE_PORT + 1) if n not in taken), None
                    )
                    if port["nodePort"] is None:
                        raise internal("failed to allocate a nodePort: range is full")
                    taken.add(port["nodePort"])

    def _address_faults(self, obj: Json, ctx: Context) -> list[Cause]:
        """Faults of an address that a new Service asks for."""
        spec, meta = obj["spec"], obj["metadata"]
        address = spec.get("clusterIP")
        if address in (None, "", "None") or spec["type"] == "ExternalName":
            return []
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            return [invalid_value("spec.clusterIPs[0]", address, why)]
        others = [
            s for s in ctx.store.list(SERVICES)
            if (s["metadata"]["namespace"], s["metadata"]["name"]) != (meta["namespace"], meta.get("name"))
        ]  # fmt: skip
        why = ""
        if found not in ipaddress.ip_network(f"{NETWORK}.0.0/16"):
            why = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {NETWORK}.0.0/16"
        elif address in _addresses(others):
            why = "provided IP is already allocated"
        said = f"failed to allocate IP {address}: {why}"
        return [invalid_value("spec.clusterIPs", [address], said)] if why else []

    def prepare_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> None:
        """Keeps the address."""
        super().prepare_update(obj, old, ctx, subresource)
        if subresource or obj["spec"]["type"] == "ExternalName":
            return
        for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not obj["spec"].get(key):
                take(obj["spec"], old["spec"], key)
        self._allocate(obj, ctx)

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Faults of the spec."""
        spec = obj["spec"]
        causes = self._address_faults(obj, ctx)
        if spec["type"] not in _TYPES:
            causes.append(not_supported("spec.type", spec["type"], _TYPES))
        ports = spec.get("ports") or []
        if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
            causes.append(required("spec.ports"))
        causes += label_faults(spec.get("selector") or {}, "spec.selector")
        seen: set[str] = set()
        for i, port in enumerate(ports):
            at, name = f"spec.ports[{i}]", port.get("name", "")
            if len(ports) > 1 and not name:
                causes.append(required(f"{at}.name"))
            if name and name in seen:
                causes.append(Cause(f"{at}.name", "FieldValueDuplicate", f"Duplicate value: {quoted(name)}"))
            seen.add(name)
            number = port.get("port", 0)
            if not isinstance(number, int) or not 0 < number < 65536:
                causes.append(invalid_value(f"{at}.port", number, "must be between 1 and 65535, inclusive"))
            if port["protocol"] not in _PROTOCOLS:
                causes.append(not_supported(f"{at}.protocol", port["protocol"], _PROTOCOLS))
        return causes

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """The address stays as long as there is one."""
        if subresource:
            return []
        causes = self.validate(obj, ctx)
        new, held = obj["spec"], old["spec"]
        if held.get("clusterIP") and new["type"] != "ExternalName" and new.get("clusterIP") != held["clusterIP"]:
            why = "may not change once set"
            causes.append(invalid_value("spec.clusterIPs[0]", [new.get("clusterIP")], why))
        return causes


def _addresses(services: list[Json]) -> set[str]:
    return {s["spec"]["clusterIP"] for s in services if s["spec"].get("clusterIP") not in (None, "", "None")}


def _free(taken: set[Any], ctx: Context) -> str:
    """An address that no Service has, from a drawn one on; the first of all is the API server's. Raises InternalError
    where there is none."""
    if not taken:
        return FIRST
    drawn = int(ctx.uid().replace("-", "")[:8], 16)
    for i in range(ADDRESSES):
        number = (drawn + i) % ADDRESSES + 1
        address = f"{NETWORK}.{number >> 8}.{number & 0xFF}"
        if address not in taken:
            return address
    raise internal("failed to allocate a serviceIP: range is full")
