"""Which resources the API has: the built-in ones that kruntimes and kubectl need, and those that CRDs add. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kruntimes.local.apiserver.status import About

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a Table: *path* is a JSONPath as in a CRD's additionalPrinterColumns."""

    name: str
    type: str
    path: str
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource in one version.

    subresources: names such as `status`, `scale`, `token`. virtual: it is answered and never stored
    (SelfSubjectAccessReview). selectable: field paths, with their leading dot, that field selectors may name.
    scale: the paths of the replicas wanted, of those there are, and of the selector (or empty), with leading dots.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    scale: tuple[str, str, str] = ("", "", "")
    virtual: bool = False
    custom: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Group and plural: what the store files objects under."""
        return (self.group, self.plural)

    @property
    def api_version(self) -> str:
        """`v1`, or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def shows(self, obj: dict[str, Any]) -> dict[str, Any]:
        """An object as this version of the resource shows it; versions differ in name alone."""
        return obj if obj.get("apiVersion") == self.api_version else {**obj, "apiVersion": self.api_version}

    def about(self, name: str = "") -> About:
        """Details of a refusal that is about the resource (named by its plural)."""
        return About(group=self.group, kind=self.plural, name=name)

    def about_kind(self, name: str = "") -> About:
        """Details of a refusal that is about an object that was sent (named by its kind)."""
        return About(group=self.group, kind=self.kind, name=name)


def _core(plural: str, kind: str, *, namespaced: bool = True, **rest: object) -> Resource:
    return _built_in("", "v1", plural, kind, namespaced=namespaced, **rest)


def _built_in(group: str, version: str, plural: str, kind: str, *, namespaced: bool, **rest: object) -> Resource:
    return Resource(
        group=group, version=version, plural=plural, singular=kind.lower(), kind=kind, namespaced=namespaced,
        **rest,  # type: ignore[arg-type]
    )  # fmt: skip


_RBAC = "rbac.authorization.k8s.io"
_REVIEW = {"verbs": ("create",), "virtual": True}
BUILT_IN: tuple[Resource, ...] = (
    _core("namespaces", "Namespace", namespaced=False, short_names=("ns",), subresources=("status", "finalize"),
          verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
          selectable=(".status.phase",)),
    _core("pods", "Pod", short_names=("po",), categories=("all",),
          subresources=("status", "binding", "log", "eviction"),
          selectable=(".spec.nodeName", ".status.phase", ".status.podIP", ".spec.serviceAccountName",
                      ".spec.restartPolicy", ".spec.schedulerName", ".status.nominatedNodeName")),
    _core("services", "Service", short_names=("svc",), categories=("all",), subresources=("status",),
          selectable=(".spec.clusterIP", ".spec.type")),
    _core("configmaps", "ConfigMap", short_names=("cm",)),
    _core("secrets", "Secret", selectable=(".type",)),
    _core("serviceaccounts", "ServiceAccount", short_names=("sa",), subresources=("token",)),
    _core("events", "Event", short_names=("ev",),
          selectable=(".involvedObject.kind", ".involvedObject.namespace", ".involvedObject.name",
                      ".involvedObject.uid", ".involvedObject.apiVersion", ".involvedObject.resourceVersion",
                      ".involvedObject.fieldPath", ".reason", ".reportingComponent", ".source", ".type")),
    _core("nodes", "Node", namespaced=False, short_names=("no",), subresources=("status",),
          selectable=(".spec.unschedulable",)),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=("status",)),
    _built_in("apps", "v1", "replicasets", "ReplicaSet", namespaced=True, short_names=("rs",), categories=("all",),
              subresources=("status", "scale"),
              scale=(".spec.replicas", ".status.replicas", ".spec.selector")),
    _built_in("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True),
    _built_in("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced=True),
    _built_in(_RBAC, "v1", "roles", "Role", namespaced=True),
    _built_in(_RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True),
    _built_in(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    _built_in(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _built_in("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest",
              namespaced=False, short_names=("csr",), subresources=("approval", "status"),
              selectable=(".spec.signerName",)),
    _built_in("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
              namespaced=False, short_names=("crd", "crds"), categories=("api-extensions",),
              subresources=("status",)),
    _built_in("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview",
              namespaced=False, **_REVIEW),
    _built_in("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False,
              **_REVIEW),
    _built_in("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview",
              namespaced=True, **_REVIEW),
    _built_in("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False,
              **_REVIEW),
    _built_in("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False,
              **_REVIEW),
    _built_in("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False, **_REVIEW),
)  # fmt: skip


_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


def _rank(version: str) -> tuple[int, int, int, str]:
    """The place of a version among others: v2, v1, v1beta2, v1beta1, v1alpha1, and then the rest by name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (3, 0, 0, version)
    return ({"beta": 1, "alpha": 2}.get(match[2], 0), -int(match[1]), -int(match[3] or 0), version)


@dataclass
class Resources:
    """The resources at this moment; CRDs come and go."""

    _by_path: dict[tuple[str, str, str], Resource] = field(default_factory=dict)

    @classmethod
    def built_in(cls) -> "Resources":
        """Those that are always there."""
        made = cls()
        for resource in BUILT_IN:
            made.add(resource)
        return made

    def add(self, resource: Resource) -> None:
        """Adds or replaces one."""
        self._by_path[resource.group, resource.version, resource.plural] = resource

    def remove(self, resource: Resource) -> None:
        """Removes one; a request for it is 404 from now on."""
        self._by_path.pop((resource.group, resource.version, resource.plural), None)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource behind a path, or None."""
        return self._by_path.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """The resource whose objects say *api_version* and *kind*, or None."""
        return next((r for r in self if r.api_version == api_version and r.kind == kind), None)

    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Each group but the core one, with its versions, the one to prefer first."""
        found: dict[str, dict[str, None]] = {}
        for resource in self:
            if resource.group:
                found.setdefault(resource.group, {})[resource.version] = None
        return {group: tuple(sorted(versions, key=_rank)) for group, versions in found.items()}

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_path.values()))
