"""Certificate requests: who asked, who may decide, and what stands."""

import base64
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.apiserver.plane import POD, START, Json, Loops, Plane, user

from kruntimes.local.apiserver import rbac
from kruntimes.local.apiserver.api import Call
from kruntimes.local.apiserver.loops.expiry import Requests
from kruntimes.local.apiserver.request import SYSTEM, User
from kruntimes.local.apiserver.status import StatusError

SIGNER = "kruntimes.io/runtimed"


@cache
def pem_request() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@cache
def pem_certificate() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(x509.Name([]))
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(START).not_valid_after(START + timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def text(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def spec(**changes: Any) -> Json:
    plain = {"request": text(pem_request()), "signerName": SIGNER, "usages": ["client auth", "server auth"]}
    return {**plain, "expirationSeconds": 3600, **changes}


class Case:
    """One request, and ways to decide on it."""

    def __init__(self) -> None:
        self.plane = Plane()
        self.plane.make("certificatesigningrequests", "c", spec=spec())

    @property
    def now(self) -> Json:
        found = self.plane.found("certificatesigningrequests", "c")
        assert found is not None
        return found

    def write(self, subresource: str, by: User = SYSTEM, **status: Any) -> Json:
        """Writes parts of the status."""

        def edit(obj: Json) -> Json:
            obj["status"] = {**obj.get("status", {}), **status}
            return obj

        kind = self.plane.of("certificatesigningrequests")
        return self.plane.api.change(kind, "", "c", edit, Call(user=by), subresource=subresource)


@pytest.fixture
def case() -> Case:
    """Pending."""
    return Case()


def condition(kind: str, status: str = "True", **more: str) -> Json:
    return {"type": kind, "status": status, "reason": "R", "message": "m", **more}


def refused(action: Callable[[], object], code: int, *says: str) -> None:
    with pytest.raises(StatusError) as found:
        action()
    assert found.value.code == code, found.value.message
    for part in says:
        assert part in found.value.message


def test_the_server_writes_who_asked(case: Case) -> None:
    plane = case.plane
    plane.make("serviceaccounts", "sa")
    plane.make("pods", "p", spec={**POD, "serviceAccountName": "sa"})
    bound = plane.token("sa", boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
    lies = {"username": "root", "groups": ["system:masters"], "uid": "1", "extra": {"a": ["b"]}}
    made = plane.make(
        "certificatesigningrequests", "mine", by=plane.who(bound), spec=spec(**lies),
        status={"conditions": [condition("Approved")]},
    )  # fmt: skip
    assert made["spec"]["username"] == "system:serviceaccount:default:sa"
    assert made["spec"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    pod, account = plane.found("pods", "p"), plane.found("serviceaccounts", "sa")
    assert pod is not None
    assert account is not None
    assert made["spec"]["uid"] == account["metadata"]["uid"]
    extra = made["spec"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [pod["metadata"]["uid"]]
    assert extra["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")
    assert made["status"] == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"request": ""}, "spec.request", id="no-request"),
        pytest.param({"request": text(b"hello")}, "PEM block type must be CERTIFICATE REQUEST", id="no-pem"),
        pytest.param({"request": text(pem_certificate())}, "CERTIFICATE REQUEST", id="a-certificate"),
        pytest.param({"request": "%%%"}, "spec.request", id="no-base64"),
        pytest.param({"usages": []}, "spec.usages: Required value", id="no-usages"),
        pytest.param({"usages": ["fun"]}, 'spec.usages[0]: Unsupported value: "fun"', id="unknown-usage"),
        pytest.param({"usages": ["any", "any"]}, 'spec.usages[1]: Duplicate value: "any"', id="usage-twice"),
        pytest.param({"signerName": ""}, "spec.signerName: Required value", id="no-signer"),
        pytest.param({"signerName": "signer"}, "fully qualified domain and path", id="bad-signer"),
        pytest.param({"expirationSeconds": 599}, "may not specify a duration less than 600 seconds", id="short"),
    ],
)
def test_what_is_no_request(case: Case, change: Json, says: str) -> None:
    refused(lambda: case.plane.make("certificatesigningrequests", "x", spec=spec(**change)), 422, says)


def test_it_is_approved_and_then_issued(case: Case) -> None:
    case.write("approval", conditions=[condition("Approved")])
    (approved,) = case.now["status"]["conditions"]
    assert approved["lastUpdateTime"] == approved["lastTransitionTime"] == "2026-03-01T12:00:00Z"
    case.write("status", certificate=text(pem_certificate()))
    assert case.now["status"]["certificate"] == text(pem_certificate())
    assert case.now["status"]["conditions"] == [approved]


def test_the_spec_never_changes(case: Case) -> None:
    kind, before = case.plane.of("certificatesigningrequests"), case.now["spec"]

    def edit(obj: Json) -> Json:
        obj["spec"]["signerName"] = "example.com/other"
        obj["status"] = {"certificate": "x", "conditions": [condition("Approved")]}
        return obj

    case.plane.api.change(kind, "", "c", edit)
    assert case.now["spec"] == before
    assert case.now["status"] == {}


def test_each_side_writes_its_own_part(case: Case) -> None:
    case.write("approval", certificate=text(pem_certificate()), conditions=[condition("Approved")])
    assert "certificate" not in case.now["status"]
    refused(lambda: case.write("status", conditions=[condition("Denied")]), 422, "status.conditions: Forbidden")


@pytest.mark.parametrize(
    ("conditions", "says"),
    [
        pytest.param([], 'updates may not remove a condition of type "Approved"', id="removed"),
        pytest.param([condition("Approved"), condition("Denied")], "must specify at most one of", id="both"),
        pytest.param([condition("Approved"), condition("Approved")], "Duplicate value", id="twice"),
        pytest.param([condition("Approved", "False")], 'supported values: "True"', id="not-any-more"),
        pytest.param([condition("Approved"), condition("Odd", "Maybe")], "Unsupported value", id="no-status"),
        pytest.param([condition("Approved"), condition("")], "type: Required value", id="no-type"),
    ],
)
def test_a_decision_stands(case: Case, conditions: list[Json], says: str) -> None:
    case.write("approval", conditions=[condition("Approved")])
    refused(lambda: case.write("approval", conditions=conditions), 422, says)


def test_a_certificate_is_issued_once_and_is_one(case: Case) -> None:
    refused(
        lambda: case.write("status", certificate=text(b"x")), 422, "must contain at least one CERTIFICATE PEM block"
    )
    refused(lambda: case.write("status", certificate=text(pem_request())), 422, "only CERTIFICATE PEM blocks")
    case.write("status", certificate=text(pem_certificate()))
    refused(lambda: case.write("status", certificate=""), 422, "may not modify existing certificate content")


@pytest.mark.parametrize(
    ("name", "subresource", "verb", "allowed"),
    [
        (SIGNER, "approval", "approve", True),
        ("kruntimes.io/*", "approval", "approve", True),
        ("kruntimes.io/gateway", "approval", "approve", False),
        (SIGNER, "approval", "sign", False),
        (SIGNER, "status", "sign", True),
        (SIGNER, "status", "approve", False),
    ],
)
def test_decisions_are_the_signers(case: Case, name: str, subresource: str, verb: str, allowed: bool) -> None:
    rule = {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [name], "verbs": [verb]}
    case.plane.make("clusterroles", "signer", rules=[rule])
    reference = {"apiGroup": rbac.GROUP, "kind": "ClusterRole", "name": "signer"}
    subject = {"kind": "User", "name": "eve"}
    case.plane.make("clusterrolebindings", "signer", roleRef=reference, subjects=[subject])
    kind = "Approved" if subresource == "approval" else "Failed"

    def decide() -> Json:
        return case.write(subresource, user("eve"), conditions=[condition(kind)])

    if allowed:
        assert decide()["status"]["conditions"][0]["type"] == kind
    else:
        refused(decide, 403, f"user not permitted to {'approve' if subresource == 'approval' else 'sign'} requests")


@pytest.mark.parametrize(("decided", "hours"), [(True, 1), (False, 24)])
def test_what_is_over_goes_away(case: Case, decided: bool, hours: int) -> None:
    loops = Loops(case.plane, Requests(case.plane.api))
    if decided:
        case.write("approval", conditions=[condition("Approved")])
    loops.look("c")
    loops.settle()
    assert loops.waits == {"c": hours * 3600}
    case.plane.pass_time(hours * 3600)
    loops.look("c")
    loops.settle()
    assert case.plane.found("certificatesigningrequests", "c") is None


def test_nobody_asks_for_a_certificate_of_masters(case: Case) -> None:
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    request = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    pem = text(request.public_bytes(serialization.Encoding.PEM))
    mine = spec(request=pem, signerName="kubernetes.io/kube-apiserver-client")
    refused(lambda: case.plane.make("certificatesigningrequests", "x", spec=mine), 403, "is not allowed")
    case.plane.make("certificatesigningrequests", "y", spec=spec(request=pem))
