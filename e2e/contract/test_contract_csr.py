"""CertificateSigningRequests: who asked is written by the server; approval and status are apart."""

import base64
import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract.client import JSON_PATCH, Api, Json, at, eventually
from contract.objects import make
from contract.people import claims, cluster_user, forget, pod_reference, token_of
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SIGNER = "contract.example/tester"
OTHER_SIGNER = "contract.example/other"


def request() -> str:
    """A PKCS #10 request as the API wants it: PEM in base64."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def csr(name: str, **spec: object) -> Json:
    """A request for a certificate."""
    full: Json = {"request": REQUEST, "signerName": SIGNER, "usages": ["digital signature", "client auth"], **spec}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {k: v for k, v in full.items() if v is not None},
    }


REQUEST = request()
APPROVED = {"type": "Approved", "status": "True", "reason": "Tried", "message": "m"}
DENIED = {"type": "Denied", "status": "True", "reason": "Tried", "message": "m"}
FAILED = {"type": "Failed", "status": "True", "reason": "Tried", "message": "m"}


@pytest.fixture
def named(api: Api, name: str) -> Iterator[str]:
    """The name of a request, which is removed at the end."""
    yield name
    api.delete(at("certificatesigningrequests", None, name))


def path_of(name: str, sub: str | None = None) -> str:
    """The path of a request."""
    return at("certificatesigningrequests", None, name, sub)


def ask(api: Api, name: str, **spec: object) -> Json:
    """Creates one as the administrator."""
    return api.create(at("certificatesigningrequests"), csr(name, **spec)).ok(201)


def certificate() -> str:
    """A certificate chain as the API wants it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def test_who_asked_is_written_by_the_server(api: Api, ns: str, named: str) -> None:
    """What the caller says about it is overwritten; a token that is bound to a Pod brings the Pod along."""
    rules = [{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]}]
    cluster_user(api, ns, named, rules)
    try:
        pod = make(api, "pods", ns, named, spec={"serviceAccountName": named})
        token = token_of(api, ns, named, boundObjectRef=pod_reference(pod))
        forged = {"username": "root", "uid": "0", "groups": ["system:masters"], "extra": {"a": ["b"]}}
        client = api.bearer(token)
        answer = eventually(
            "allowed",
            lambda: (
                a if (a := client.create(at("certificatesigningrequests"), csr(named, **forged))).code != 403 else 0
            ),
        )
        spec = answer.ok(201)["spec"]
        assert spec["username"] == f"system:serviceaccount:{ns}:{named}"
        assert spec["uid"] == claims(token)["kubernetes.io"]["serviceaccount"]["uid"]
        assert spec["groups"] == ["system:serviceaccounts", f"system:serviceaccounts:{ns}", "system:authenticated"]
        assert spec["extra"] == {
            "authentication.kubernetes.io/credential-id": [f"JTI={claims(token)['jti']}"],
            "authentication.kubernetes.io/pod-name": [named],
            "authentication.kubernetes.io/pod-uid": [pod["metadata"]["uid"]],
        }
    finally:
        forget(api, named)


def test_a_request_as_it_is_made(api: Api, named: str) -> None:
    made = ask(api, named, expirationSeconds=3600)
    spec = made["spec"]
    assert (spec["request"], spec["signerName"], spec["expirationSeconds"]) == (REQUEST, SIGNER, 3600)
    assert spec["usages"] == ["digital signature", "client auth"]
    assert made["status"] == {}
    assert "generation" not in made["metadata"]


INVALID: list[tuple[str, Json, str]] = [
    ("no-request", {"request": None}, "spec.request: "),
    ("not-pem", {"request": base64.b64encode(b"nonsense").decode()}, "spec.request: Invalid value: "),
    ("no-signer", {"signerName": None}, "spec.signerName: Required value"),
    ("signer-without-domain", {"signerName": "tester"}, "spec.signerName: Invalid value: "),
    ("no-usages", {"usages": []}, "spec.usages: Required value"),
    ("unknown-usage", {"usages": ["dancing"]}, 'spec.usages[0]: Unsupported value: "dancing"'),
    ("usage-twice", {"usages": ["client auth", "client auth"]}, 'spec.usages[1]: Duplicate value: "client auth"'),
    ("too-short", {"expirationSeconds": 599}, "spec.expirationSeconds: Invalid value: 599: may not specify a duration "
     "less than 600 seconds"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), [pytest.param(*row[1:], id=row[0]) for row in INVALID])
def test_requests_that_are_refused(api: Api, named: str, spec: Json, message: str) -> None:
    api.create(at("certificatesigningrequests"), csr(named, **spec)).refused(422, "Invalid", message)


def test_a_generated_name(api: Api) -> None:
    body = csr("x")
    body["metadata"] = {"generateName": "gateway-"}
    made = api.create(at("certificatesigningrequests"), body).ok(201)
    assert made["metadata"]["name"].startswith("gateway-")
    api.delete(path_of(made["metadata"]["name"])).ok(200)


# ---------------------------------------------------------------- writing


def approve(api: Api, name: str, *conditions: Json) -> Any:
    """Writes conditions by the approval subresource."""
    return api.patch(path_of(name, "approval"), {"status": {"conditions": list(conditions)}})


def test_the_way_to_a_certificate(api: Api, named: str) -> None:
    ask(api, named)
    body = approve(api, named, APPROVED).ok(200)
    [condition] = body["status"]["conditions"]
    assert {k: condition[k] for k in APPROVED} == APPROVED
    assert len(condition["lastTransitionTime"]) == 20
    assert len(condition["lastUpdateTime"]) == 20
    chain = certificate()
    body = api.patch(path_of(named, "status"), {"status": {"certificate": chain}}).ok(200)
    assert body["status"]["certificate"] == chain
    assert api.get(path_of(named)).ok(200)["status"]["certificate"] == chain


def test_as_the_signer_does_it(api: Api, named: str) -> None:
    """JSON patches with tests: first the approval, then the certificate."""
    made = ask(api, named)
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]}
    ops = [version, {"op": "add", "path": "/status/conditions", "value": [APPROVED]}]
    api.patch(path_of(named, "approval"), ops, type=JSON_PATCH).ok(200)
    api.patch(path_of(named, "approval"), ops, type=JSON_PATCH).refused(422, "Invalid")
    ops = [{"op": "add", "path": "/status/certificate", "value": certificate()}]
    api.patch(path_of(named, "status"), ops, type=JSON_PATCH).ok(200)


ORDER: list[tuple[str, list[Json], list[Json], str]] = [
    # id, conditions first, conditions then (both by approval), message of the refusal or "" where it is taken
    ("approve-then-deny", [APPROVED], [APPROVED, DENIED], "status.conditions: Invalid value: "),
    ("approval-taken-back", [APPROVED], [], "updates may not remove a condition of type \"Approved\""),
    ("denial-taken-back", [DENIED], [], "updates may not remove a condition of type \"Denied\""),
    ("approval-to-denial", [APPROVED], [DENIED], "updates may not remove a condition of type \"Approved\""),
    ("reason-changed", [APPROVED], [{**APPROVED, "reason": "Other"}], ""),
    ("approval-false", [], [{**APPROVED, "status": "False"}],
     'status.conditions[0].status: Unsupported value: "False": supported values: "True"'),
    ("twice", [], [APPROVED, {**APPROVED, "reason": "B"}], "Duplicate value"),
    ("no-type", [], [{"status": "True"}], "status.conditions[0].type: Required value"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then", "message"), [pytest.param(*row[1:], id=row[0]) for row in ORDER])
def test_rules_of_approval(api: Api, named: str, first: list[Json], then: list[Json], message: str) -> None:
    ask(api, named)
    if first:
        approve(api, named, *first).ok(200)
    answer = approve(api, named, *then)
    if message:
        answer.refused(422, "Invalid", message)
    else:
        answer.ok(200)


def test_what_each_path_writes(api: Api, named: str) -> None:
    """Approval takes conditions only, status everything but Approved and Denied; the object itself neither."""
    ask(api, named)
    chain = certificate()
    patch = {"spec": {"signerName": OTHER_SIGNER}, "status": {"conditions": [APPROVED]}}
    body = api.patch(path_of(named), patch).ok(200)
    assert (body["spec"]["signerName"], body["status"]) == (SIGNER, {})
    body = api.patch(path_of(named, "approval"), {"status": {"conditions": [APPROVED], "certificate": chain}}).ok(200)
    assert "certificate" not in body["status"]
    body = api.patch(path_of(named, "status"), {"status": {"conditions": [APPROVED, FAILED]}}).ok(200)
    assert [c["type"] for c in body["status"]["conditions"]] == ["Approved", "Failed"]


def test_status_cannot_approve(api: Api, named: str) -> None:
    ask(api, named)
    api.patch(path_of(named, "status"), {"status": {"conditions": [APPROVED]}}).refused(
        422, "Invalid", 'status.conditions: Forbidden: updates may not add a condition of type "Approved"'
    )


def test_a_certificate_is_written_once(api: Api, named: str) -> None:
    ask(api, named)
    approve(api, named, APPROVED).ok(200)
    api.patch(path_of(named, "status"), {"status": {"certificate": certificate()}}).ok(200)
    answer = api.patch(path_of(named, "status"), {"status": {"certificate": certificate()}})
    answer.refused(422, "Invalid", "status.certificate: Forbidden: updates may not modify existing certificate content")


def test_a_certificate_that_is_none(api: Api, named: str) -> None:
    ask(api, named)
    approve(api, named, APPROVED).ok(200)
    for bad in (b"nonsense", b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"):
        body = {"status": {"certificate": base64.b64encode(bad).decode()}}
        api.patch(path_of(named, "status"), body).refused(422, "Invalid", "status.certificate: Invalid value: ")


# ---------------------------------------------------------------- who may


@pytest.fixture
def signer(api: Api, ns: str, name: str) -> Iterator[Callable[..., Api]]:
    """Makes a client that may write approvals and statuses, and has *verbs* on the signer SIGNER."""

    def build(*verbs: str, resource_name: str = SIGNER) -> Api:
        group = "certificates.k8s.io"
        subs = ["certificatesigningrequests/approval", "certificatesigningrequests/status"]
        rules: list[Json] = [{"apiGroups": [group], "resources": subs, "verbs": ["get", "update", "patch"]}]
        if verbs:
            rules.append({"apiGroups": [group], "resources": ["signers"], "resourceNames": [resource_name],
                          "verbs": list(verbs)})  # fmt: skip
        client = cluster_user(api, ns, f"{name}-signer", rules)
        asked = {"verb": "patch", "group": group, "resource": "certificatesigningrequests", "subresource": "status"}
        body = {"spec": {"resourceAttributes": asked}}
        review = at("selfsubjectaccessreviews")
        eventually("rules in force", lambda: client.create(review, body).ok(201)["status"]["allowed"])
        return client

    yield build
    forget(api, f"{name}-signer")


MAY: list[tuple[str, list[str], str, int, int]] = [
    # id, verbs on the signer, its name in the rule, code of an approval, code of a certificate
    ("both", ["approve", "sign"], SIGNER, 200, 200),
    ("whole-domain", ["approve", "sign"], "contract.example/*", 200, 200),
    ("approve-only", ["approve"], SIGNER, 200, 403),
    ("sign-only", ["sign"], SIGNER, 403, 200),
    ("none", [], SIGNER, 403, 403),
    ("other-signer", ["approve", "sign"], OTHER_SIGNER, 403, 403),
]


@pytest.mark.parametrize(
    ("verbs", "resource_name", "approval", "signature"), [pytest.param(*row[1:], id=row[0]) for row in MAY]
)
def test_approval_and_signature_need_a_right_on_the_signer(
    api: Api,
    named: str,
    signer: Callable[..., Api],
    verbs: list[str],
    resource_name: str,
    approval: int,
    signature: int,
) -> None:
    ask(api, named)
    client = signer(*verbs, resource_name=resource_name)
    answer = approve(client, named, APPROVED)
    assert answer.code == approval, answer.text
    if approval == 403:
        answer.refused(
            403,
            "Forbidden",
            f'certificatesigningrequests.certificates.k8s.io "{named}" is forbidden: user not permitted to approve '
            f'requests with signerName "{SIGNER}"',
        )
        approve(api, named, APPROVED).ok(200)
    answer = client.patch(path_of(named, "status"), {"status": {"certificate": certificate()}})
    assert answer.code == signature, answer.text
    if signature == 403:
        answer.refused(403, "Forbidden", f'user not permitted to sign requests with signerName "{SIGNER}"')


def test_a_request_to_a_signer_of_masters_is_refused(api: Api, named: str) -> None:
    """A client certificate for system:masters cannot be asked for."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
            x509.NameAttribute(NameOID.COMMON_NAME, "someone"),
        ]
    )
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    body = csr(named, request=pem, signerName="kubernetes.io/kube-apiserver-client")
    api.create(at("certificatesigningrequests"), body).refused(
        403, "Forbidden", "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    )


def test_requests_are_selected_by_signer(api: Api, named: str) -> None:
    ask(api, named)
    path = at("certificatesigningrequests")
    found = api.get(path, fieldSelector=f"spec.signerName={SIGNER},metadata.name={named}").ok(200)["items"]
    assert [item["metadata"]["name"] for item in found] == [named]
    assert api.get(path, fieldSelector=f"spec.signerName={OTHER_SIGNER}").ok(200)["items"] == []
