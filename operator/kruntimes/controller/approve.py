"""Which certificates are issued, and to whom: the decision of the signers `kruntimes.io/*`.

The proof is the API server's: for a token that is bound to a Pod it writes that Pod's name and UID into the
request, where the caller cannot. The certificate asked for must name that very UID and nothing beyond what its
role is allowed. `read` settles all that the request alone can settle and says which Pod to look at; `decide`
then judges that Pod.

Source: design §8.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kruntimes.common.api.names import (
    POD_NAME_EXTRA,
    POD_UID_EXTRA,
    ROUTER_DNS,
    SERVING_SIGNER,
    SIGNERS,
    Role,
    pod_dns,
    runtime_dns,
    spiffe_id,
)
from kruntimes.common.api.views import CSR, Pod, condition

ISSUED_TOTAL = "kruntimes_operator_certificates_total"
"""Counts requests that were answered, by signer and verdict (issued or denied)."""

MAX_REQUEST_BYTES = 16 * 1024
"""A request with an RSA key of 4096 bits and a few names has 2 KiB; nothing larger is parsed."""
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
"""Below, a key is weak; above, checking the request's signature is work that somebody else chose for us."""
DEFAULT_SECONDS = 3600
MIN_SECONDS, MAX_SECONDS = 600, 24 * 3600
"""Life of a certificate: what Kubernetes accepts at least, and what a stolen one is good for at most."""

SERVICE_ACCOUNTS = {Role.GATEWAY: "kruntimes-gateway", Role.ROUTER: "kruntimes-router"}
"""ServiceAccounts in the operator's own namespace to which the roles of the installation are given."""

_USERNAME = "system:serviceaccount:"
_USAGES = frozenset({"digital signature", "key encipherment", "server auth", "client auth"})
_SERVING_USAGES = _USAGES - {"client auth"}
_EXTENSIONS = frozenset(
    {
        x509.SubjectAlternativeName.oid,
        x509.KeyUsage.oid,
        x509.ExtendedKeyUsage.oid,
        x509.BasicConstraints.oid,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the installation allows. namespace: the operator's own. owner: the release's name.

    gateway_names: DNS names and IP addresses that the gateway's serving certificate may carry.
    """

    trust_domain: str
    namespace: str
    owner: str
    gateway_names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A certificate request that is in order so far, and the Pod whose token made it.

    uris, dns, ips: the names asked for. role: None for the gateway's serving certificate.
    """

    signer: str
    role: Role | None
    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str
    uris: tuple[str, ...]
    dns: tuple[str, ...]
    ips: tuple[str, ...]
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey
    seconds: int


@dataclass(frozen=True, slots=True)
class Approve:
    """Issue it: exactly these names, for so many seconds; client: it may also be used by a client."""

    request: Request
    client: bool


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse it for good. reason: one CamelCase word; message: a sentence for whoever asked."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """Another signer's, or already answered."""


def read(csr: CSR, policy: Policy) -> Request | Deny | Ignore:
    """Settles what the request alone can settle. A Request's Pod must be read before `decide`."""
    if csr.spec.signer_name not in SIGNERS and csr.spec.signer_name != SERVING_SIGNER:
        return Ignore()
    answered = any(condition(csr.status.conditions, kind) for kind in ("Denied", "Failed"))
    if csr.status.certificate or answered:
        return Ignore()
    try:
        return _read(csr, policy)
    except _Refused as refused:
        return Deny(refused.reason, str(refused))


def decide(request: Request, pod: Pod | None, policy: Policy) -> Approve | Deny:
    """Judges the Pod whose token made the request; None where there is none of that name.

    It must be the same Pod (UID), run as the same ServiceAccount, and not be on its way out.
    """
    try:
        if pod is None or pod.metadata.uid != request.pod_uid:
            raise _Refused("PodGone", f"the Pod {request.pod_name} with UID {request.pod_uid} does not exist")
        if pod.spec.service_account_name != request.service_account:
            raise _Refused("WrongServiceAccount", "the Pod does not run as the ServiceAccount that made the request")
        if pod.metadata.deleting:
            raise _Refused("PodDeleting", "the Pod is being deleted")
        if request.role is None:
            _check_serving_names(request, policy)
        else:
            _check_names(request, request.role, pod, policy)
    except _Refused as refused:
        return Deny(refused.reason, str(refused))
    return Approve(request, client=request.role is not None)


class _Refused(Exception):
    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def _read(csr: CSR, policy: Policy) -> Request:
    role = SIGNERS.get(csr.spec.signer_name)
    namespace, service_account = _requester(csr)
    pod_name, pod_uid = _single(csr, POD_NAME_EXTRA), _single(csr, POD_UID_EXTRA)
    if role is not Role.RUNTIMED:
        expected = SERVICE_ACCOUNTS[role or Role.GATEWAY]
        if (namespace, service_account) != (policy.namespace, expected):
            raise _Refused(
                "WrongServiceAccount",
                f"{csr.spec.signer_name} signs for ServiceAccount {expected} of namespace {policy.namespace} only",
            )
    usages = set(csr.spec.usages)
    allowed = _USAGES if role is not None else _SERVING_USAGES
    if "server auth" not in usages or not usages <= allowed:
        raise _Refused("Usages", f"usages must include 'server auth' and be among: {', '.join(sorted(allowed))}")
    request = _parse(csr.spec.request)
    uris, dns, ips = _names(request)
    return Request(
        signer=csr.spec.signer_name,
        role=role,
        namespace=namespace,
        service_account=service_account,
        pod_name=pod_name,
        pod_uid=pod_uid,
        uris=uris,
        dns=dns,
        ips=ips,
        public_key=_public_key(request),
        seconds=min(MAX_SECONDS, max(MIN_SECONDS, csr.spec.expiration_seconds or DEFAULT_SECONDS)),
    )


def _requester(csr: CSR) -> tuple[str, str]:
    namespace, found, name = csr.spec.username.removeprefix(_USERNAME).partition(":")
    if not csr.spec.username.startswith(_USERNAME) or not found or not namespace or not name:
        raise _Refused("NotAServiceAccount", "only a ServiceAccount's token that is bound to a Pod may ask")
    return namespace, name


def _single(csr: CSR, key: str) -> str:
    values = csr.spec.extra.get(key, ())
    if len(values) != 1 or not values[0]:
        raise _Refused("NotBoundToPod", "the token that made the request is not bound to a Pod")
    return values[0]


def _parse(encoded: str) -> x509.CertificateSigningRequest:
    if len(encoded) > MAX_REQUEST_BYTES:
        raise _Refused("Malformed", f"the request has more than {MAX_REQUEST_BYTES} bytes")
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(encoded, validate=True))
        signed = request.is_signature_valid
    except (ValueError, binascii.Error, UnsupportedAlgorithm):
        raise _Refused("Malformed", "the request is not a PEM certificate request") from None
    if not signed:
        raise _Refused("Malformed", "the request is not signed by its own key")
    return request


def _public_key(request: x509.CertificateSigningRequest) -> ec.EllipticCurvePublicKey | rsa.RSAPublicKey:
    try:
        key = request.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise _Refused("KeyType", "the key cannot be read") from None
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    if isinstance(key, rsa.RSAPublicKey) and MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
        return key
    raise _Refused("KeyType", f"the key must be ECDSA P-256, or RSA of {MIN_RSA_BITS} to {MAX_RSA_BITS} bits")


def _names(request: x509.CertificateSigningRequest) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """URIs, DNS names and IP addresses asked for; any other kind of name or extension is refused."""
    try:
        extensions = {one.oid: one.value for one in request.extensions}
        names = list(extensions.get(x509.SubjectAlternativeName.oid, ()))
    except (ValueError, x509.DuplicateExtension):
        raise _Refused("Malformed", "the request's extensions cannot be read") from None
    if set(extensions) - _EXTENSIONS:
        raise _Refused("Extensions", "the request asks for an extension that no workload needs")
    constraints = extensions.get(x509.BasicConstraints.oid)
    if isinstance(constraints, x509.BasicConstraints) and constraints.ca:
        raise _Refused("Extensions", "the request asks for a certificate that may sign others")
    uris = tuple(name.value for name in names if isinstance(name, x509.UniformResourceIdentifier))
    dns = tuple(name.value for name in names if isinstance(name, x509.DNSName))
    ips = tuple(str(name.value) for name in names if isinstance(name, x509.IPAddress))
    if len(uris) + len(dns) + len(ips) != len(names):
        raise _Refused("Names", "only URI, DNS and IP names may be asked for")
    return uris, dns, ips


def _check_names(request: Request, role: Role, pod: Pod, policy: Policy) -> None:
    """The identity of that Pod in that role, and its DNS names; the role in it decides who may call what."""
    allowed = {pod_dns(pod_uid=request.pod_uid, role=role)}
    owner = policy.owner
    if role is Role.RUNTIMED:
        owner = pod.runtime
        if not owner:
            raise _Refused("NotARuntimePod", "the Pod does not carry the label of a Runtime")
        allowed.add(runtime_dns(namespace=request.namespace, runtime=owner))
    elif role is Role.ROUTER:
        allowed.add(ROUTER_DNS)
    identity = spiffe_id(
        trust_domain=policy.trust_domain,
        namespace=request.namespace,
        role=role,
        owner=owner,
        pod_uid=request.pod_uid,
    )
    if request.uris != (identity,):
        raise _Refused("Names", f"the one URI of this Pod in this role is {identity}")
    _refuse_beyond(allowed, (*request.dns, *request.ips))


def _check_serving_names(request: Request, policy: Policy) -> None:
    if request.uris or not request.dns + request.ips:
        raise _Refused("Names", "a serving certificate carries DNS names or IP addresses, and no URI")
    _refuse_beyond({_normal(name) for name in policy.gateway_names}, (*request.dns, *request.ips))


def _refuse_beyond(allowed: Iterable[str], asked: Iterable[str]) -> None:
    beyond = sorted(set(asked) - set(allowed))
    if beyond:
        raise _Refused("Names", f"not among the names of this workload: {', '.join(beyond)[:200]}")


def _normal(name: str) -> str:
    """An IP address in its one spelling, any other name as it is."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name
