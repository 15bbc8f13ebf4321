"""Identities for tests of authentication and authorization: ServiceAccounts, their tokens, and roles for them."""

import base64
import json
from typing import Any

from contract.client import Api, Json, at
from contract.objects import make

RBAC = "rbac.authorization.k8s.io"


def token_of(api: Api, ns: str, account: str, *, seconds: int | None = None, **spec: object) -> str:
    """A token of a ServiceAccount, by TokenRequest."""
    if seconds is not None:
        spec["expirationSeconds"] = seconds
    body = api.create(at("serviceaccounts", ns, account, "token"), {"spec": spec}).ok(201)
    token: str = body["status"]["token"]
    return token


def claims(token: str) -> Json:
    """What a JWT says."""
    part = token.split(".")[1]
    found: Json = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def header(token: str) -> Json:
    """The header of a JWT."""
    part = token.split(".")[0]
    found: Json = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def pod_reference(pod: Json) -> Json:
    """The `boundObjectRef` of a Pod."""
    meta = pod["metadata"]
    return {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}


def user(api: Api, ns: str, name: str, rules: list[Json]) -> Api:
    """A ServiceAccount that may do what *rules* say in *ns*; the client acts with its token."""
    make(api, "serviceaccounts", ns, name)
    if rules:
        make(api, "roles", ns, name, rules=rules)
        make(
            api,
            "rolebindings",
            ns,
            name,
            roleRef={"apiGroup": RBAC, "kind": "Role", "name": name},
            subjects=[{"kind": "ServiceAccount", "name": name, "namespace": ns}],
        )
    return api.bearer(token_of(api, ns, name))


def cluster_user(api: Api, ns: str, name: str, rules: list[Json]) -> Api:
    """The same with a ClusterRole and a ClusterRoleBinding, which the caller removes (`forget`)."""
    make(api, "serviceaccounts", ns, name)
    make(api, "clusterroles", None, name, rules=rules)
    make(
        api,
        "clusterrolebindings",
        None,
        name,
        roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": ns}],
    )
    return api.bearer(token_of(api, ns, name))


def forget(api: Api, name: str) -> None:
    """Removes what `cluster_user` made outside its namespace."""
    for resource in ("clusterrolebindings", "clusterroles"):
        api.delete(at(resource, None, name))


def attributes(ns: str, verb: str, resource: str, *, group: str = "", name: str = "", sub: str = "") -> Json:
    """What is asked, as `resourceAttributes`."""
    asked = {"namespace": ns, "verb": verb, "group": group, "resource": resource, "subresource": sub, "name": name}
    return {key: value for key, value in asked.items() if value}


def may(client: Api, **spec: Any) -> bool:
    """The answer to a SelfSubjectAccessReview."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    found: bool = client.create(at("selfsubjectaccessreviews"), body).ok(201)["status"]["allowed"]
    return found
