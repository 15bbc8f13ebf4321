"""Which certificates are issued and which are refused, and why; then what is signed."""

import base64
import ipaddress
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from kruntimes.common.api.names import POD_NAME_EXTRA, POD_UID_EXTRA
from kruntimes.common.api.views import CSR, Condition, CSRSpec, CSRStatus, Meta, Pod, PodSpec
from kruntimes.common.kube.csr import CertificateNames, build_request, usages
from kruntimes.controller.approve import Approve, Deny, Ignore, Policy, Request, decide, read
from kruntimes.controller.authority import Authority

UID = "11111111-2222-3333-4444-555555555555"
OTHER = "99999999-2222-3333-4444-555555555555"
POLICY = Policy(
    trust_domain="cluster.local",
    namespace="system",
    owner="kruntimes",
    gateway_names=frozenset({"gateway.test", "127.0.0.1", "0:0::1"}),
)
KEY = ec.generate_private_key(ec.SECP256R1())
NOW = 1_800_000_000.0

RUNTIMED = CertificateNames(
    uris=(f"spiffe://cluster.local/ns/n/runtimed/python/pod/{UID}",),
    dns=(f"{UID}.runtimed.kruntimes.internal", "python.n.runtime.kruntimes.internal"),
)
ROUTER = CertificateNames(
    uris=(f"spiffe://cluster.local/ns/system/router/kruntimes/pod/{UID}",),
    dns=(f"{UID}.router.kruntimes.internal", "router.kruntimes.internal"),
)
GATEWAY = CertificateNames(
    uris=(f"spiffe://cluster.local/ns/system/gateway/kruntimes/pod/{UID}",),
    dns=(f"{UID}.gateway.kruntimes.internal",),
)
SERVING = CertificateNames(dns=("gateway.test",), ips=("127.0.0.1", "::1"))


def csr(
    signer: str = "runtimed",
    names: CertificateNames = RUNTIMED,
    *,
    account: str = "n:kruntimes-runtimed",
    pem: bytes | None = None,
    **more: Any,
) -> CSR:
    pem = build_request(KEY, names) if pem is None else pem
    spec: dict[str, Any] = {
        "request": base64.b64encode(pem).decode(),
        "signer_name": f"kruntimes.io/{signer}",
        "username": f"system:serviceaccount:{account}",
        "extra": {POD_NAME_EXTRA: ("p",), POD_UID_EXTRA: (UID,)},
        "usages": usages(f"kruntimes.io/{signer}"),
        "expiration_seconds": 3600,
    }
    status = more.pop("status", CSRStatus())
    return CSR(metadata=Meta(name="c"), spec=CSRSpec(**(spec | more)), status=status)


def pod(*, uid: str = UID, account: str = "kruntimes-runtimed", runtime: str = "python", **metadata: Any) -> Pod:
    labels = {"runtime": runtime} if runtime else {}
    return Pod(
        metadata=Meta(name="p", namespace="n", uid=uid, labels=labels, **metadata),
        spec=PodSpec(service_account_name=account),
    )


def answer(request: CSR, found: Pod | None) -> Approve | Deny | Ignore:
    asked = read(request, POLICY)
    return decide(asked, found, POLICY) if isinstance(asked, Request) else asked


def system(role: str, names: CertificateNames, **more: Any) -> CSR:
    return csr(role, names, account=f"system:kruntimes-{role.removesuffix('-serving')}", **more)


def system_pod(role: str) -> Pod:
    return pod(account=f"kruntimes-{role}", runtime="")


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        pytest.param(csr(), pod(), id="runtimed"),
        pytest.param(csr(names=CertificateNames(uris=RUNTIMED.uris)), pod(), id="fewer-names"),
        pytest.param(csr(account="n:mine"), pod(account="mine"), id="a-service-account-that-the-template-names"),
        pytest.param(system("router", ROUTER), system_pod("router"), id="router"),
        pytest.param(system("gateway", GATEWAY), system_pod("gateway"), id="gateway"),
        pytest.param(system("gateway-serving", SERVING), system_pod("gateway"), id="serving"),
    ],
)
def test_what_is_approved(request_: CSR, found: Pod) -> None:
    approved = answer(request_, found)
    assert isinstance(approved, Approve), approved
    assert approved.client == (request_.spec.signer_name != "kruntimes.io/gateway-serving")


def names(base: CertificateNames = RUNTIMED, **more: Any) -> CertificateNames:
    return replace(base, **more)


def request_with(key: Any = KEY, *, san: list[x509.GeneralName] | None = None, also: Any = None) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    san = [x509.UniformResourceIdentifier(RUNTIMED.uris[0])] if san is None else san
    builder = builder.add_extension(x509.SubjectAlternativeName(san), critical=True)
    if also is not None:
        builder = builder.add_extension(also, critical=False)
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)


def tampered() -> bytes:
    der = bytearray(x509.load_pem_x509_csr(build_request(KEY, RUNTIMED)).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    body = base64.encodebytes(bytes(der)).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n".encode()


URI = x509.UniformResourceIdentifier(RUNTIMED.uris[0])

REFUSED = [
    # who asks
    pytest.param(csr(username="alice"), pod(), "NotAServiceAccount", id="a-user"),
    pytest.param(csr(username="system:serviceaccount:n"), pod(), "NotAServiceAccount", id="half-a-service-account"),
    pytest.param(csr(extra={}), pod(), "NotBoundToPod", id="a-token-without-a-pod"),
    pytest.param(csr(extra={POD_NAME_EXTRA: ("p",)}), pod(), "NotBoundToPod", id="no-uid"),
    pytest.param(
        csr(extra={POD_NAME_EXTRA: ("p",), POD_UID_EXTRA: (UID, OTHER)}), pod(), "NotBoundToPod", id="two-uids"
    ),
    # which Pod
    pytest.param(csr(), None, "PodGone", id="pod-gone"),
    pytest.param(csr(), pod(uid=OTHER), "PodGone", id="a-new-pod-of-that-name"),
    pytest.param(csr(), pod(account="other"), "WrongServiceAccount", id="another-service-account"),
    pytest.param(csr(), pod(deletion_timestamp="2026-01-01T00:00:00Z"), "PodDeleting", id="deleting"),
    pytest.param(csr(), pod(runtime=""), "NotARuntimePod", id="no-runtime-label"),
    # which names
    pytest.param(csr(names=names(uris=())), pod(), "Names", id="no-identity"),
    pytest.param(
        csr(names=names(uris=(RUNTIMED.uris[0].replace(UID, OTHER),))), pod(), "Names", id="another-pods-identity"
    ),
    pytest.param(
        csr(names=names(uris=(RUNTIMED.uris[0].replace("/ns/n/", "/ns/m/"),))), pod(), "Names", id="another-namespace"
    ),
    pytest.param(
        csr(names=names(uris=(RUNTIMED.uris[0].replace("runtimed", "gateway"),))), pod(), "Names", id="another-role"
    ),
    pytest.param(csr(), pod(runtime="bash"), "Names", id="another-runtime"),
    pytest.param(csr(names=names(uris=(*RUNTIMED.uris, "spiffe://x/y"))), pod(), "Names", id="two-identities"),
    pytest.param(csr(names=names(dns=(*RUNTIMED.dns, "router.kruntimes.internal"))), pod(), "Names", id="another-dns"),
    pytest.param(csr(names=names(dns=("*.runtimed.kruntimes.internal",))), pod(), "Names", id="wildcard"),
    pytest.param(csr(names=names(ips=("10.0.0.1",))), pod(), "Names", id="an-address"),
    pytest.param(csr(pem=request_with(san=[URI, x509.RFC822Name("a@b.c")])), pod(), "Names", id="an-email"),
    pytest.param(
        csr(pem=request_with(san=[URI, x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")]))])),
        pod(),
        "Names",
        id="a-directory-name",
    ),
    # which key and what for
    pytest.param(csr(pem=request_with(ed25519.Ed25519PrivateKey.generate())), pod(), "KeyType", id="ed25519"),
    pytest.param(csr(pem=request_with(ec.generate_private_key(ec.SECP384R1()))), pod(), "KeyType", id="p-384"),
    pytest.param(csr(pem=request_with(rsa.generate_private_key(65537, 1024))), pod(), "KeyType", id="rsa-1024"),
    pytest.param(csr(usages=("digital signature", "cert sign", "server auth")), pod(), "Usages", id="cert-sign"),
    pytest.param(csr(usages=("digital signature",)), pod(), "Usages", id="no-server-auth"),
    pytest.param(
        csr(pem=request_with(also=x509.BasicConstraints(ca=True, path_length=None))), pod(), "Extensions", id="a-ca"
    ),
    pytest.param(csr(pem=request_with(also=x509.OCSPNoCheck())), pod(), "Extensions", id="an-unknown-extension"),
    pytest.param(csr(pem=b"hello"), pod(), "Malformed", id="no-request"),
    pytest.param(csr(pem=tampered()), pod(), "Malformed", id="a-broken-signature"),
    pytest.param(csr(request="%%%"), pod(), "Malformed", id="no-base64"),
    pytest.param(csr(request="A" * 20_000), pod(), "Malformed", id="too-large"),
    # the roles of the installation
    pytest.param(csr("router", ROUTER), pod(), "WrongServiceAccount", id="router-from-elsewhere"),
    pytest.param(
        csr("router", ROUTER, account="system:default"),
        system_pod("default"),
        "WrongServiceAccount",
        id="router-as-other",
    ),
    pytest.param(
        csr("gateway", GATEWAY, account="n:kruntimes-gateway"),
        pod(),
        "WrongServiceAccount",
        id="gateway-from-elsewhere",
    ),
    pytest.param(
        csr("router", ROUTER, account="system:kruntimes-gateway"),
        system_pod("gateway"),
        "WrongServiceAccount",
        id="gateway-as-router",
    ),
    pytest.param(
        system("gateway", names(GATEWAY, dns=("router.kruntimes.internal",))),
        system_pod("gateway"),
        "Names",
        id="gateway-with-the-routers-name",
    ),
    pytest.param(
        system("gateway-serving", names(SERVING, dns=("bank.example",))), system_pod("gateway"), "Names", id="any-host"
    ),
    pytest.param(
        system("gateway-serving", names(SERVING, ips=("10.0.0.1",))), system_pod("gateway"), "Names", id="any-address"
    ),
    pytest.param(
        system("gateway-serving", names(SERVING, uris=GATEWAY.uris)),
        system_pod("gateway"),
        "Names",
        id="serving-with-an-identity",
    ),
    pytest.param(
        system("gateway-serving", CertificateNames(), pem=request_with(san=[])),
        system_pod("gateway"),
        "Names",
        id="serving-nothing",
    ),
    pytest.param(
        system("gateway-serving", SERVING, usages=("digital signature", "server auth", "client auth")),
        system_pod("gateway"),
        "Usages",
        id="serving-as-a-client",
    ),
]


@pytest.mark.parametrize(("request_", "found", "why"), REFUSED)
def test_what_is_denied(request_: CSR, found: Pod | None, why: str) -> None:
    denied = answer(request_, found)
    assert isinstance(denied, Deny), denied
    assert denied.reason == why
    assert denied.message


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(csr(signer_name="kubernetes.io/kubelet-serving"), id="another-signer"),
        pytest.param(csr(status=CSRStatus(certificate="x")), id="issued"),
        pytest.param(csr(status=CSRStatus(conditions=(Condition(type="Denied", status="True"),))), id="denied"),
        pytest.param(csr(status=CSRStatus(conditions=(Condition(type="Failed", status="True"),))), id="failed"),
    ],
)
def test_what_is_left_alone(request_: CSR) -> None:
    assert isinstance(read(request_, POLICY), Ignore)


def test_an_approved_request_without_a_certificate_is_judged_all_the_same() -> None:
    approved = CSRStatus(conditions=(Condition(type="Approved", status="True"),))
    assert isinstance(answer(csr(status=approved), pod()), Approve)
    assert isinstance(answer(csr(status=approved), pod(uid=OTHER)), Deny)


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        pytest.param(None, 3600, id="default"),
        pytest.param(600, 600, id="shortest"),
        pytest.param(10**8, 86400, id="a-day-at-most"),
    ],
)
def test_how_long_it_lives(asked: int | None, granted: int) -> None:
    request = read(csr(expiration_seconds=asked), POLICY)
    assert isinstance(request, Request)
    assert request.seconds == granted


@pytest.fixture
def authority() -> Authority:
    return Authority.new(key=ec.generate_private_key(ec.SECP256R1()), serial=1, now=NOW)


def issue(authority: Authority, request_: CSR, found: Pod) -> x509.Certificate:
    approved = answer(request_, found)
    assert isinstance(approved, Approve)
    return x509.load_pem_x509_certificate(authority.issue(approved, serial=2, now=NOW))


def test_exactly_what_was_approved_is_signed(authority: Authority) -> None:
    leaf = issue(authority, csr(), pod())
    san = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert san.get_values_for_type(x509.UniformResourceIdentifier) == list(RUNTIMED.uris)
    assert san.get_values_for_type(x509.DNSName) == list(RUNTIMED.dns)
    assert leaf.public_key() == KEY.public_key()
    assert leaf.not_valid_before_utc.timestamp() == NOW - 300
    assert leaf.not_valid_after_utc.timestamp() == NOW + 3600
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_serving_certificate_cannot_act_as_a_client(authority: Authority) -> None:
    purposes: Callable[[x509.Certificate], set[Any]] = lambda leaf: set(  # noqa: E731
        leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    )
    serving = issue(authority, system("gateway-serving", SERVING), system_pod("gateway"))
    assert purposes(serving) == {ExtendedKeyUsageOID.SERVER_AUTH}
    both = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert purposes(issue(authority, csr(), pod())) == both
    addresses = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.IPAddress
    )
    assert addresses == [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]


def test_the_chain_verifies(authority: Authority) -> None:
    loaded = Authority.load(certificate_pem=authority.certificate_pem(), key_pem=authority.key_pem())
    leaf = issue(loaded, csr(), pod())
    store = Store([authority.certificate])
    moment = leaf.not_valid_before_utc
    verifier = PolicyBuilder().store(store).time(moment).build_server_verifier(x509.DNSName(RUNTIMED.dns[1]))
    assert verifier.verify(leaf, [])[-1] == authority.certificate


def test_a_certificate_never_outlives_its_ca() -> None:
    old = Authority.new(key=ec.generate_private_key(ec.SECP256R1()), serial=1, now=NOW - 3650 * 86400 + 600)
    leaf = issue(old, csr(), pod())
    assert leaf.not_valid_after_utc == old.certificate.not_valid_after_utc


def test_a_ca_of_another_key_is_refused(authority: Authority) -> None:
    other = Authority.new(key=ec.generate_private_key(ec.SECP256R1()), serial=1, now=NOW)
    with pytest.raises(ValueError, match="belong together"):
        Authority.load(certificate_pem=authority.certificate_pem(), key_pem=other.key_pem())


def test_no_key_is_shown(authority: Authority) -> None:
    assert "PRIVATE" not in repr(authority)
