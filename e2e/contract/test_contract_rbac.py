"""Access reviews under a role, and the words of a refusal."""

import pytest
from contract.client import (
    TABLE,
    Api,
    Json,
    at,
    eventually,
)
from contract.objects import make
from contract.people import attributes, claims, may, pod_reference, token_of, user

KR = "kruntimes.io"
RULES: list[Json] = [
    {"apiGroups": [KR], "resources": ["runs"], "resourceNames": ["mine", "also"], "verbs": ["get", "delete"]},
    {"apiGroups": [KR], "resources": ["runs/status"], "verbs": ["patch"]},
    {"apiGroups": [KR], "resources": ["runtimes"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
    {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["*/status"], "verbs": ["update"]},
    {"apiGroups": ["*"], "resources": ["leases"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/log"], "resourceNames": ["p"], "verbs": ["get"]},
]


@pytest.fixture
def someone(api: Api, ns: str, request: pytest.FixtureRequest) -> Api:
    """A ServiceAccount with RULES in the namespace of this file; made once."""
    if api.get(at("serviceaccounts", ns, "someone")).code == 404:
        found = user(api, ns, "someone", RULES)
        eventually("rules in force", lambda: may(found, resourceAttributes=attributes(ns, "get", "configmaps")))
        return found
    return api.bearer(token_of(api, ns, "someone"))


REVIEWS: list[tuple[str, Json, bool]] = [
    # id, attributes beside the namespace, allowed
    ("named", {"verb": "get", "group": KR, "resource": "runs", "name": "mine"}, True),
    ("second-name", {"verb": "get", "group": KR, "resource": "runs", "name": "also"}, True),
    ("other-verb-of-a-named-rule", {"verb": "delete", "group": KR, "resource": "runs", "name": "mine"}, True),
    ("other-name", {"verb": "get", "group": KR, "resource": "runs", "name": "yours"}, False),
    # A rule with resourceNames allows neither a nameless get nor a list, nor creation.
    ("no-name", {"verb": "get", "group": KR, "resource": "runs"}, False),
    ("list", {"verb": "list", "group": KR, "resource": "runs"}, False),
    ("list-by-name", {"verb": "list", "group": KR, "resource": "runs", "name": "mine"}, False),
    ("verb-not-given", {"verb": "update", "group": KR, "resource": "runs", "name": "mine"}, False),
    ("subresource-is-another", {"verb": "get", "group": KR, "resource": "runs", "subresource": "status",
                                "name": "mine"}, False),
    ("subresource", {"verb": "patch", "group": KR, "resource": "runs", "subresource": "status", "name": "x"}, True),
    ("resource-of-the-subresource", {"verb": "patch", "group": KR, "resource": "runs", "name": "x"}, False),
    ("list-given", {"verb": "list", "group": KR, "resource": "runtimes"}, True),
    ("get-not-given-with-list", {"verb": "get", "group": KR, "resource": "runtimes", "name": "x"}, False),
    ("any-verb", {"verb": "deletecollection", "resource": "configmaps"}, True),
    ("invented-verb", {"verb": "juggle", "resource": "configmaps"}, True),
    ("any-verb-not-subresource", {"verb": "get", "resource": "configmaps", "subresource": "x"}, False),
    ("any-resource", {"verb": "get", "group": "apps", "resource": "replicasets", "name": "x"}, True),
    ("any-resource-and-subresource", {"verb": "get", "group": "apps", "resource": "replicasets",
                                      "subresource": "scale"}, True),
    ("any-resource-other-group", {"verb": "get", "group": "batch", "resource": "jobs"}, False),
    ("any-resource-with-status", {"verb": "update", "resource": "pods", "subresource": "status"}, True),
    ("any-resource-with-status-only", {"verb": "update", "resource": "pods"}, False),
    ("any-group", {"verb": "get", "group": "coordination.k8s.io", "resource": "leases"}, True),
    ("core-group", {"verb": "get", "resource": "leases"}, True),
    ("wrong-group", {"verb": "get", "group": "other.io", "resource": "runs", "name": "mine"}, False),
    ("log-by-name", {"verb": "get", "resource": "pods", "subresource": "log", "name": "p"}, True),
    ("log-of-another", {"verb": "get", "resource": "pods", "subresource": "log", "name": "q"}, False),
    ("nothing-given", {"verb": "get", "resource": "secrets", "name": "x"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "allowed"), [pytest.param(*row[1:], id=row[0]) for row in REVIEWS])
def test_what_a_role_allows(ns: str, someone: Api, asked: Json, allowed: bool) -> None:
    assert may(someone, resourceAttributes={"namespace": ns, **asked}) is allowed


@pytest.mark.parametrize("space", ["default", ""], ids=["other-namespace", "all-namespaces"])
def test_a_role_ends_at_its_namespace(someone: Api, space: str) -> None:
    assert not may(someone, resourceAttributes=attributes(space, "get", "configmaps"))


def test_the_form_of_a_review(api: Api, ns: str, someone: Api) -> None:
    """The answer repeats the question; `reason` names the binding, and a refusal has `allowed: false` only."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    asked = attributes(ns, "get", "configmaps")
    yes = someone.create(at("selfsubjectaccessreviews"), {**body, "spec": {"resourceAttributes": asked}}).ok(201)
    assert (yes["apiVersion"], yes["kind"]) == ("authorization.k8s.io/v1", "SelfSubjectAccessReview")
    assert yes["spec"] == {"resourceAttributes": asked}
    assert yes["status"]["allowed"] is True
    assert yes["status"]["reason"] == (
        f'RBAC: allowed by RoleBinding "someone/{ns}" of Role "someone" to ServiceAccount "someone/{ns}"'
    )
    asked = attributes(ns, "get", "secrets")
    no = someone.create(at("selfsubjectaccessreviews"), {**body, "spec": {"resourceAttributes": asked}}).ok(201)
    assert no["status"] == {"allowed": False}


BAD_REVIEWS: list[tuple[str, Json, str]] = [
    ("empty", {}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
    ("both", {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/x", "verb": "get"}},
     "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), [pytest.param(*row[1:], id=row[0]) for row in BAD_REVIEWS])
def test_reviews_that_are_none(api: Api, spec: Json, message: str) -> None:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    api.create(at("selfsubjectaccessreviews"), body).refused(422, "Invalid", message)


def test_the_administrator_may_do_everything(api: Api) -> None:
    assert may(api, resourceAttributes={"verb": "juggle", "group": "x.io", "resource": "things"})
    assert may(api, nonResourceAttributes={"path": "/anything", "verb": "get"})


PATHS: list[tuple[str, bool]] = [
    ("/api", True),
    ("/apis/apps/v1", True),
    ("/version", True),
    ("/healthz", True),
    ("/readyz", True),
    ("/openapi/v3", True),
    ("/metrics", False),
    ("/debug", False),
]


@pytest.mark.parametrize(("path", "allowed"), PATHS, ids=[row[0] for row in PATHS])
def test_paths_that_everyone_with_a_name_may_read(someone: Api, path: str, allowed: bool) -> None:
    assert may(someone, nonResourceAttributes={"path": path, "verb": "get"}) is allowed


def test_everyone_with_a_name_may_ask(ns: str, someone: Api) -> None:
    for resource in ("selfsubjectaccessreviews", "selfsubjectrulesreviews"):
        assert may(someone, resourceAttributes=attributes("", "create", resource, group="authorization.k8s.io"))


def test_nobody_may_not(api: Api, ns: str) -> None:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes(ns, "get", "pods")},
    }
    api.bearer(None).create(at("selfsubjectaccessreviews"), body).refused(
        403, "Forbidden", 'User "system:anonymous" cannot create resource "selfsubjectaccessreviews"'
    )


def test_a_token_that_is_none_is_401_and_not_a_refusal(api: Api, ns: str) -> None:
    body = {"spec": {"resourceAttributes": attributes(ns, "get", "pods")}}
    api.bearer("x.y.z").create(at("selfsubjectaccessreviews"), body).refused(401, "Unauthorized")


def test_the_administrator_asks_for_others(api: Api, ns: str, someone: Api) -> None:
    """SubjectAccessReview, and its form for one namespace."""
    who = {"user": f"system:serviceaccount:{ns}:someone"}
    for resource, kind, space in (
        ("subjectaccessreviews", "SubjectAccessReview", None),
        ("localsubjectaccessreviews", "LocalSubjectAccessReview", ns),
    ):
        for asked, allowed in ((attributes(ns, "get", "configmaps"), True), (attributes(ns, "get", "secrets"), False)):
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {**who, "resourceAttributes": asked}}
            if space:
                body["metadata"] = {"namespace": space}
            assert api.create(at(resource, space), body).ok(201)["status"]["allowed"] is allowed


def test_the_rules_of_someone(ns: str, someone: Api) -> None:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": ns},
    }
    status = someone.create(at("selfsubjectrulesreviews"), body).ok(201)["status"]
    assert status["incomplete"] is False
    for rule in RULES:
        assert rule in status["resourceRules"]
    assert any("/api" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])


def test_a_pods_token_acts_as_its_account(api: Api, ns: str, name: str, someone: Api) -> None:
    pod = make(api, "pods", ns, name, spec={"serviceAccountName": "someone"})
    token = token_of(api, ns, "someone", boundObjectRef=pod_reference(pod))
    assert claims(token)["kubernetes.io"]["pod"]["name"] == name
    assert may(api.bearer(token), resourceAttributes=attributes(ns, "get", "configmaps"))


# ---------------------------------------------------------------- refusals

WHO = "system:serviceaccount:{ns}:someone"
FORBIDDEN: list[tuple[str, str, str, str]] = [
    # id, method, path with {ns}, message with {who} and {ns}
    ("list", "GET", "/api/v1/namespaces/{ns}/secrets",
     'secrets is forbidden: User "{who}" cannot list resource "secrets" in API group "" in the namespace "{ns}"'),
    ("get", "GET", "/api/v1/namespaces/{ns}/secrets/x",
     'secrets "x" is forbidden: User "{who}" cannot get resource "secrets" in API group "" in the namespace "{ns}"'),
    ("watch", "GET", "/api/v1/namespaces/{ns}/secrets?watch=true", 'cannot watch resource "secrets"'),
    ("create", "POST", "/apis/kruntimes.io/v1alpha1/namespaces/{ns}/runs",
     'runs.kruntimes.io is forbidden: User "{who}" cannot create resource "runs" in API group "kruntimes.io" in the '
     'namespace "{ns}"'),
    ("update", "PUT", "/api/v1/namespaces/{ns}/secrets/x", 'cannot update resource "secrets"'),
    ("patch", "PATCH", "/api/v1/namespaces/{ns}/secrets/x", 'cannot patch resource "secrets"'),
    ("delete", "DELETE", "/api/v1/namespaces/{ns}/secrets/x", 'cannot delete resource "secrets"'),
    ("delete-all", "DELETE", "/api/v1/namespaces/{ns}/secrets", 'cannot deletecollection resource "secrets"'),
    ("subresource", "PATCH", "/api/v1/namespaces/{ns}/pods/x/status",
     'pods "x" is forbidden: User "{who}" cannot patch resource "pods/status" in API group "" in the namespace "{ns}"'),
    ("cluster", "GET", "/api/v1/nodes",
     'nodes is forbidden: User "{who}" cannot list resource "nodes" in API group "" at the cluster scope'),
    ("all-namespaces", "GET", "/api/v1/configmaps",
     'configmaps is forbidden: User "{who}" cannot list resource "configmaps" in API group "" at the cluster scope'),
    ("other-namespace", "GET", "/api/v1/namespaces/default/configmaps", 'in the namespace "default"'),
    ("not-there", "GET", "/apis/kruntimes.io/v1alpha1/namespaces/{ns}/runs/nope",
     'runs.kruntimes.io "nope" is forbidden: User "{who}" cannot get resource "runs"'),
    ("unknown-resource", "GET", "/api/v1/namespaces/{ns}/nopes", 'nopes is forbidden: User "{who}" cannot list'),
    ("path", "GET", "/metrics", 'forbidden: User "{who}" cannot get path "/metrics"'),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "message"), [pytest.param(*row[1:], id=row[0]) for row in FORBIDDEN])
def test_the_words_of_a_refusal(ns: str, someone: Api, method: str, path: str, message: str) -> None:
    path, _, query = path.format(ns=ns).partition("?")
    answer = someone.call(
        method,
        path,
        None if method in ("GET", "DELETE") else {},
        type="application/merge-patch+json" if method == "PATCH" else "application/json",
        query={"watch": "true"} if query else {},
    )
    answer.refused(403, "Forbidden", message.format(ns=ns, who=WHO.format(ns=ns)))


def test_the_details_of_a_refusal(ns: str, someone: Api) -> None:
    said = someone.get(at("runs", ns, "nope")).refused(403, "Forbidden")
    assert said["details"] == {"name": "nope", "group": KR, "kind": "runs"}
    said = someone.get(at("secrets", ns)).refused(403, "Forbidden")
    assert said["details"] == {"kind": "secrets"}
    assert someone.get("/metrics").refused(403, "Forbidden")["details"] == {}


def test_a_refusal_comes_before_the_body_is_looked_at(ns: str, someone: Api) -> None:
    someone.create(at("secrets", ns), b"{nope").refused(403, "Forbidden")
    someone.get(at("secrets", ns), accept=TABLE, labelSelector="a=b=c").refused(403, "Forbidden")


def test_a_list_of_one_name_is_allowed_by_its_name(api: Api, ns: str, name: str) -> None:
    """`metadata.name=x` in a field selector makes resourceNames count for list and watch."""
    make(api, "configmaps", ns, name)
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["list", "watch"]}]
    client = user(api, ns, name, rules)
    eventually(
        "rules in force", lambda: client.get(at("configmaps", ns), fieldSelector=f"metadata.name={name}").code == 200
    )
    client.get(at("configmaps", ns)).refused(403, "Forbidden")
    client.get(at("configmaps", ns, name)).refused(403, "Forbidden", "cannot get resource")
    with client.watch(at("configmaps", ns), fieldSelector=f"metadata.name={name}") as watch:
        assert watch.next()["object"]["metadata"]["name"] == name
