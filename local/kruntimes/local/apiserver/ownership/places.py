"""What each field is to those who own fields: a leaf, a structure, a list of items with keys, a set. Pure.

The answer comes from the schema of a custom resource, and for built-in kinds from their shapes and one table of the
lists and maps that differ from the rule (a list is one leaf, a map or structure is owned member by member).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kruntimes.local.apiserver import shapes
from kruntimes.local.apiserver.schema.structural import ABSENT, Node
from kruntimes.local.apiserver.shapes import Shape
from kruntimes.local.apiserver.values import compact


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """kind: leaf, struct, map, keyed (a list by key), set, or free (whatever the value is).

    fields: of a struct. of: the items of a list, the values of a map, and of a struct what else may stand in it.
    keys: of a keyed list, each with its default or ABSENT. type: what a leaf holds (string, numeric, boolean, any
    scalar), or empty for anything.
    """

    kind: str
    fields: Mapping[str, "Place"] = field(default_factory=dict)
    of: "Place | None" = None
    keys: tuple[tuple[str, Any], ...] = ()
    type: str = ""
    merge_key: str = ""

    def child(self, name: str) -> "Place | None":
        """The place of a member; None where there may be none of that name."""
        return self.fields.get(name, self.of)


LEAF = Place(kind="leaf")
FREE = Place(kind="free")


def seen_as(place: Place, value: Any) -> Place:
    """The place, with what is free decided by the value."""
    if place.kind != "free":
        return place
    return Place(kind="map", of=FREE) if isinstance(value, dict) else LEAF


def element(place: Place, item: Any) -> str | None:
    """What names an item of a keyed list or a set: `k:{"name":"a"}` or `v:"a"`; None for an item without key."""
    if place.kind == "set":
        return f"v:{compact(item)}"
    if not isinstance(item, dict):
        return None
    found = {key: item.get(key, default) for key, default in place.keys}
    found = {key: value for key, value in found.items() if value is not ABSENT}
    return f"k:{compact(found)}" if found else None


# ---------------------------------------------------------------- custom resources


def of_resource(node: Node) -> Place:
    """The place of a whole custom resource."""
    found = _of_node(node)
    fields = {**found.fields, "apiVersion": LEAF, "kind": LEAF, "metadata": metadata()}
    return Place(kind="struct", fields=fields, of=found.of)


def _of_node(node: Node) -> Place:
    if node.type == "array":
        if node.items is None or node.list_type == "atomic":
            return LEAF
        if node.list_type == "set":
            return Place(kind="set", of=_of_node(node.items))
        keys = tuple(
            (key, node.items.properties[key].default if key in node.items.properties else ABSENT)
            for key in node.list_keys
        )
        return Place(kind="keyed", of=_of_node(node.items), keys=keys)
    if node.type == "object" or (node.preserve and not node.types):
        if node.map_type == "atomic":
            return LEAF
        if isinstance(node.additional, Node):
            return Place(kind="map", of=_of_node(node.additional))
        fields = {name: _of_node(sub) for name, sub in node.properties.items()}
        if node.embedded:
            fields |= {"apiVersion": LEAF, "kind": LEAF, "metadata": metadata()}
        if not fields and node.preserve:
            return FREE
        return Place(kind="struct", fields=fields, of=FREE if node.preserve or node.additional is True else None)
    return Place(kind="leaf", type={"integer": "numeric", "number": "numeric"}.get(node.type, node.type))


# ---------------------------------------------------------------- built-in kinds

_CONTAINERS = ("Container", "EphemeralContainer")
_ONE_KEY: dict[str, str] = {
    "ObjectMeta.ownerReferences": "uid",
    "PodSpec.containers": "name",
    "PodSpec.initContainers": "name",
    "PodSpec.ephemeralContainers": "name",
    "PodSpec.volumes": "name",
    "PodSpec.imagePullSecrets": "name",
    "PodSpec.hostAliases": "ip",
    "PodSpec.schedulingGates": "name",
    "PodSpec.resourceClaims": "name",
    **{f"{kind}.env": "name" for kind in _CONTAINERS},
    **{f"{kind}.volumeMounts": "mountPath" for kind in _CONTAINERS},
    **{f"{kind}.volumeDevices": "devicePath" for kind in _CONTAINERS},
    "ResourceRequirements.claims": "name",
    "ServiceAccount.secrets": "name",
    "PodStatus.podIPs": "ip",
    "PodStatus.conditions": "type",
    "NodeStatus.conditions": "type",
    "NodeStatus.addresses": "type",
    "NamespaceStatus.conditions": "type",
    "ReplicaSetStatus.conditions": "type",
    "ServiceStatus.conditions": "type",
    "PersistentVolumeClaimStatus.conditions": "type",
    "CertificateSigningRequestStatus.conditions": "type",
    "DefinitionStatus.conditions": "type",
}
_KEYS: dict[str, tuple[tuple[str, Any], ...]] = {
    **{name: ((key, ABSENT),) for name, key in _ONE_KEY.items()},
    "PodSpec.imagePullSecrets": (("name", ""),),
    **{f"{kind}.ports": (("containerPort", ABSENT), ("protocol", "TCP")) for kind in _CONTAINERS},
    "PodSpec.topologySpreadConstraints": (("topologyKey", ABSENT), ("whenUnsatisfiable", ABSENT)),
    "ServiceSpec.ports": (("port", ABSENT), ("protocol", "TCP")),
}
_SETS = frozenset({"ObjectMeta.finalizers", "NodeSpec.podCIDRs"})
_ATOMIC_MAPS = frozenset({"ServiceSpec.selector", "PodSpec.nodeSelector"})
_ATOMIC_STRUCTS = frozenset({
    "LabelSelector", "ObjectReference", "LocalObjectReference", "ConfigMapKeySelector", "SecretKeySelector",
    "FileKeySelector", "ObjectFieldSelector", "ResourceFieldSelector", "RoleRef", "Subject", "OwnerReference",
    "TypedLocalObjectReference", "NodeSelector", "NodeSelectorTerm",
})  # fmt: skip
_MERGE_KEYS = {**{f"{kind}.ports": "containerPort" for kind in _CONTAINERS}, "ServiceSpec.ports": "port"}
"""By which one key a strategic merge patch tells items apart, where it is not the one above."""
_TYPES = {"s": "string", "t": "string", "i": "numeric", "f": "numeric", "b": "boolean", "q": "any scalar"}


@cache
def built_in(kind: str) -> Place:
    """The place of a whole object of a built-in kind; of a kind without a table only the metadata is known."""
    found = shapes.table().get(kind)
    if found is None:
        return Place(kind="struct", fields={"apiVersion": LEAF, "kind": LEAF, "metadata": metadata()}, of=FREE)
    return _struct(kind)


@cache
def metadata() -> Place:
    """The place of `metadata`."""
    return _struct("ObjectMeta")


@cache
def _struct(name: str) -> Place:
    shape = shapes.table()[name]
    fields = {key: _of_shape(sub, f"{name}.{key}") for key, sub in (shape.fields or {}).items()}
    if name in _ATOMIC_STRUCTS:
        return Place(kind="leaf", fields=fields)
    return Place(kind="struct", fields=fields)


def _of_shape(shape: Shape, at: str) -> Place:
    if shape.kind == "struct":
        return _struct(shape.name.removeprefix("v1."))
    if shape.kind == "map":
        assert shape.of is not None
        of = _of_shape(shape.of, at)
        return Place(kind="leaf" if at in _ATOMIC_MAPS else "map", of=of)
    if shape.kind == "list":
        assert shape.of is not None
        of = _of_shape(shape.of, at)
        keys = _KEYS.get(at, ())
        merge_key = _MERGE_KEYS.get(at, keys[0][0] if keys else "")
        kind = "set" if at in _SETS else "keyed" if keys else "leaf"
        return Place(kind=kind, of=of, keys=keys, merge_key=merge_key)
    return FREE if shape.kind == "a" else Place(kind="leaf", type=_TYPES.get(shape.kind, ""))
