"""The objects that the contract suite writes: our CRDs, two of its own, and a smallest valid body of each kind."""

import copy
from pathlib import Path
from typing import Any

import yaml
from contract.client import Api, Json, at, eventually

CRDS = Path(__file__).parents[2] / "services" / "common" / "kruntimes" / "common" / "api" / "crds"
ESTABLISH_SECONDS = 30.0

WIDGET_SCHEMA: Json = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
                "code": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                "ratio": {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": True, "minimum": 0},
                "on": {"type": "boolean"},
                "when": {"type": "string", "format": "date-time"},
                "blob": {"type": "string", "format": "byte"},
                "small": {"type": "integer", "format": "int32"},
                "port": {"x-kubernetes-int-or-string": True},
                "maybe": {"type": "string", "nullable": True, "default": "there"},
                "tags": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string", "maxLength": 10},
                },
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "maxItems": 5,
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string", "maxLength": 20},
                            "count": {"type": "integer", "default": 1},
                        },
                    },
                },
                "list": {"type": "array", "minItems": 1, "items": {"type": "integer"}},
                "labels": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string"}},
                "nested": {
                    "type": "object",
                    "default": {},
                    "properties": {
                        "depth": {"type": "integer", "default": 7},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                },
                "either": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "phase": {"type": "string"},
                "selector": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type", "status"],
                        "properties": {
                            "type": {"type": "string"},
                            "status": {"type": "string"},
                            "reason": {"type": "string"},
                        },
                    },
                },
            },
        },
    },
}
"""Every kind of bound that our CRDs use, in one small object."""


def crd(plural: str, kind: str, schema: Json, *, group: str = "contract.example", **version: object) -> Json:
    """A namespaced CustomResourceDefinition with one version, v1."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }


WIDGETS = crd(
    "widgets",
    "Widget",
    WIDGET_SCHEMA,
    subresources={
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.size",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
    selectableFields=[{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".status.phase"}],
    additionalPrinterColumns=[
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large."},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "On", "type": "boolean", "jsonPath": ".spec.on", "priority": 1},
        {"name": "Part", "type": "string", "jsonPath": ".spec.parts[0].name"},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
    ],
)
WIDGETS["spec"]["names"] |= {"shortNames": ["wd", "wdg"], "categories": ["contracts"]}

PLAINS = crd(
    "plains",
    "Plain",
    {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"text": {"type": "string"}}},
            "status": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
    },
)
"""A kind without subresources."""


CEL_FORMS = crd(
    "celforms",
    "CelForm",
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "once": {
                        "type": "string",
                        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "once is immutable"}],
                    },
                    "grows": {
                        "type": "integer",
                        "x-kubernetes-validations": [
                            {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": True}
                        ],
                    },
                    "said": {
                        "type": "integer",
                        "x-kubernetes-validations": [
                            {
                                "rule": "self < 10",
                                "messageExpression": "'want less than ten, got ' + (self < 100 ? 'tens' : 'hundreds')",
                                "message": "static",
                            }
                        ],
                    },
                    "twice": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                        "x-kubernetes-validations": [
                            {"rule": "self.a < 5", "message": "a is large", "fieldPath": ".a"},
                            {"rule": "self.b < 5", "message": "b is large", "reason": "FieldValueForbidden"},
                        ],
                    },
                    "lines": {"type": "string", "x-kubernetes-validations": [{"rule": "self.split(',').size() < 3"}]},
                    "list": {
                        "type": "array",
                        "maxItems": 5,
                        "items": {
                            "type": "string",
                            "maxLength": 9,
                            "x-kubernetes-validations": [{"rule": "self.startsWith('x')", "message": "must be x"}],
                        },
                    },
                },
            },
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.spec) || !has(self.spec.n) || self.spec.n != 7", "message": "never seven"}
        ],
    },
)
"""Rules of every form: transition, optional old value, messages, field path, reason, at the root and in lists."""

CLUSTER_THINGS = crd("clusterthings", "ClusterThing", PLAINS["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
CLUSTER_THINGS["spec"]["scope"] = "Cluster"

MANIES = crd("manies", "Many", PLAINS["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
MANIES["spec"]["versions"] += [
    {**MANIES["spec"]["versions"][0], "name": "v2", "storage": False},
    {**MANIES["spec"]["versions"][0], "name": "v3", "storage": False, "served": False},
]
"""A kind in two versions, and in a third that is not served."""

OWN = (WIDGETS, PLAINS, CEL_FORMS, CLUSTER_THINGS, MANIES)
"""The kinds of this suite."""


def install(api: Api) -> None:
    """Puts the CRDs of kruntimes and of this suite on the server, and waits until their resources are served.

    They stay there: other users of the same server may have objects of them. An update of a CRD comes into force some
    time after its answer, and nothing tells when, so a kind of this suite that has changed is made anew.
    """
    files = [yaml.safe_load((CRDS / f"{kind}.yaml").read_text()) for kind in ("runs", "runtimes")]
    for body in (*files, *OWN):
        name = body["metadata"]["name"]
        if api.create(at("customresourcedefinitions"), body).code == 409:
            held = api.get(at("customresourcedefinitions", None, name)).ok()
            new = {**body, "metadata": {**body["metadata"], "resourceVersion": held["metadata"]["resourceVersion"]}}
            path = at("customresourcedefinitions", None, name)
            changed = api.replace(path, new).ok()["metadata"]["generation"] != held["metadata"]["generation"]
            if changed and body in OWN:
                api.delete(path).ok()
                eventually(f"{name} gone", lambda path=path: api.get(path).code == 404, ESTABLISH_SECONDS)
                api.create(at("customresourcedefinitions"), body).ok(201)
    for plural in (body["spec"]["names"]["plural"] for body in (*files, *OWN)):
        eventually(f"{plural} served", lambda plural=plural: api.get(at(plural)).code == 200, ESTABLISH_SECONDS)


CONTAINER: Json = {"name": "main", "image": "registry.invalid/none:1"}

BODIES: dict[str, Json] = {
    "configmaps": {"data": {"a": "1"}},
    "secrets": {"data": {"a": "MQ=="}},
    "serviceaccounts": {},
    "pods": {"spec": {"containers": [CONTAINER]}},
    "services": {"spec": {"ports": [{"port": 80}], "selector": {"app": "none"}}},
    "events": {
        "involvedObject": {"kind": "Run", "name": "r", "apiVersion": "kruntimes.io/v1alpha1"},
        "reason": "Tried",
        "message": "m",
        "type": "Normal",
    },
    "persistentvolumeclaims": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "replicasets": {
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [CONTAINER]}},
        }
    },
    "leases": {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 30}},
    "endpointslices": {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": []},
    "roles": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "rolebindings": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    },
    "widgets": {"spec": {"size": 3}},
    "plains": {"spec": {"text": "t"}},
    "manies": {"spec": {"text": "t"}},
    "clusterthings": {"spec": {"text": "t"}},
    "celforms": {},
    "runs": {
        "spec": {
            "runtime": "python",
            "source": {"inline": "def handler(): pass\n", "inlinePath": "case.py"},
            "mode": {"function": {"handler": "case.handler"}},
        }
    },
    "runtimes": {"spec": {"template": {"spec": {"containers": [{"name": "runtime", "image": "i:1"}]}}}},
    "namespaces": {},
    "nodes": {},
    "clusterroles": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "clusterrolebindings": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "nobody", "apiGroup": "rbac.authorization.k8s.io"}],
    },
}
"""A smallest valid body of each resource, without name."""

KINDS: dict[str, tuple[str, str]] = {
    "configmaps": ("v1", "ConfigMap"),
    "secrets": ("v1", "Secret"),
    "serviceaccounts": ("v1", "ServiceAccount"),
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "events": ("v1", "Event"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "namespaces": ("v1", "Namespace"),
    "nodes": ("v1", "Node"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
    "endpointslices": ("discovery.k8s.io/v1", "EndpointSlice"),
    "roles": ("rbac.authorization.k8s.io/v1", "Role"),
    "rolebindings": ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    "clusterroles": ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    "clusterrolebindings": ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    "widgets": ("contract.example/v1", "Widget"),
    "plains": ("contract.example/v1", "Plain"),
    "manies": ("contract.example/v1", "Many"),
    "clusterthings": ("contract.example/v1", "ClusterThing"),
    "celforms": ("contract.example/v1", "CelForm"),
    "runs": ("kruntimes.io/v1alpha1", "Run"),
    "runtimes": ("kruntimes.io/v1alpha1", "Runtime"),
}
CLUSTER_SCOPED = frozenset({"namespaces", "nodes", "clusterroles", "clusterrolebindings", "clusterthings"})


def obj(resource: str, name: str, /, *, meta: Json | None = None, **fields: object) -> Json:
    """A valid object of *resource*; *meta* and *fields* are laid over it, field by field at the top level."""
    version, kind = KINDS[resource]
    body = copy.deepcopy(BODIES[resource])
    spec = fields.pop("spec", None)
    if isinstance(spec, dict):
        body["spec"] = {**body.get("spec", {}), **spec}
    made: Json = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **(meta or {})}, **body, **fields}
    return made


def make(api: Api, resource: str, namespace: str | None, name: str, /, **fields: Any) -> Json:
    """Creates a valid object, and returns it as the server answered it."""
    body = obj(resource, name, **fields)
    if resource == "events":
        body["involvedObject"].setdefault("namespace", namespace)
    return api.create(at(resource, namespace), body).ok(201)
