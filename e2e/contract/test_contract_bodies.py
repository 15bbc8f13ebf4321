"""What a body may be: JSON, YAML, protobuf; what is refused, and with which words."""

import pytest
from contract.client import JSON, PROTOBUF, YAML, Api, Json, at
from contract.objects import make
from contract.wire import Message, envelope, meta

BOTH = pytest.mark.parametrize("resource", ["configmaps", "widgets"])

BODIES: list[tuple[str, str, bytes, int, str, str]] = [
    # id, media type, body, code, reason, message
    ("no-json", JSON, b"{nope", 400, "BadRequest",
     "the object provided is unrecognized (must be of type KIND): couldn't get version/kind; json parse error: "),
    ("empty", JSON, b"", 400, "BadRequest", "json parse error: unexpected end of JSON input (<empty>)"),
    ("list", JSON, b"[]", 400, "BadRequest", "json: cannot unmarshal array into Go value"),
    ("text", JSON, b'"x"', 400, "BadRequest", "json: cannot unmarshal string into Go value"),
    ("unknown-type", "text/plain", b"{}", 415, "UnsupportedMediaType",
     "the body of the request was in an unknown format - accepted media types include: application/json, "
     "application/yaml, application/vnd.kubernetes.protobuf"),
    ("form", "application/x-www-form-urlencoded", b"a=b", 415, "UnsupportedMediaType", "accepted media types include"),
    ("no-yaml", YAML, b"a: [", 400, "BadRequest", "the object provided is unrecognized (must be of type KIND): "),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(
    ("type", "body", "code", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in BODIES]
)
def test_bodies_that_are_none(
    api: Api, ns: str, resource: str, type: str, body: bytes, code: int, reason: str, message: str
) -> None:
    kind = {"configmaps": "ConfigMap", "widgets": "Widget"}[resource]
    api.create(at(resource, ns), body, type=type).refused(code, reason, message.replace("KIND", kind))


KINDS: list[tuple[str, str, Json, int, str, str]] = [
    # id, resource, fields beside the name, code, reason, message
    ("built-in-without-kind", "configmaps", {}, 201, "", ""),
    ("built-in-other-kind", "configmaps", {"apiVersion": "v1", "kind": "Secret"}, 400, "BadRequest",
     'Secret in version "v1" cannot be handled as a ConfigMap: '),
    ("built-in-other-version", "configmaps", {"apiVersion": "v2", "kind": "ConfigMap"}, 400, "BadRequest",
     'ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "v2"'),
    ("custom-without-kind", "widgets", {"spec": {"size": 1}}, 400, "BadRequest",
     "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in "),
    ("custom-other-kind", "widgets", {"apiVersion": "contract.example/v1", "kind": "Gadget", "spec": {"size": 1}}, 422,
     "Invalid", 'Gadget.contract.example "NAME" is invalid: kind: Invalid value: "Gadget": must be Widget'),
    ("custom-other-version", "widgets", {"apiVersion": "contract.example/v2", "kind": "Widget", "spec": {"size": 1}},
     400, "BadRequest", "the API version in the data (contract.example/v2) does not match the expected API version "
     "(contract.example/v1)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "fields", "code", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in KINDS]
)
def test_the_kind_of_a_body(
    api: Api, ns: str, name: str, resource: str, fields: Json, code: int, reason: str, message: str
) -> None:
    answer = api.create(at(resource, ns), {"metadata": {"name": name}, **fields})
    if code == 201:
        answer.ok(201)
    else:
        answer.refused(code, reason, message.replace("NAME", name))


@BOTH
@pytest.mark.parametrize("space", ["other", "NS", ""], ids=["other", "same", "empty"])
def test_the_namespace_of_a_body(api: Api, ns: str, name: str, resource: str, space: str) -> None:
    kind = {"configmaps": ("v1", "ConfigMap"), "widgets": ("contract.example/v1", "Widget")}[resource]
    body = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": name, "namespace": space.replace("NS", ns)}}
    answer = api.create(at(resource, ns), body | ({"spec": {"size": 1}} if resource == "widgets" else {}))
    if space == "other":
        answer.refused(
            400, "BadRequest", "the namespace of the provided object does not match the namespace sent on the request"
        )
    else:
        assert answer.ok(201)["metadata"]["namespace"] == ns


@BOTH
def test_a_namespace_that_is_not_there(api: Api, name: str, resource: str) -> None:
    kind = {"configmaps": ("v1", "ConfigMap"), "widgets": ("contract.example/v1", "Widget")}[resource]
    body = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": name}}
    answer = api.create(at(resource, name), body | ({"spec": {"size": 1}} if resource == "widgets" else {}))
    said = answer.refused(404, "NotFound", f'namespaces "{name}" not found')
    assert said["details"] == {"name": name, "kind": "namespaces"}


@pytest.mark.parametrize("type", [YAML, f"{YAML}; charset=utf-8", "application/json; charset=utf-8"])
def test_yaml_and_parameters(api: Api, ns: str, name: str, type: str) -> None:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: |\n    two\n    lines\n"
    if "json" in type:
        text = f'{{"metadata": {{"name": "{name}"}}, "data": {{"a": "two\\nlines\\n"}}}}'
    made = api.create(at("configmaps", ns), text.encode(), type=type).ok(201)
    assert made["data"] == {"a": "two\nlines\n"}


def test_a_body_without_media_type_is_json(api: Api, ns: str, name: str) -> None:
    body = f'{{"metadata": {{"name": "{name}"}}}}'.encode()
    answer = api.http.post(at("configmaps", ns), content=body, headers={"content-type": ""})
    assert answer.status_code == 201


def test_a_body_that_is_too_large_is_413(api: Api, ns: str, name: str) -> None:
    """More than 3 MiB."""
    body = b'{"metadata": {"name": "%s"}, "data": {"a": "%s"}}' % (name.encode(), b"x" * (3 * 1024 * 1024))
    api.create(at("configmaps", ns), body).refused(413, "RequestEntityTooLarge", "limit is 3145728")


def test_utf8(api: Api, ns: str, name: str) -> None:
    made = make(api, "widgets", ns, name, spec={"nested": {"free": {"ü€𝄞": "\u2028 \u0000?"}}})
    assert made["spec"]["nested"]["free"] == {"ü€𝄞": "\u2028 \u0000?"}


def test_numbers_and_nulls_are_kept_in_free_form(api: Api, ns: str, name: str) -> None:
    free = {"int": 1, "float": 1.5, "big": 1e300, "null": None, "deep": {"a": [None, {"b": None}]}, "empty": {}}
    make(api, "widgets", ns, name, spec={"nested": {"free": free}})
    assert api.get(at("widgets", ns, name)).ok(200)["spec"]["nested"]["free"] == free


def test_null_maps_and_lists_of_built_in_kinds_are_left_out(api: Api, ns: str, name: str) -> None:
    made = api.create(at("configmaps", ns), {"metadata": {"name": name, "labels": {}}, "data": None}).ok(201)
    assert "data" not in made
    assert "labels" not in made["metadata"]


def test_empty_maps_of_custom_kinds(api: Api, ns: str, name: str) -> None:
    made = make(api, "widgets", ns, name, meta={"labels": {}, "annotations": {}}, spec={"labels": {}})
    assert made["spec"]["labels"] == {}
    assert not {"labels", "annotations"} & made["metadata"].keys()


# ---------------------------------------------------------------- protobuf

RBAC = "rbac.authorization.k8s.io"
SUBJECT: Message = [(1, "ServiceAccount"), (2, ""), (3, "default"), (4, "default")]
TYPED: list[tuple[str, str, str, str, Message, Json]] = [
    # id, resource, apiVersion, kind, fields beside metadata, what must stand in the object then
    ("service-account", "serviceaccounts", "v1", "ServiceAccount", [], {}),
    ("config-map", "configmaps", "v1", "ConfigMap", [(2, [(1, "a"), (2, "1")])], {"data": {"a": "1"}}),
    ("secret", "secrets", "v1", "Secret", [(2, [(1, "a"), (2, b"1")]), (3, "Opaque")],
     {"data": {"a": "MQ=="}, "type": "Opaque"}),
    ("role", "roles", f"{RBAC}/v1", "Role", [(2, [(1, "get"), (1, "list"), (2, ""), (3, "pods")])],
     {"rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]}),
    ("role-binding", "rolebindings", f"{RBAC}/v1", "RoleBinding",
     [(2, SUBJECT), (3, [(1, RBAC), (2, "Role"), (3, "r")])],
     {"subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
      "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "version", "kind", "fields", "expected"), [pytest.param(*row[1:], id=row[0]) for row in TYPED]
)
def test_what_kubectl_creates_in_protobuf(
    api: Api, ns: str, name: str, resource: str, version: str, kind: str, fields: Message, expected: Json
) -> None:
    """It accepts JSON as the answer."""
    body = envelope(version, kind, [(1, meta(name, a="b")), *fields])
    made = api.create(at(resource, ns), body, type=PROTOBUF).ok(201)
    assert (made["kind"], made["metadata"]["name"], made["metadata"]["labels"]) == (kind, name, {"a": "b"})
    assert {key: made[key] for key in expected} == expected


def test_a_namespace_in_protobuf(api: Api, name: str) -> None:
    body = envelope("v1", "Namespace", [(1, meta(name)), (2, []), (3, [])])
    assert api.create(at("namespaces"), body, type=PROTOBUF).ok(201)["status"] == {"phase": "Active"}
    api.delete(at("namespaces", None, name)).ok(200)


def test_a_cluster_role_and_binding_in_protobuf(api: Api, name: str) -> None:
    rule: Message = [(1, "get"), (5, "/x")]
    body = envelope(f"{RBAC}/v1", "ClusterRole", [(1, meta(name)), (2, rule)])
    made = api.create(at("clusterroles"), body, type=PROTOBUF).ok(201)
    assert made["rules"] == [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]
    reference: Message = [(1, RBAC), (2, "ClusterRole"), (3, name)]
    body = envelope(f"{RBAC}/v1", "ClusterRoleBinding", [(1, meta(name)), (2, SUBJECT), (3, reference)])
    made = api.create(at("clusterrolebindings"), body, type=PROTOBUF).ok(201)
    assert made["roleRef"]["name"] == name
    for resource in ("clusterrolebindings", "clusterroles"):
        api.delete(at(resource, None, name)).ok(200)


def test_a_token_request_in_protobuf(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    body = envelope("authentication.k8s.io/v1", "TokenRequest", [(1, [(8, [])]), (2, [(4, 700)]), (3, [(2, [])])])
    made = api.create(at("serviceaccounts", ns, name, "token"), body, type=PROTOBUF).ok(201)
    assert made["spec"]["expirationSeconds"] == 700
    assert made["status"]["token"].count(".") == 2


def test_reviews_in_protobuf(api: Api, ns: str) -> None:
    attributes: Message = [(1, ns), (2, "get"), (3, ""), (4, ""), (5, "pods"), (6, ""), (7, "")]
    group = "authorization.k8s.io/v1"
    body = envelope(group, "SelfSubjectAccessReview", [(1, [(8, [])]), (2, [(1, attributes)]), (3, [(1, False)])])
    made = api.create(at("selfsubjectaccessreviews"), body, type=PROTOBUF).ok(201)
    assert made["spec"]["resourceAttributes"] == {"namespace": ns, "verb": "get", "resource": "pods"}
    assert made["status"]["allowed"] is True
    body = envelope("authentication.k8s.io/v1", "SelfSubjectReview", [(1, [(8, [])]), (2, [(1, [])])])
    made = api.create(at("selfsubjectreviews"), body, type=PROTOBUF).ok(201)
    assert "system:masters" in made["status"]["userInfo"]["groups"]


@pytest.mark.parametrize(
    "body",
    [b"", b"k8s\0", b"nonsense that is long enough", b"k8s\0\xff\xff\xff\xff"],
    ids=["empty", "magic-only", "no-magic", "cut"],
)
def test_protobuf_that_is_none(api: Api, ns: str, body: bytes) -> None:
    api.create(at("configmaps", ns), body, type=PROTOBUF).refused(400, "BadRequest")


def test_delete_options_in_protobuf(api: Api, ns: str, name: str) -> None:
    """gracePeriodSeconds 1, preconditions 2 {uid 1}, propagationPolicy 4."""
    made = make(api, "configmaps", ns, name)
    wrong = envelope("v1", "DeleteOptions", [(2, [(1, "other")])])
    api.call("DELETE", at("configmaps", ns, name), wrong, type=PROTOBUF).refused(409, "Conflict", "the UID in the pre")
    right = envelope("v1", "DeleteOptions", [(1, 0), (2, [(1, made["metadata"]["uid"])]), (4, "Background")])
    api.call("DELETE", at("configmaps", ns, name), right, type=PROTOBUF).ok(200)
