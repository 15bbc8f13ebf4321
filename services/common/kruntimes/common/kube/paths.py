"""The paths of the API server that anything here asks for; every part of one is quoted.

`namespace=None` names all namespaces (for lists and watches). sub: a subresource such as `status`.
"""

from urllib.parse import quote

from kruntimes.common.api import names

_CORE = "/api/v1"
_KRUNTIMES = f"/apis/{names.GROUP}/{names.VERSION}"


def _namespaced(prefix: str, plural: str, namespace: str | None, name: str | None, sub: str | None) -> str:
    scope = "" if namespace is None else f"/namespaces/{quote(namespace, safe='')}"
    return _object(f"{prefix}{scope}/{plural}", name, sub)


def _object(collection: str, name: str | None, sub: str | None) -> str:
    path = collection if name is None else f"{collection}/{quote(name, safe='')}"
    return path if sub is None else f"{path}/{sub}"


def runs(namespace: str | None, name: str | None = None, sub: str | None = None) -> str:
    """Runs of kruntimes.io."""
    return _namespaced(_KRUNTIMES, names.RUNS, namespace, name, sub)


def runtimes(namespace: str | None, name: str | None = None, sub: str | None = None) -> str:
    """Runtimes of kruntimes.io."""
    return _namespaced(_KRUNTIMES, names.RUNTIMES, namespace, name, sub)


def pods(namespace: str | None, name: str | None = None, sub: str | None = None) -> str:
    """Pods."""
    return _namespaced(_CORE, "pods", namespace, name, sub)


def services(namespace: str | None, name: str | None = None, sub: str | None = None) -> str:
    """Services."""
    return _namespaced(_CORE, "services", namespace, name, sub)


def configmaps(namespace: str | None, name: str | None = None) -> str:
    """ConfigMaps."""
    return _namespaced(_CORE, "configmaps", namespace, name, None)


def secrets(namespace: str | None, name: str | None = None) -> str:
    """Secrets."""
    return _namespaced(_CORE, "secrets", namespace, name, None)


def serviceaccounts(namespace: str | None, name: str | None = None, sub: str | None = None) -> str:
    """ServiceAccounts; sub `token` is a TokenRequest."""
    return _namespaced(_CORE, "serviceaccounts", namespace, name, sub)


def events(namespace: str | None, name: str | None = None) -> str:
    """Events of the core group, the ones that `kubectl describe` shows."""
    return _namespaced(_CORE, "events", namespace, name, None)


def namespaces(name: str | None = None) -> str:
    """Namespaces."""
    return _object(f"{_CORE}/namespaces", name, None)


def nodes(name: str | None = None, sub: str | None = None) -> str:
    """Nodes."""
    return _object(f"{_CORE}/nodes", name, sub)


def replicasets(namespace: str | None, name: str | None = None, sub: str | None = None) -> str:
    """ReplicaSets."""
    return _namespaced("/apis/apps/v1", "replicasets", namespace, name, sub)


def leases(namespace: str | None, name: str | None = None) -> str:
    """Leases: heartbeats and elections."""
    return _namespaced("/apis/coordination.k8s.io/v1", "leases", namespace, name, None)


def endpointslices(namespace: str | None, name: str | None = None) -> str:
    """EndpointSlices."""
    return _namespaced("/apis/discovery.k8s.io/v1", "endpointslices", namespace, name, None)


def rolebindings(namespace: str | None, name: str | None = None) -> str:
    """RoleBindings."""
    return _namespaced("/apis/rbac.authorization.k8s.io/v1", "rolebindings", namespace, name, None)


def csrs(name: str | None = None, sub: str | None = None) -> str:
    """CertificateSigningRequests; sub `approval` or `status`."""
    return _object("/apis/certificates.k8s.io/v1/certificatesigningrequests", name, sub)


def crds(name: str | None = None) -> str:
    """CustomResourceDefinitions."""
    return _object("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name, None)


def self_subject_access_reviews() -> str:
    """SelfSubjectAccessReviews: what may the bearer of this token do."""
    return "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def self_subject_reviews() -> str:
    """SelfSubjectReviews: who is the bearer of this token."""
    return "/apis/authentication.k8s.io/v1/selfsubjectreviews"
