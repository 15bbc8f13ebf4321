"""ServiceAccount tokens: how they are asked for, what they say, and when they are no longer accepted."""

import base64
import json
from typing import Any

import pytest
from contract.client import Api, Json, at, eventually
from contract.objects import make
from contract.people import claims, header, pod_reference, token_of

ISSUER = "https://kubernetes.default.svc.cluster.local"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def whoami(api: Api, token: str) -> Any:
    """The answer to a SelfSubjectReview with that token."""
    return api.bearer(token).create(at("selfsubjectreviews"), REVIEW)


def test_a_token_request(api: Api, ns: str, name: str) -> None:
    account = make(api, "serviceaccounts", ns, name)
    body = api.create(at("serviceaccounts", ns, name, "token"), {"spec": {"expirationSeconds": 700}}).ok(201)
    assert (body["apiVersion"], body["kind"]) == ("authentication.k8s.io/v1", "TokenRequest")
    assert body["spec"]["expirationSeconds"] == 700
    assert body["spec"]["audiences"] == [ISSUER]
    assert body["spec"]["boundObjectRef"] is None
    assert (body["metadata"]["name"], body["metadata"]["namespace"]) == (name, ns)
    said = claims(body["status"]["token"])
    assert said["iss"] == ISSUER
    assert said["aud"] == [ISSUER]
    assert said["sub"] == f"system:serviceaccount:{ns}:{name}"
    assert said["exp"] - said["iat"] == 700
    assert said["nbf"] == said["iat"]
    assert len(said["jti"]) == 36
    assert said["kubernetes.io"] == {
        "namespace": ns,
        "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]},
    }
    assert header(body["status"]["token"])["alg"] in ("RS256", "ES256")
    assert len(body["status"]["expirationTimestamp"]) == 20


def test_without_a_wish_a_token_lives_an_hour(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    said = claims(token_of(api, ns, name))
    assert said["exp"] - said["iat"] == 3600


def test_a_token_bound_to_a_pod(api: Api, ns: str, name: str) -> None:
    """It names the Pod; a node's name and UID only where the Pod has one that exists."""
    make(api, "serviceaccounts", ns, name)
    pod = make(api, "pods", ns, name, spec={"serviceAccountName": name})
    said = claims(token_of(api, ns, name, boundObjectRef=pod_reference(pod)))
    assert said["kubernetes.io"]["pod"] == {"name": name, "uid": pod["metadata"]["uid"]}
    assert "node" not in said["kubernetes.io"]


def test_a_bound_pod_on_a_node_that_is_not_there(api: Api, ns: str, name: str) -> None:
    """The node is named without its UID."""
    make(api, "serviceaccounts", ns, name)
    spec = {"serviceAccountName": name, "nodeName": f"node-{name}", "tolerations": [{"operator": "Exists"}]}
    pod = make(api, "pods", ns, name, spec=spec)
    said = claims(token_of(api, ns, name, boundObjectRef=pod_reference(pod)))
    assert said["kubernetes.io"]["node"] == {"name": f"node-{name}"}


def test_who_a_token_is(api: Api, ns: str, name: str) -> None:
    account = make(api, "serviceaccounts", ns, name)
    token = token_of(api, ns, name)
    body = whoami(api, token).ok(201)
    info = body["status"]["userInfo"]
    assert (body["apiVersion"], body["kind"]) == ("authentication.k8s.io/v1", "SelfSubjectReview")
    assert info["username"] == f"system:serviceaccount:{ns}:{name}"
    assert info["uid"] == account["metadata"]["uid"]
    assert info["groups"] == ["system:serviceaccounts", f"system:serviceaccounts:{ns}", "system:authenticated"]
    assert info["extra"] == {"authentication.kubernetes.io/credential-id": [f"JTI={claims(token)['jti']}"]}


def test_who_a_pods_token_is(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    pod = make(api, "pods", ns, name, spec={"serviceAccountName": name})
    token = token_of(api, ns, name, boundObjectRef=pod_reference(pod))
    extra = whoami(api, token).ok(201)["status"]["userInfo"]["extra"]
    assert extra == {
        "authentication.kubernetes.io/credential-id": [f"JTI={claims(token)['jti']}"],
        "authentication.kubernetes.io/pod-name": [name],
        "authentication.kubernetes.io/pod-uid": [pod["metadata"]["uid"]],
    }


def test_who_the_administrator_is(api: Api) -> None:
    info = api.create(at("selfsubjectreviews"), REVIEW).ok(201)["status"]["userInfo"]
    assert {"system:masters", "system:authenticated"} <= set(info["groups"])


def test_nobody_may_ask_who_they_are(api: Api) -> None:
    api.bearer(None).create(at("selfsubjectreviews"), REVIEW).refused(
        403,
        "Forbidden",
        'selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous" cannot create resource '
        '"selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope',
    )


# ---------------------------------------------------------------- requests that are refused

OTHER = "00000000-0000-0000-0000-000000000000"
BAD: list[tuple[str, Json, int, str, str]] = [
    # id, spec with POD in place of the reference, code, reason, message
    ("too-short", {"expirationSeconds": 599}, 422, "Invalid",
     "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"),
    ("too-long", {"expirationSeconds": 2**32 + 1}, 422, "Invalid",
     "may not specify a duration larger than 2^32 seconds"),
    ("other-uid", {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "NAME", "uid": OTHER}}, 409,
     "Conflict", f"the UID in the bound object reference ({OTHER}) does not match the UID in record."),
    ("no-pod", {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "nope"}}, 404, "NotFound",
     'pods "nope" not found'),
    ("other-kind", {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "NAME"}}, 400, "BadRequest",
     "cannot bind token to object of type /v1, Kind=ConfigMap"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "code", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in BAD])
def test_token_requests_that_are_refused(
    api: Api, ns: str, name: str, spec: Json, code: int, reason: str, message: str
) -> None:
    make(api, "serviceaccounts", ns, name)
    make(api, "pods", ns, name, spec={"serviceAccountName": name})
    spec = json.loads(json.dumps(spec).replace("NAME", name))
    answer = api.create(at("serviceaccounts", ns, name, "token"), {"spec": spec})
    answer.refused(code, reason, message)


def test_a_pod_of_another_account(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    pod = make(api, "pods", ns, name)
    answer = api.create(at("serviceaccounts", ns, name, "token"), {"spec": {"boundObjectRef": pod_reference(pod)}})
    answer.refused(400, "BadRequest", "cannot bind token for serviceaccount", "to pod running with different")


def test_an_account_that_is_not_there(api: Api, ns: str, name: str) -> None:
    api.create(at("serviceaccounts", ns, name, "token"), {"spec": {}}).refused(
        404, "NotFound", f'serviceaccounts "{name}" not found'
    )


def test_a_request_under_another_name(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    api.create(at("serviceaccounts", ns, name, "token"), {"metadata": {"name": "other"}, "spec": {}}).refused(
        422, "Invalid", 'metadata.name: Invalid value: "other": must match the service account name if specified'
    )


# ---------------------------------------------------------------- tokens that are refused


def test_a_token_for_another_audience_is_401(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    token = token_of(api, ns, name, audiences=["https://elsewhere.example"])
    assert claims(token)["aud"] == ["https://elsewhere.example"]
    whoami(api, token).refused(401, "Unauthorized", "Unauthorized")


def test_a_token_for_ours_among_others_is_good(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    whoami(api, token_of(api, ns, name, audiences=["https://elsewhere.example", ISSUER])).ok(201)


def tampered(token: str, **changes: object) -> str:
    """The token with other claims under its old signature."""
    head, _, signature = token.split(".")
    body = base64.urlsafe_b64encode(json.dumps({**claims(token), **changes}).encode()).decode().rstrip("=")
    return f"{head}.{body}.{signature}"


MALFORMED: list[tuple[str, str]] = [
    ("word", "nonsense"),
    ("three-parts", "a.b.c"),
    ("no-signature", "HEAD.BODY."),
    ("cut", "HEAD.BODY"),
    ("other-signature", "HEAD.BODY.AAAA"),
    ("longer-life", "LONGER"),
    ("no-algorithm", "NONE"),
]


@pytest.mark.parametrize("form", [pytest.param(row[1], id=row[0]) for row in MALFORMED])
def test_tokens_that_are_none_are_401(api: Api, ns: str, name: str, form: str) -> None:
    """A credential that is not accepted is never taken for an anonymous request."""
    make(api, "serviceaccounts", ns, name)
    token = token_of(api, ns, name)
    head, body, _ = token.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    sent = {
        "LONGER": tampered(token, exp=claims(token)["exp"] + 9999),
        "NONE": f"{none}.{body}.",
    }.get(form, form.replace("HEAD", head).replace("BODY", body))
    said = whoami(api, sent).refused(401, "Unauthorized", "Unauthorized")
    assert "details" not in said
    assert api.bearer(sent).get("/version").code == 401


def test_the_words_before_a_token(api: Api, ns: str, name: str) -> None:
    """`bearer` in any case is understood; any other scheme is no credential, and so anonymous."""
    make(api, "serviceaccounts", ns, name)
    token = token_of(api, ns, name)
    nobody = api.bearer(None).http
    for scheme, code in (("bearer", 201), ("BEARER", 201), ("Token", 403), ("Basic", 403)):
        answer = nobody.post(at("selfsubjectreviews"), json=REVIEW, headers={"authorization": f"{scheme} {token}"})
        assert answer.status_code == code, scheme


def test_a_token_of_a_deleted_pod_is_401(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    pod = make(api, "pods", ns, name, spec={"serviceAccountName": name})
    token = token_of(api, ns, name, boundObjectRef=pod_reference(pod))
    api.delete(at("pods", ns, name), {"gracePeriodSeconds": 0}).ok(200)
    eventually("token refused", lambda: whoami(api, token).code == 401)
    make(api, "pods", ns, name, spec={"serviceAccountName": name})
    whoami(api, token).refused(401, "Unauthorized")


def test_a_token_of_a_pod_that_is_being_deleted_is_still_good(api: Api, ns: str, name: str) -> None:
    """For the grace period and a minute more."""
    make(api, "serviceaccounts", ns, name)
    spec = {"serviceAccountName": name, "nodeName": "no-such-node", "tolerations": [{"operator": "Exists"}]}
    pod = make(api, "pods", ns, name, spec=spec)
    token = token_of(api, ns, name, boundObjectRef=pod_reference(pod))
    api.delete(at("pods", ns, name)).ok(200)
    whoami(api, token).ok(201)
    api.delete(at("pods", ns, name), {"gracePeriodSeconds": 0}).ok(200)


def test_a_token_of_a_deleted_account_is_401(api: Api, ns: str, name: str) -> None:
    """At once for a token that was not seen before; one that was just accepted may be for ten seconds more."""
    make(api, "serviceaccounts", ns, name)
    token = token_of(api, ns, name)
    api.delete(at("serviceaccounts", ns, name)).ok(200)
    eventually("token refused", lambda: whoami(api, token).code == 401)
    make(api, "serviceaccounts", ns, name)
    whoami(api, token).refused(401, "Unauthorized")


def test_a_token_bound_to_a_secret(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    secret = make(api, "secrets", ns, name)
    reference = {"kind": "Secret", "apiVersion": "v1", "name": name, "uid": secret["metadata"]["uid"]}
    token = token_of(api, ns, name, boundObjectRef=reference)
    assert claims(token)["kubernetes.io"]["secret"] == {"name": name, "uid": secret["metadata"]["uid"]}
    api.delete(at("secrets", ns, name)).ok(200)
    eventually("token refused", lambda: whoami(api, token).code == 401)


# ---------------------------------------------------------------- TokenReview


def test_a_token_review(api: Api, ns: str, name: str) -> None:
    make(api, "serviceaccounts", ns, name)
    body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}}
    body["spec"]["token"] = token_of(api, ns, name)
    status = api.create(at("tokenreviews"), body).ok(201)["status"]
    assert status["authenticated"] is True
    assert status["user"]["username"] == f"system:serviceaccount:{ns}:{name}"
    assert status["audiences"] == [ISSUER]
    body["spec"]["token"] = "nonsense"
    status = api.create(at("tokenreviews"), body).ok(201)["status"]
    assert "authenticated" not in status
    assert status["error"]
