"""Roles and bindings: whom they reach, what is refused, and that nobody gives rights beyond their own."""

from collections.abc import Iterator

import pytest
from contract.client import (
    Api,
    Json,
    at,
    eventually,
)
from contract.objects import make, obj
from contract.people import RBAC, attributes, cluster_user, forget, may, user

KR = "kruntimes.io"


@pytest.fixture
def outside(api: Api, name: str) -> Iterator[str]:
    """A name for cluster-scoped roles and bindings, which are removed at the end."""
    yield name
    forget(api, name)


def test_a_cluster_role_bound_in_a_namespace_ends_there(api: Api, ns: str, outside: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    make(api, "clusterroles", None, outside, rules=rules)
    client = user(api, ns, outside, [])
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": outside}
    subjects = [{"kind": "ServiceAccount", "name": outside, "namespace": ns}]
    make(api, "rolebindings", ns, outside, roleRef=reference, subjects=subjects)
    eventually("allowed here", lambda: may(client, resourceAttributes=attributes(ns, "get", "secrets")))
    assert not may(client, resourceAttributes=attributes("default", "get", "secrets"))


def test_a_cluster_role_binding_counts_everywhere(api: Api, ns: str, outside: str) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]},
    ]
    client = cluster_user(api, ns, outside, rules)
    eventually("allowed", lambda: may(client, resourceAttributes=attributes("", "get", "nodes")))
    assert may(client, resourceAttributes=attributes("default", "get", "nodes"))
    assert may(client, nonResourceAttributes={"path": "/debug/x/y", "verb": "get"})
    assert not may(client, nonResourceAttributes={"path": "/debug", "verb": "get"})
    assert not may(client, nonResourceAttributes={"path": "/metrics/x", "verb": "get"})


SUBJECTS: list[tuple[str, Json, bool]] = [
    ("account", {"kind": "ServiceAccount", "name": "NAME", "namespace": "NS"}, True),
    ("account-by-user-name", {"kind": "User", "apiGroup": RBAC, "name": "system:serviceaccount:NS:NAME"}, True),
    ("all-accounts-of-the-namespace", {"kind": "Group", "apiGroup": RBAC, "name": "system:serviceaccounts:NS"}, True),
    ("all-accounts", {"kind": "Group", "apiGroup": RBAC, "name": "system:serviceaccounts"}, True),
    ("everyone-with-a-name", {"kind": "Group", "apiGroup": RBAC, "name": "system:authenticated"}, True),
    ("nobody", {"kind": "Group", "apiGroup": RBAC, "name": "system:unauthenticated"}, False),
    ("other-namespace", {"kind": "ServiceAccount", "name": "NAME", "namespace": "default"}, False),
]


@pytest.mark.parametrize(("subject", "allowed"), [pytest.param(*row[1:], id=row[0]) for row in SUBJECTS])
def test_subjects(api: Api, ns: str, name: str, subject: Json, allowed: bool) -> None:
    client = user(api, ns, name, [])
    subject = {k: v.replace("NAME", name).replace("NS", ns) for k, v in subject.items()}
    rules = [{"apiGroups": [""], "resources": ["endpoints"], "resourceNames": [name], "verbs": ["get"]}]
    make(api, "roles", ns, name, rules=rules)
    marker = {"kind": "ServiceAccount", "name": "marker", "namespace": ns}
    make(api, "rolebindings", ns, name, roleRef={"apiGroup": RBAC, "kind": "Role", "name": name},
         subjects=[subject, marker])  # fmt: skip
    asked = attributes(ns, "get", "endpoints", name=name)
    review = {"spec": {"user": f"system:serviceaccount:{ns}:marker", "resourceAttributes": asked}}
    eventually("binding in force", lambda: api.create(at("subjectaccessreviews"), review).ok(201)["status"]["allowed"])
    assert may(client, resourceAttributes=asked) is allowed


def test_a_right_is_gone_with_its_binding(api: Api, ns: str, name: str) -> None:
    client = user(api, ns, name, [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}])
    asked = attributes(ns, "get", "secrets")
    eventually("allowed", lambda: may(client, resourceAttributes=asked))
    api.delete(at("rolebindings", ns, name)).ok(200)
    eventually("refused", lambda: not may(client, resourceAttributes=asked))


def test_the_reference_of_a_binding_cannot_change(api: Api, ns: str, name: str) -> None:
    make(api, "rolebindings", ns, name)
    answer = api.patch(at("rolebindings", ns, name), {"roleRef": {"name": "other"}})
    answer.refused(422, "Invalid", "roleRef: Invalid value: ", "field is immutable")


BAD_OBJECTS: list[tuple[str, str, Json, str]] = [
    ("rule-without-verbs", "roles", {"rules": [{"apiGroups": [""], "resources": ["pods"]}]},
     "rules[0].verbs: Required value"),
    ("rule-without-groups", "roles", {"rules": [{"resources": ["pods"], "verbs": ["get"]}]},
     "rules[0].apiGroups: Required value: resource rules must supply at least one api group"),
    ("rule-without-resources", "roles", {"rules": [{"apiGroups": [""], "verbs": ["get"]}]},
     "rules[0].resources: Required value: resource rules must supply at least one resource"),
    ("paths-in-a-role", "roles", {"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]},
     "rules[0].nonResourceURLs: Invalid value: "),
    ("no-role", "rolebindings", {"roleRef": {"apiGroup": RBAC, "kind": "Role"}}, "roleRef.name: Required value"),
    ("kind", "rolebindings", {"roleRef": {"apiGroup": RBAC, "kind": "Thing", "name": "x"}},
     'roleRef.kind: Unsupported value: "Thing": supported values: "Role", "ClusterRole"'),
    ("subject-kind", "rolebindings", {"subjects": [{"kind": "Robot", "name": "x"}]},
     'subjects[0].kind: Unsupported value: "Robot"'),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "fields", "message"), [pytest.param(*row[1:], id=row[0]) for row in BAD_OBJECTS])
def test_roles_and_bindings_that_are_refused(
    api: Api, ns: str, name: str, resource: str, fields: Json, message: str
) -> None:
    api.create(at(resource, ns), obj(resource, name, **fields)).refused(422, "Invalid", message)


# ---------------------------------------------------------------- escalation

MANAGER: list[Json] = [
    {"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": ["get", "create", "update", "patch"]},
    {"apiGroups": [KR], "resources": ["runs"], "verbs": ["get", "list"]},
]
"""May write roles, and has few rights of its own. The verb `*` would hold `escalate` and `bind` too."""


@pytest.fixture
def manager(api: Api, ns: str, name: str) -> Api:
    """A ServiceAccount with MANAGER's rules."""
    client = user(api, ns, f"{name}-manager", MANAGER)
    eventually("rules in force", lambda: may(client, resourceAttributes=attributes(ns, "get", "roles", group=RBAC)))
    return client


GIVEN: list[tuple[str, list[Json], bool]] = [
    ("its-own", [{"apiGroups": [KR], "resources": ["runs"], "verbs": ["get"]}], True),
    ("its-own-by-name", [{"apiGroups": [KR], "resources": ["runs"], "resourceNames": ["x"], "verbs": ["get"]}], True),
    ("more-verbs", [{"apiGroups": [KR], "resources": ["runs"], "verbs": ["get", "delete"]}], False),
    ("every-verb", [{"apiGroups": [KR], "resources": ["runs"], "verbs": ["*"]}], False),
    ("subresource", [{"apiGroups": [KR], "resources": ["runs/status"], "verbs": ["get"]}], False),
    ("more-resources", [{"apiGroups": [KR], "resources": ["runs", "runtimes"], "verbs": ["get"]}], False),
    ("other-group", [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}], False),
    ("nothing", [], True),
]


@pytest.mark.parametrize(("rules", "allowed"), [pytest.param(*row[1:], id=row[0]) for row in GIVEN])
def test_nobody_gives_rights_that_they_do_not_have(
    ns: str, name: str, manager: Api, rules: list[Json], allowed: bool
) -> None:
    answer = manager.create(at("roles", ns), obj("roles", name, rules=rules))
    if allowed:
        answer.ok(201)
        return
    answer.refused(
        403,
        "Forbidden",
        f'roles.rbac.authorization.k8s.io "{name}" is forbidden: user "system:serviceaccount:{ns}:{name}-manager" '
        '(groups=["system:serviceaccounts" ',
        "is attempting to grant RBAC permissions not currently held:\n{APIGroups:[",
    )


def test_the_same_for_changes(api: Api, ns: str, name: str, manager: Api) -> None:
    make(api, "roles", ns, name, rules=[])
    path = at("roles", ns, name)
    more = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    manager.patch(path, {"rules": more}).refused(403, "Forbidden", "RBAC permissions not currently held")
    manager.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok(200)
    api.patch(path, {"rules": more}).ok(200)


def test_nobody_binds_a_role_with_rights_that_they_do_not_have(api: Api, ns: str, name: str, manager: Api) -> None:
    make(api, "roles", ns, name, rules=[{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}])
    body = obj("rolebindings", name, roleRef={"apiGroup": RBAC, "kind": "Role", "name": name})
    manager.create(at("rolebindings", ns), body).refused(403, "Forbidden", "RBAC permissions not currently held")
    everything = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    body = obj("rolebindings", name, roleRef=everything)
    manager.create(at("rolebindings", ns), body).refused(403, "Forbidden", "RBAC permissions not currently held")


def test_a_binding_to_a_role_that_is_not_there_is_404_for_those_who_must_hold_it(
    ns: str, name: str, manager: Api
) -> None:
    body = obj("rolebindings", name, roleRef={"apiGroup": RBAC, "kind": "Role", "name": "nope"})
    manager.create(at("rolebindings", ns), body).refused(404, "NotFound", '"nope" not found')


@pytest.mark.parametrize("verb", ["bind", "escalate"])
def test_the_verbs_that_lift_it(api: Api, ns: str, name: str, verb: str) -> None:
    """`escalate` for what a role says, `bind` for bindings to a role."""
    make(api, "roles", ns, f"{name}-much", rules=[{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}])
    rules = [
        *MANAGER,
        {"apiGroups": [RBAC], "resources": ["roles"], "resourceNames": [f"{name}-much"], "verbs": [verb]},
    ]
    client = user(api, ns, name, rules)
    asked = attributes(ns, "get", "roles", group=RBAC)
    eventually("rules in force", lambda: may(client, resourceAttributes=asked))
    body = obj("rolebindings", f"{name}-b", roleRef={"apiGroup": RBAC, "kind": "Role", "name": f"{name}-much"})
    assert client.create(at("rolebindings", ns), body).code == (201 if verb == "bind" else 403)
    more = {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]}
    assert client.patch(at("roles", ns, f"{name}-much"), more).code == (200 if verb == "escalate" else 403)


# ---------------------------------------------------------------- roles that are always there


def test_roles_are_aggregated(api: Api, ns: str, outside: str) -> None:
    """A ClusterRole with `aggregationRule` holds the rules of those with the label, soon after they change."""
    label = f"contract.example/{outside}"
    rule = {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}
    make(api, "clusterroles", None, outside, rules=[], aggregationRule=rule)
    given = [{"apiGroups": ["x.io"], "resources": ["things"], "verbs": ["get"]}]
    make(api, "clusterroles", None, f"{outside}-part", meta={"labels": {label: "true"}}, rules=given)
    try:
        path = at("clusterroles", None, outside)
        eventually("aggregated", lambda: api.get(path).ok(200)["rules"] == given)
        api.delete(at("clusterroles", None, f"{outside}-part")).ok(200)
        eventually("taken out again", lambda: not api.get(path).ok(200)["rules"])
    finally:
        api.delete(at("clusterroles", None, f"{outside}-part"))


@pytest.mark.parametrize(
    ("role", "asked", "allowed"),
    [
        ("view", attributes("NS", "get", "pods"), True),
        ("view", attributes("NS", "get", "secrets"), False),
        ("view", attributes("NS", "create", "pods"), False),
        ("edit", attributes("NS", "create", "pods"), True),
        ("edit", attributes("NS", "create", "roles", group=RBAC), False),
        ("admin", attributes("NS", "create", "roles", group=RBAC), True),
        ("cluster-admin", attributes("NS", "juggle", "things", group="x.io"), True),
    ],
    ids=["view-pods", "view-no-secrets", "view-no-writes", "edit-pods", "edit-no-roles", "admin-roles", "everything"],
)
def test_roles_for_people(api: Api, ns: str, name: str, role: str, asked: Json, allowed: bool) -> None:
    client = user(api, ns, name, [])
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": ns}]
    make(api, "rolebindings", ns, name, roleRef=reference, subjects=subjects)
    eventually("bound", lambda: may(client, resourceAttributes=attributes(ns, "get", "configmaps")))
    assert may(client, resourceAttributes={**asked, "namespace": ns}) is allowed
