"""Certificates by the Kubernetes CertificateSigningRequest API (design §8).

The private key is made here and never leaves the process. The API server writes into the request which Pod's token
made it; the signer compares that with the names asked for.
"""

import asyncio
import base64
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kruntimes.common import clock
from kruntimes.common.api.names import SERVING_SIGNER
from kruntimes.common.api.views import CSR, condition
from kruntimes.common.errors import Denied, NotReady
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.transport import Kube

FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 1.0
"""A signer answers within a tenth of a second; a late one is not asked all the time."""
MAX_COMMON_NAME_CHARS = 64
"""X.509's bound; names that are longer stand only among the alternative names."""


class CertificateRefused(Denied):
    """The signer or an approver said no, in the words of its condition; asking again changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateNames:
    """The subject alternative names asked for, exactly as the signer will compare them."""

    uris: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A private key with its certificate chain. not_before, not_after: seconds of the wall clock."""

    key_pem: bytes
    chain_pem: bytes
    not_before: float
    not_after: float

    def __repr__(self) -> str:
        """Without the key."""
        return f"Certificate(not_before={self.not_before}, not_after={self.not_after})"


def new_key() -> ec.EllipticCurvePrivateKey:
    """A P-256 key: supported by everyone on the path, and quick to make."""
    return ec.generate_private_key(ec.SECP256R1())


def build_request(key: ec.EllipticCurvePrivateKey, names: CertificateNames) -> bytes:
    """The PKCS #10 request as PEM. Raises ValueError for a name that no certificate can carry."""
    alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in names.uris]
    alternatives += [x509.DNSName(name) for name in names.dns]
    alternatives += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in names.ips]
    common = next((name for name in names.dns if len(name) <= MAX_COMMON_NAME_CHARS), None)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=not common)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def usages(signer: str) -> tuple[str, ...]:
    """Workloads both call and are called; the gateway's serving certificate only serves."""
    return (
        ("digital signature", "server auth")
        if signer == SERVING_SIGNER
        else ("digital signature", "client auth", "server auth")
    )


async def request_certificate(
    kube: Kube, *, signer: str, names: CertificateNames, seconds: int = 3600, timeout: float = 60.0
) -> Certificate:
    """Makes a key, asks *signer* for a certificate of *seconds*, and waits for it at most *timeout* seconds.

    Raises CertificateRefused when it was denied or failed, NotReady when there is no answer in time, and the
    errors of `kube.errors` for the creation itself.
    """
    key = new_key()
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": f"{signer.rpartition('/')[2]}-"},
        "spec": {
            "request": base64.b64encode(build_request(key, names)).decode(),
            "signerName": signer,
            "expirationSeconds": seconds,
            "usages": list(usages(signer)),
        },
    }
    try:
        async with asyncio.timeout(timeout):
            made = await kube.create(paths.csrs(), body, CSR)
            chain = await _issued(kube, made)
    except TimeoutError:
        raise NotReady(f"signer {signer} has not answered within {timeout:.0f} s") from None
    return assemble(key, chain)


async def _issued(kube: Kube, request: CSR) -> bytes:
    """Waits for the chain."""
    wait = FIRST_POLL_SECONDS
    while True:
        for kind in ("Denied", "Failed"):
            held = condition(request.status.conditions, kind)
            if held is not None and held.status == "True":
                raise CertificateRefused(f"{request.spec.signer_name}: {kind} {held.reason}: {held.message[:300]}")
        if request.status.certificate:
            return base64.b64decode(request.status.certificate)
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, LONGEST_POLL_SECONDS)
        try:
            request = await kube.get(paths.csrs(request.metadata.name), CSR)
        except errors.Missing as error:
            raise NotReady("the certificate request was deleted before it was answered") from error
        except (errors.Unreachable, errors.ServerError, errors.TooManyRequests):
            continue


def assemble(key: ec.EllipticCurvePrivateKey, chain_pem: bytes) -> Certificate:
    """Joins a key with the chain issued for it. Raises CertificateRefused where they do not belong together."""
    try:
        leaf = x509.load_pem_x509_certificates(chain_pem)[0]
    except ValueError as error:
        raise CertificateRefused("the signer issued something that is not a certificate") from error
    if leaf.public_key() != key.public_key():
        raise CertificateRefused("the signer issued a certificate for another key")
    return Certificate(
        key_pem=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        chain_pem=chain_pem,
        not_before=leaf.not_valid_before_utc.timestamp(),
        not_after=leaf.not_valid_after_utc.timestamp(),
    )


def remaining(certificate: Certificate) -> float:
    """Seconds until it ends, by the wall clock."""
    return certificate.not_after - clock.wall()
