"""What each service, and each kind of user, may do and may not (design §8; least privilege)."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.api_server import Json, Server, until

from kruntimes.common.api import manifests, names

SYSTEM = f"rbac-system-{uuid.uuid4().hex[:8]}"
"""An installation of our own, beside whatever else the cluster holds."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"
HOMES = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts/{name}",
    "ClusterRole": RBAC + "/clusterroles/{name}",
    "ClusterRoleBinding": RBAC + "/clusterrolebindings/{name}",
    "Role": RBAC + "/namespaces/{namespace}/roles/{name}",
    "RoleBinding": RBAC + "/namespaces/{namespace}/rolebindings/{name}",
}


def account(name: str, namespace: str = SYSTEM) -> tuple[str, list[str]]:
    """User name and groups of a ServiceAccount, as its token carries them."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return f"system:serviceaccount:{namespace}:{name}", groups


@pytest.fixture(scope="module")
def demo(server: Server) -> Iterator[str]:
    """The installation's roles applied, and a namespace in which runtimed's is bound as the operator does it."""
    for namespace in (SYSTEM, demo := f"rbac-{uuid.uuid4().hex[:8]}"):
        server.done("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    installation = manifests.rbac(namespace=SYSTEM)
    for obj in installation:
        path = HOMES[obj["kind"]].format(**{"namespace": "", **obj["metadata"]})
        assert server.apply(path, obj)["kind"] == obj["kind"]
    bound(server, demo, names.RUNTIMED_ROLE, account(names.RUNTIMED_SERVICE_ACCOUNT, demo)[0])
    for role in ("view", "edit", "admin"):
        bound(server, demo, role, f"a-{role}")
        kinds = [f"{verb} runs" for verb in (("get",) if role == "view" else ("get", "create"))]
        until(lambda r=role, k=kinds: all(may(server, (f"a-{r}", []), one, namespace=demo) for one in k))
    until(lambda: may(server, account("kruntimes-runtimed", demo), "get runs", namespace=demo))
    until(lambda: may(server, account("kruntimes-router"), "list runs"))
    yield demo
    for obj in installation:
        if obj["kind"] == "ClusterRoleBinding" and obj["metadata"]["name"].endswith(SYSTEM):
            server.call("DELETE", HOMES["ClusterRoleBinding"].format(**obj["metadata"]))
    for namespace in (SYSTEM, demo):
        server.call("DELETE", f"/api/v1/namespaces/{namespace}")


def bound(server: Server, namespace: str, role: str, user: str) -> None:
    """Binds a ClusterRole to *user* within *namespace*."""
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"generateName": "t-"}, "roleRef": reference, "subjects": [subject]}
    server.done("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", body)


GROUPS = {
    "runs": "kruntimes.io",
    "runtimes": "kruntimes.io",
    "replicasets": "apps",
    "deployments": "apps",
    "leases": "coordination.k8s.io",
    "endpointslices": "discovery.k8s.io",
    "certificatesigningrequests": "certificates.k8s.io",
    "signers": "certificates.k8s.io",
    "subjectaccessreviews": "authorization.k8s.io",
    "selfsubjectaccessreviews": "authorization.k8s.io",
    "tokenreviews": "authentication.k8s.io",
    **dict.fromkeys(("roles", "rolebindings", "clusterroles", "clusterrolebindings"), "rbac.authorization.k8s.io"),
}


def may(server: Server, who: tuple[str, list[str]], what: str, *, namespace: str = "") -> bool:
    """Asks the API server whether *who* may do *what*: `VERB RESOURCE[/SUBRESOURCE] [NAME]`."""
    verb, resource, *name = what.split(" ")
    kind, _, sub = resource.partition("/")
    attributes = {"verb": verb, "group": GROUPS.get(kind, ""), "resource": kind, "subresource": sub}
    attributes |= {"namespace": namespace, "name": name[0] if name else ""}
    review = {"spec": {"user": who[0], "groups": who[1], "resourceAttributes": attributes}}
    answer = server.done("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


CSR = "certificatesigningrequests"
NOBODY_MAY = ("get secrets", "list secrets", "get secrets a", "list nodes", "get nodes a", "create tokenreviews",
              "create pods", "create pods/exec", "get pods/log", "create serviceaccounts/token", "impersonate users",
              "create subjectaccessreviews", "escalate clusterroles", "create clusterrolebindings",
              f"delete {CSR}", "create deployments", "delete namespaces a")  # fmt: skip

OPERATOR_MAY = (
    *(f"{verb} {kind}" for verb in ("list", "watch")
      for kind in ("runs", "runtimes", "pods", "replicasets", "services", "endpointslices", "leases", CSR)),
    *(f"{verb} {kind}" for verb in ("list", "watch", "patch") for kind in ("configmaps kruntimes-ca",)),
    *(f"{verb} serviceaccounts kruntimes-runtimed" for verb in ("list", "watch")),
    *(f"{verb} rolebindings kruntimes-runtimed" for verb in ("list", "watch", "patch", "delete")),
    *(f"get {kind}" for kind in ("runs", "pods", "services")),
    *(f"patch {kind}" for kind in ("runs", "runs/status", "runtimes/status", "pods", "pods/status")),
    "delete runs", "update runtimes/finalizers", "create events", "patch events", "create services",
    *(f"{verb} replicasets" for verb in ("create", "patch", "delete")),
    "create configmaps", "create serviceaccounts", "create rolebindings", "bind clusterroles kruntimes-runtimed",
    f"patch {CSR}/approval", f"patch {CSR}/status",
    *(f"{verb} signers kruntimes.io/{signer}" for verb in ("approve", "sign")
      for signer in ("runtimed", "gateway", "router", "gateway-serving")),
)  # fmt: skip
OPERATOR_MAY_NOT = (
    "create runs", "update runs", "update runs/status", "update runs/finalizers", "patch runtimes", "update runtimes",
    "delete runtimes", "delete pods", "patch configmaps other", "list configmaps", "patch services",
    "delete services", "patch serviceaccounts kruntimes-runtimed", "list serviceaccounts", "list rolebindings",
    "patch rolebindings other", "delete rolebindings", "bind clusterroles cluster-admin", "bind clusterroles admin",
    "sign signers kubernetes.io/kube-apiserver-client", "approve signers kubernetes.io/kubelet-serving",
    "create leases", "get leases", "create roles", f"update {CSR}/approval",
)  # fmt: skip

READS = tuple(f"{verb} {kind}" for verb in ("list", "watch") for kind in ("runs", "runtimes", "pods"))
WRITES = ("create runs", "patch runs", "delete runs", "patch runs/status", "patch runtimes", "patch pods")
ASKS = (f"create {CSR}", f"get {CSR}")
SPIES = (f"list {CSR}", f"watch {CSR}")
ISSUES = (f"patch {CSR}/approval", f"update {CSR}/status", "sign signers kruntimes.io/runtimed")

RUNTIMED_MAY = (
    *(f"{verb} runs" for verb in ("get", "list", "watch", "patch")), "patch runs/status", "get runtimes",
    *(f"{verb} pods" for verb in ("get", "list", "watch")),
    *(f"{verb} leases" for verb in ("create", "patch")), "create events", "patch events",
)  # fmt: skip
RUNTIMED_MAY_NOT = ("create runs", "delete runs", "update runs/status", "update runs/finalizers", "get leases",
                    "list runtimes", "patch runtimes", "patch pods",
                    "patch pods/status", "delete leases",
                    "list leases", "get configmaps", "create rolebindings", *ISSUES)  # fmt: skip

OPERATOR, ROUTER, GATEWAY = (account(f"kruntimes-{name}") for name in ("operator", "router", "gateway"))


def cases(who: object, where: str, allowed: bool, *tables: tuple[str, ...]) -> list[Any]:
    """One case for each line of the tables; where: "cluster", "system", "demo" or "elsewhere"."""
    label = who[0].rsplit(":", 1)[-1] if isinstance(who, tuple) else str(who)
    return [
        pytest.param(who, where, what, allowed, id=f"{label}-{'may' if allowed else 'may-not'}-{what}-{where}")
        for table in tables
        for what in table
    ]


CASES = [
    *cases(OPERATOR, "cluster", True, OPERATOR_MAY, ("create selfsubjectaccessreviews",)),
    *cases(OPERATOR, "cluster", False, OPERATOR_MAY_NOT, NOBODY_MAY, ("get secrets kruntimes-ca",)),
    *cases(OPERATOR, "system", True, ("get secrets kruntimes-ca", "create secrets")),
    *cases(OPERATOR, "system", True, ("get leases", "create leases", "patch leases")),
    *cases(
        OPERATOR,
        "system",
        False,
        ("get secrets other", "list secrets", *(f"{verb} secrets kruntimes-ca" for verb in ("delete", "update"))),
    ),
    *cases(ROUTER, "cluster", True, READS, ASKS, ("create selfsubjectaccessreviews",)),
    *cases(ROUTER, "cluster", False, WRITES, ISSUES, SPIES, NOBODY_MAY, ("create events", "get runs", "get pods")),
    *cases(ROUTER, "system", False, ("get secrets kruntimes-ca",)),
    *cases(
        GATEWAY,
        "cluster",
        True,
        ("list runs", "watch runs", "list runtimes", "watch runtimes"),
        ASKS,
        ("create selfsubjectaccessreviews",),
    ),
    *cases(GATEWAY, "cluster", False, ("get runs", "list pods", "get runtimes"), WRITES, ISSUES, SPIES),
    *cases(GATEWAY, "cluster", False, NOBODY_MAY),
    *cases(GATEWAY, "system", True, ("get pods",)),
    *cases(GATEWAY, "system", False, ("get secrets kruntimes-ca", "list pods", "delete pods")),
    *cases("kruntimes-runtimed", "demo", True, RUNTIMED_MAY),
    *cases("kruntimes-runtimed", "cluster", True, ASKS, ("create selfsubjectaccessreviews",)),
    *cases("kruntimes-runtimed", "cluster", False, SPIES, ISSUES),
    *cases("kruntimes-runtimed", "demo", False, RUNTIMED_MAY_NOT, NOBODY_MAY),
    *cases("kruntimes-runtimed", "elsewhere", False, RUNTIMED_MAY),
    *cases(("a-view", []), "demo", True, ("get runs", "list runs", "watch runtimes", "get runtimes/scale")),
    *cases(("a-view", []), "demo", False, WRITES, ("create runtimes", "patch runtimes/scale")),
    *cases(("a-edit", []), "demo", True, ("get runs", "create runs", "patch runs", "delete runs", "create runtimes")),
    *cases(("a-edit", []), "demo", True, ("patch runtimes/scale", "deletecollection runs")),
    *cases(("a-edit", []), "demo", False, ("patch runs/status", "patch runtimes/status", "update runs/finalizers")),
    *cases(("a-admin", []), "demo", True, ("get runs", "create runs", "patch runtimes")),
    *cases(("a-admin", []), "elsewhere", False, ("get runs", "create runs")),
]


@pytest.mark.parametrize(("who", "where", "what", "allowed"), CASES)
def test_rights(server: Server, demo: str, who: Any, where: str, what: str, allowed: bool) -> None:
    if who == "kruntimes-runtimed":
        who = account(who, demo)
    namespace = {"cluster": "", "system": SYSTEM, "demo": demo, "elsewhere": "default"}[where]
    assert may(server, who, what, namespace=namespace) is allowed


@pytest.mark.parametrize(("role", "code"), [("kruntimes-runtimed", 201), ("cluster-admin", 403), ("edit", 403)])
def test_the_operator_hands_on_one_role_only(server: Server, demo: str, role: str, code: int) -> None:
    reference = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "ServiceAccount", "name": "builder", "namespace": demo}
    body: Json = {"metadata": {"generateName": "t-"}, "roleRef": reference, "subjects": [subject]}
    headers = {"impersonate-user": OPERATOR[0], "impersonate-group": "system:authenticated"}
    path = f"{RBAC}/namespaces/{demo}/rolebindings"
    assert server.http.post(path, json=body, headers=headers).status_code == code


def test_installations_of_two_namespaces_share_roles_and_no_binding() -> None:
    default = {(obj["kind"], obj["metadata"]["name"]): obj for obj in manifests.rbac()}
    moved = {(obj["kind"], obj["metadata"]["name"]): obj for obj in manifests.rbac(namespace="elsewhere")}
    assert manifests.SYSTEM_NAMESPACE not in str(moved) and "elsewhere" not in str(default)
    shared = {key for key in default.keys() & moved.keys() if "namespace" not in default[key]["metadata"]}
    assert all(default[key] == moved[key] for key in shared)
    assert {key for key in shared if key[0] == "ClusterRoleBinding"} == {("ClusterRoleBinding", names.CSR_ROLE)}
    assert ("ClusterRoleBinding", "kruntimes-operator-elsewhere") in moved


def test_every_binding_has_its_role_and_every_account_its_binding() -> None:
    objects = manifests.rbac()
    roles = {(obj["kind"], obj["metadata"]["name"]) for obj in objects if "rules" in obj}
    bindings = [obj for obj in objects if "roleRef" in obj]
    assert {(obj["roleRef"]["kind"], obj["roleRef"]["name"]) for obj in bindings} <= roles
    subjects = {subject["name"] for obj in bindings for subject in obj["subjects"]}
    assert {obj["metadata"]["name"] for obj in objects if obj["kind"] == "ServiceAccount"} <= subjects
    assert ("ClusterRole", names.RUNTIMED_ROLE) in roles
