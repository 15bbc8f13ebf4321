"""RBAC: who may do what, who may hand what on, and who may speak for whom."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver.plane import Json, Loops, Plane, user

from kruntimes.local.apiserver import rbac
from kruntimes.local.apiserver.api import Call
from kruntimes.local.apiserver.authn import impersonated
from kruntimes.local.apiserver.loops.cluster_roles import Aggregation
from kruntimes.local.apiserver.rbac import Rule, missing
from kruntimes.local.apiserver.request import ANONYMOUS, MASTERS, SYSTEM, Request, User, attributes
from kruntimes.local.apiserver.status import StatusError

POD, LOG, OTHER = (f"/api/v1/namespaces/n/pods/{path}" for path in ("p", "p/log", "q"))
CORE_READ: Json = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


@pytest.mark.parametrize(
    ("rule", "method", "path", "allowed"),
    [
        pytest.param(CORE_READ, "GET", POD, True, id="get"),
        pytest.param(CORE_READ, "GET", "/api/v1/pods", True, id="list-everywhere"),
        pytest.param(CORE_READ, "DELETE", POD, False, id="other-verb"),
        pytest.param(CORE_READ, "GET", "/api/v1/namespaces/n/secrets/p", False, id="other-resource"),
        pytest.param(CORE_READ, "GET", "/apis/x.io/v1/namespaces/n/pods/p", False, id="other-group"),
        pytest.param(CORE_READ, "GET", LOG, False, id="subresource-is-another"),
        pytest.param({**CORE_READ, "resources": ["pods/log"]}, "GET", LOG, True, id="sub"),
        pytest.param({**CORE_READ, "resources": ["pods/log"]}, "GET", POD, False, id="sub-only"),
        pytest.param({**CORE_READ, "resources": ["*/log"]}, "GET", LOG, True, id="any-sub"),
        pytest.param({**CORE_READ, "resources": ["*"]}, "GET", LOG, True, id="all"),
        pytest.param({**CORE_READ, "verbs": ["*"]}, "DELETE", POD, True, id="all-verbs"),
        pytest.param({**CORE_READ, "apiGroups": ["*"]}, "GET", "/apis/x.io/v1/pods", True, id="all-groups"),
        pytest.param({**CORE_READ, "resourceNames": ["p"]}, "GET", POD, True, id="name"),
        pytest.param({**CORE_READ, "resourceNames": ["p"]}, "GET", OTHER, False, id="other-name"),
        pytest.param({**CORE_READ, "resourceNames": ["p"]}, "GET", "/api/v1/namespaces/n/pods", False, id="no-name"),
        pytest.param({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, "GET", "/metrics", True, id="path"),
        pytest.param({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, "GET", "/metrics/x", False, id="path-below"),
        pytest.param({"nonResourceURLs": ["/apis/*"], "verbs": ["get"]}, "GET", "/apis/x.io", True, id="path-prefix"),
        pytest.param({"nonResourceURLs": ["*"], "verbs": ["*"]}, "POST", "/x", True, id="all-paths"),
        pytest.param({"nonResourceURLs": ["*"], "verbs": ["*"]}, "GET", "/api/v1/pods", False, id="paths-are-no-pods"),
        pytest.param({**CORE_READ, "resources": ["*"]}, "GET", "/version", False, id="pods-are-no-paths"),
    ],
)  # fmt: skip
def test_a_rule(rule: Json, method: str, path: str, allowed: bool) -> None:
    assert Rule.of(rule).allows(attributes(user("eve"), method, path)) is allowed


WORDS = st.sampled_from(["a", "b", "a/x", "*", "*/x"])
RULES = st.builds(
    Rule,
    verbs=st.lists(st.sampled_from(["get", "list", "*"]), min_size=1, max_size=2).map(tuple),
    groups=st.lists(st.sampled_from(["", "g", "*"]), min_size=1, max_size=2).map(tuple),
    resources=st.lists(WORDS, min_size=1, max_size=2).map(tuple),
    names=st.lists(st.sampled_from(["n", "m"]), max_size=2).map(tuple),
)
QUESTIONS = st.builds(
    Request,
    user=st.just(ANONYMOUS), path=st.just(""), verb=st.sampled_from(["get", "list", "watch"]),
    group=st.sampled_from(["", "g", "h"]), resource=st.sampled_from(["a", "b", "c"]),
    subresource=st.sampled_from(["", "x", "y"]), name=st.sampled_from(["", "n", "m", "o"]),
)  # fmt: skip


@given(held=st.lists(RULES, max_size=3), wanted=st.lists(RULES, max_size=2), question=QUESTIONS)
def test_what_is_covered_allows_nothing_more(held: list[Rule], wanted: list[Rule], question: Request) -> None:
    if not missing(held, wanted) and any(rule.allows(question) for rule in wanted):
        assert any(rule.allows(question) for rule in held)


@given(RULES)
def test_every_rule_covers_itself_and_is_missing_from_nothing(rule: Rule) -> None:
    assert missing([rule], [rule]) == []
    assert missing([], [rule])
    assert Rule.of(rule.to_json()) == rule


class Case:
    """A control plane in which rights are given."""

    def __init__(self) -> None:
        self.plane = Plane()
        self.loops = Loops(self.plane, Aggregation(self.plane.api))
        for role in self.plane.all("clusterroles"):
            self.loops.look(role["metadata"]["name"])
        self.plane.make("namespaces", "n")

    def role(self, name: str, *rules: Json, namespace: str = "", by: User = SYSTEM, **rest: Any) -> None:
        """A Role, or without namespace a ClusterRole."""
        plural = "roles" if namespace else "clusterroles"
        self.plane.make(plural, name, by=by, namespace=namespace, rules=list(rules), **rest)
        self.loops.settle()

    def bind(
        self, role: str, *subjects: Json, namespace: str = "", kind: str = "ClusterRole", by: User = SYSTEM
    ) -> None:
        """A RoleBinding, or without namespace a ClusterRoleBinding."""
        plural = "rolebindings" if namespace else "clusterrolebindings"
        reference = {"apiGroup": rbac.GROUP, "kind": kind, "name": role}
        name = f"b{len(self.plane.all(plural))}"
        self.plane.make(plural, name, by=by, namespace=namespace, roleRef=reference, subjects=list(subjects))

    def may(self, who: User, verb: str, resource: str, *, namespace: str = "", name: str = "", group: str = "") -> bool:
        """What a review answers."""
        plain, _, sub = resource.partition("/")
        about = {"verb": verb, "group": group, "resource": plain, "subresource": sub, "namespace": namespace}
        spec = {"resourceAttributes": {**about, "name": name}}
        answer = self.plane.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": spec}, by=who)
        return bool(answer["status"]["allowed"])


@pytest.fixture
def case() -> Case:
    """With the roles of every cluster."""
    return Case()


ACCOUNT = user("system:serviceaccount:n:sa")
EVE: Json = {"kind": "User", "name": "eve"}


def test_a_role_is_for_its_namespace_and_a_cluster_role_where_it_is_bound(case: Case) -> None:
    case.role("r", CORE_READ, namespace="n")
    case.bind("r", EVE, namespace="n", kind="Role")
    assert case.may(user("eve"), "get", "pods", namespace="n")
    assert not case.may(user("eve"), "get", "pods", namespace="default")
    assert not case.may(user("eve"), "get", "pods"), "everywhere is more than in one namespace"
    assert not case.may(user("bob"), "get", "pods", namespace="n")
    case.role("everywhere", {**CORE_READ, "resources": ["secrets"]})
    case.bind("everywhere", EVE)
    assert case.may(user("eve"), "get", "secrets")
    assert case.may(user("eve"), "get", "secrets", namespace="n")


@pytest.mark.parametrize(
    ("subject", "who", "bound"),
    [
        pytest.param({"kind": "User", "name": "eve"}, user("eve"), True, id="user"),
        pytest.param({"kind": "Group", "name": "team"}, user("eve", "team"), True, id="group"),
        pytest.param({"kind": "Group", "name": "eve"}, user("eve"), False, id="a-group-is-no-user"),
        pytest.param({"kind": "ServiceAccount", "name": "sa", "namespace": "n"}, ACCOUNT, True, id="account"),
        pytest.param({"kind": "ServiceAccount", "name": "sa", "namespace": "m"}, ACCOUNT, False, id="elsewhere"),
        pytest.param({"kind": "Group", "name": "system:serviceaccounts:n"},
                     user("x", "system:serviceaccounts", "system:serviceaccounts:n"), True, id="all-accounts"),
        pytest.param({"kind": "Group", "name": "system:authenticated"}, ANONYMOUS, False, id="nobody"),
        pytest.param({"kind": "Group", "name": "system:unauthenticated"}, ANONYMOUS, True, id="anonymous"),
    ],
)  # fmt: skip
def test_a_subject(case: Case, subject: Json, who: User, bound: bool) -> None:
    case.role("r", CORE_READ)
    case.bind("r", subject, namespace="n")
    assert case.may(who, "get", "pods", namespace="n") is bound


def test_a_binding_waits_for_its_role_and_ends_with_it(case: Case) -> None:
    case.bind("r", EVE)
    assert not case.may(user("eve"), "get", "pods")
    case.role("r", CORE_READ)
    assert case.may(user("eve"), "get", "pods")
    case.plane.remove("clusterroles", "r")
    assert not case.may(user("eve"), "get", "pods")


def test_masters_may_do_everything_and_others_only_what_every_cluster_grants(case: Case) -> None:
    master, nobody = User(name="root", groups=(MASTERS,)), user("nobody")
    assert case.may(master, "delete", "nodes", name="n")
    assert not case.may(nobody, "get", "pods", namespace="n")
    assert case.may(nobody, "create", "selfsubjectaccessreviews", group="authorization.k8s.io")
    assert not case.may(ANONYMOUS, "create", "selfsubjectaccessreviews", group="authorization.k8s.io")
    authorize = case.plane.api.parts.authorize
    assert authorize(attributes(nobody, "GET", "/api")).allowed
    assert authorize(attributes(ANONYMOUS, "GET", "/version")).allowed
    assert not authorize(attributes(ANONYMOUS, "GET", "/api")).allowed


def test_the_reason_names_binding_role_and_subject(case: Case) -> None:
    case.role("r", CORE_READ, namespace="n")
    case.bind("r", {"kind": "ServiceAccount", "name": "sa", "namespace": "n"}, namespace="n", kind="Role")
    who = user("system:serviceaccount:n:sa")
    verdict = case.plane.api.parts.authorize(attributes(who, "GET", "/api/v1/namespaces/n/pods/p"))
    assert verdict.reason == 'RBAC: allowed by RoleBinding "b0/n" of Role "r" to ServiceAccount "sa/n"'


def test_aggregation_follows_labels(case: Case) -> None:
    rule = {"apiGroups": ["kruntimes.io"], "resources": ["runs"], "verbs": ["get"]}
    case.bind("view", EVE, namespace="n")
    assert not case.may(user("eve"), "get", "runs", group="kruntimes.io", namespace="n")
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    case.role("runs-viewer", rule, metadata={"labels": labels})
    assert case.may(user("eve"), "get", "runs", group="kruntimes.io", namespace="n")
    assert case.may(user("eve"), "list", "pods", namespace="n"), "what was there stays"
    case.plane.remove("clusterroles", "runs-viewer")
    case.loops.settle()
    assert not case.may(user("eve"), "get", "runs", group="kruntimes.io", namespace="n")


# ---------------------------------------------------------------- handing on


def refused(action: Callable[[], object], code: int = 403) -> str:
    with pytest.raises(StatusError) as found:
        action()
    assert found.value.code == code
    return found.value.message


WRITE_ROLES: Json = {"apiGroups": [rbac.GROUP], "resources": ["*"], "verbs": ["create", "update"]}


@pytest.fixture
def eve(case: Case) -> User:
    """May write roles and bindings, and read Pods, in namespace n."""
    case.role("writer", WRITE_ROLES, CORE_READ)
    case.bind("writer", EVE, namespace="n")
    return user("eve")


def test_nobody_writes_rules_that_he_does_not_have(case: Case, eve: User) -> None:
    case.role("mine", {**CORE_READ, "verbs": ["list"]}, namespace="n", by=eve)
    more = {**CORE_READ, "resources": ["pods", "secrets"], "verbs": ["get", "delete"]}
    message = refused(lambda: case.role("more", more, namespace="n", by=eve))
    assert message == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "eve" (groups=["system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}'
    )


def test_who_may_escalate_may_write_any_rule(case: Case, eve: User) -> None:
    case.role("escalator", {"apiGroups": [rbac.GROUP], "resources": ["roles"], "verbs": ["escalate"]})
    case.bind("escalator", EVE, namespace="n")
    case.role("more", {**CORE_READ, "verbs": ["delete"]}, namespace="n", by=eve)


def test_nobody_binds_a_role_that_is_more_than_he_has(case: Case, eve: User) -> None:
    case.role("reader", CORE_READ)
    case.bind("reader", EVE, namespace="n", by=eve)
    assert "not currently held" in refused(lambda: case.bind("cluster-admin", EVE, namespace="n", by=eve))
    assert 'rolebindings.rbac.authorization.k8s.io "none" not found' in refused(
        lambda: case.bind("none", EVE, namespace="n", by=eve), 404
    )


def test_who_may_bind_one_role_binds_that_one_only(case: Case, eve: User) -> None:
    bind = {"apiGroups": [rbac.GROUP], "resources": ["clusterroles"], "resourceNames": ["edit"], "verbs": ["bind"]}
    case.role("binder", bind)
    case.bind("binder", EVE)
    case.bind("edit", EVE, namespace="n", by=eve)
    refused(lambda: case.bind("admin", EVE, namespace="n", by=eve))


def test_an_aggregating_role_takes_an_administrator(case: Case, eve: User) -> None:
    case.role("writer-everywhere", WRITE_ROLES)
    case.bind("writer-everywhere", EVE)
    rule = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    assert "aggregationRule" in refused(lambda: case.role("whole", by=eve, aggregationRule=rule))


def test_a_change_of_labels_gives_no_rights_and_needs_none(case: Case, eve: User) -> None:
    case.role("strong", {**CORE_READ, "verbs": ["*"]}, namespace="n")
    roles = case.plane.of("roles")

    def label(obj: Json) -> Json:
        obj["metadata"]["labels"] = {"a": "b"}
        return obj

    case.plane.api.change(roles, "n", "strong", label, Call(user=eve))


# ---------------------------------------------------------------- reviews


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({}, "exactly one of nonResourceAttributes or resourceAttributes must be specified", id="neither"),
        pytest.param(
            {"resourceAttributes": {}, "nonResourceAttributes": {}}, "exactly one of nonResourceAttributes", id="both"
        ),
    ],
)
def test_a_review_asks_one_question(case: Case, spec: Json, says: str) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert says in refused(lambda: case.plane.post(path, {"spec": spec}, by=user("eve")), 422)


def test_a_review_about_others_names_them(case: Case) -> None:
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    about = {"nonResourceAttributes": {"path": "/api", "verb": "get"}}
    assert "at least one of user or group" in refused(lambda: case.plane.post(path, {"spec": about}), 422)
    answer = case.plane.post(path, {"spec": {**about, "groups": ["system:authenticated"]}})
    assert answer["status"]["allowed"]


def test_a_local_review_stays_in_its_namespace(case: Case) -> None:
    path = "/apis/authorization.k8s.io/v1/namespaces/n/localsubjectaccessreviews"
    spec = {"user": "eve", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}
    assert "must match metadata.namespace" in refused(lambda: case.plane.post(path, {"spec": spec}), 422)
    elsewhere = {"user": "eve", "nonResourceAttributes": {"path": "/", "verb": "get"}}
    assert "disallowed" in refused(lambda: case.plane.post(path, {"spec": elsewhere}), 422)
    named = {"metadata": {"name": "x"}, "spec": spec}
    assert "must be empty except for namespace" in refused(lambda: case.plane.post(path, named), 422)


def test_all_rules_of_a_namespace(case: Case) -> None:
    case.role("r", CORE_READ)
    case.bind("r", EVE, namespace="n")
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    answer = case.plane.post(path, {"spec": {"namespace": "n"}}, by=user("eve"))
    assert CORE_READ in [dict(rule) for rule in answer["status"]["resourceRules"]]
    assert answer["status"]["incomplete"] is False
    refused(lambda: case.plane.post(path, {"spec": {}}, by=user("eve")), 400)


def test_who_am_i(case: Case) -> None:
    who = User(name="eve", uid="1", groups=("g",), extra={"k": ("v",)})
    answer = case.plane.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, by=who)
    assert answer["status"] == {"userInfo": {"username": "eve", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}}}


def test_whose_token_is_it(case: Case) -> None:
    case.plane.make("serviceaccounts", "sa")
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    status = case.plane.post(path, {"spec": {"token": case.plane.token("sa")}})["status"]
    assert status["authenticated"]
    assert status["user"]["username"] == "system:serviceaccount:default:sa"
    assert case.plane.post(path, {"spec": {"token": "x"}})["status"]["user"] == {}
    foreign = case.plane.token("sa", audiences=["vault"])
    assert "authenticated" not in case.plane.post(path, {"spec": {"token": foreign}})["status"]
    assert case.plane.post(path, {"spec": {"token": foreign, "audiences": ["vault"]}})["status"]["authenticated"]
    refused(lambda: case.plane.post(path, {"spec": {}}), 400)


# ---------------------------------------------------------------- speaking for others


def test_masters_speak_for_anybody(case: Case) -> None:
    root, authorize = User(name="root", groups=(MASTERS,)), case.plane.api.parts.authorize
    assert impersonated(root, [("Accept", "x")], authorize) is root
    eve = impersonated(root, [("Impersonate-User", "eve"), ("impersonate-group", "g")], authorize)
    assert eve == User(name="eve", groups=("g", "system:authenticated"))
    account = impersonated(root, [("Impersonate-User", "system:serviceaccount:n:sa")], authorize)
    assert account.groups == ("system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated")
    nobody = impersonated(root, [("Impersonate-User", "system:anonymous")], authorize)
    assert nobody == ANONYMOUS
    extra = [("Impersonate-User", "e"), ("Impersonate-Extra-Scopes", "a"), ("Impersonate-Uid", "7")]
    found = impersonated(root, extra, authorize)
    assert (found.extra, found.uid) == ({"scopes": ("a",)}, "7")


def test_others_need_the_right_for_each_name(case: Case) -> None:
    rule = {"apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate"]}
    case.role("as-bob", rule)
    case.bind("as-bob", EVE)
    authorize = case.plane.api.parts.authorize
    assert impersonated(user("eve"), [("Impersonate-User", "bob")], authorize).name == "bob"
    message = refused(lambda: impersonated(user("eve"), [("Impersonate-User", "root")], authorize))
    assert message == (
        'users "root" is forbidden: User "eve" cannot impersonate resource "users" in API group "" at the cluster scope'
    )
    both = [("Impersonate-User", "bob"), ("Impersonate-Group", MASTERS)]
    assert 'groups "system:masters" is forbidden' in refused(lambda: impersonated(user("eve"), both, authorize))


def test_a_group_alone_is_nobody(case: Case) -> None:
    headers = [("Impersonate-Group", "g"), ("Impersonate-Extra-A", "b")]
    message = refused(lambda: impersonated(user("eve"), headers, case.plane.api.parts.authorize), 400)
    assert message == (
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, '
        'Extra:map[string][]string{"a":[]string{"b"}}} without impersonating a user name'
    )
