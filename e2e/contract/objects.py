"""A smallest valid object of each kind, and how to make one."""

import copy
from typing import Any

from contract.client import Api, Json, at

SCHEDULER = "contract.example"
"""Nobody answers to it, so that no scheduler of a cluster with nodes binds a Pod before its test does."""
CONTAINER: Json = {"name": "main", "image": "registry.invalid/none:1"}

BODIES: dict[str, Json] = {
    "configmaps": {"data": {"a": "1"}},
    "secrets": {"data": {"a": "MQ=="}},
    "serviceaccounts": {},
    "pods": {"spec": {"schedulerName": SCHEDULER, "containers": [CONTAINER]}},
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
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"schedulerName": SCHEDULER, "containers": [CONTAINER]},
            },
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


def owned(owner: Json, **more: object) -> Json:
    """An owner reference to *owner*."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        **more,
    }
