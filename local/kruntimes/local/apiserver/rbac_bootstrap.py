"""The roles and bindings that every cluster has from its start, as far as anybody here relies on them. Pure.

`view`, `edit` and `admin` are put together from the roles labelled for them, kruntimes' own among them.
"""

from collections.abc import Iterator
from typing import Any

from kruntimes.local.apiserver.rbac import GROUP
from kruntimes.local.apiserver.request import AUTHENTICATED, MASTERS, UNAUTHENTICATED

Json = dict[str, Any]

READ = ["get", "list", "watch"]
WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY = sorted(["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_PUBLIC])
_ISSUER = ["/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks",
           "/openid/v1/jwks/"]  # fmt: skip

_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"

_SHOWN = ["configmaps", "events", "persistentvolumeclaims", "persistentvolumeclaims/status", "pods", "pods/log",
          "pods/status", "serviceaccounts", "services", "services/status", "namespaces"]  # fmt: skip
_EDITED = ["configmaps", "events", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services"]


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Json:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _urls(urls: list[str]) -> Json:
    return {"nonResourceURLs": urls, "verbs": ["get"]}


ROLES: dict[str, list[Json]] = {
    "cluster-admin": [_rule(["*"], ["*"], ["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}],
    "system:basic-user": [
        _rule(["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
        _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
    ],
    "system:discovery": [_urls(_DISCOVERY)],
    "system:monitoring": [_urls(["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/readyz", "/readyz/*"])],
    "system:public-info-viewer": [_urls(_PUBLIC)],
    "system:service-account-issuer-discovery": [_urls(_ISSUER)],
    "system:auth-delegator": [
        _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        _rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ],
}
AGGREGATED: dict[str, tuple[str, list[Json]]] = {
    "system:aggregate-to-view": (
        "view",
        [
            _rule([""], _SHOWN, READ),
            _rule(["apps"], ["replicasets", "replicasets/scale", "replicasets/status"], READ),
            _rule(["discovery.k8s.io"], ["endpointslices"], READ),
        ],
    ),
    "system:aggregate-to-edit": (
        "edit",
        [
            _rule([""], ["secrets"], READ),
            _rule([""], ["serviceaccounts"], ["impersonate"]),
            _rule([""], _EDITED, WRITE),
            _rule([""], ["pods/eviction"], ["create"]),
            _rule([""], ["serviceaccounts/token"], ["create"]),
            _rule(["apps"], ["replicasets", "replicasets/scale"], WRITE),
            _rule(["coordination.k8s.io"], ["leases"], [*WRITE, *READ]),
        ],
    ),
    "system:aggregate-to-admin": (
        "admin",
        [
            _rule(["authorization.k8s.io"], ["localsubjectaccessreviews"], ["create"]),
            _rule([GROUP], ["roles", "rolebindings"], [*WRITE, *READ]),
        ],
    ),
}
"""Roles that are parts of another."""
WHOLES = {"admin": ("edit", "view", "admin"), "edit": ("view", "edit"), "view": ("view",)}
"""What the roles for people are put together from, by label."""
BINDINGS: dict[str, tuple[str, ...]] = {
    "cluster-admin": (MASTERS,),
    "system:basic-user": (AUTHENTICATED,),
    "system:discovery": (AUTHENTICATED,),
    "system:monitoring": ("system:monitoring",),
    "system:public-info-viewer": (AUTHENTICATED, UNAUTHENTICATED),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}
"""Groups by the ClusterRole that they are bound to; the binding has the role's name."""


def objects() -> Iterator[tuple[tuple[str, str, str], str, Json]]:
    """(group, version, plural), namespace and object, in the order in which they are created."""
    roles, bindings = (GROUP, "v1", "clusterroles"), (GROUP, "v1", "clusterrolebindings")
    for name, rules in ROLES.items():
        yield roles, "", {"metadata": _meta(name), "rules": rules}
    for name, (whole, rules) in AGGREGATED.items():
        yield roles, "", {"metadata": _meta(name, {f"{_AGGREGATE}{whole}": "true"}), "rules": rules}
    for name, parts in WHOLES.items():
        selectors = [{"matchLabels": {f"{_AGGREGATE}{part}": "true"}} for part in parts]
        yield roles, "", {"metadata": _meta(name), "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": []}
    for name, groups in BINDINGS.items():
        subjects = [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups]
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        yield bindings, "", {"metadata": _meta(name), "roleRef": reference, "subjects": subjects}


def _meta(name: str, labels: dict[str, str] | None = None) -> Json:
    return {"name": name, "labels": {**_LABELS, **(labels or {})}, "annotations": dict(_ANNOTATIONS)}
