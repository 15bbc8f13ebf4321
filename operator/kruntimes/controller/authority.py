"""The certificate authority: what it signs with, and what it signs. No I/O; time and serial are arguments.

Source: design §8.
"""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kruntimes.controller.approve import Approve

LIFE = timedelta(days=3650)
"""Of the CA. It is replaced with overlap, by adding the new one to the bundle, and never by waiting for its end."""
BACKDATED = timedelta(minutes=5)
"""Certificates begin this much before now, for machines whose clocks are behind."""
ORGANIZATION = "kruntimes"


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA's certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        """Without the key."""
        return f"Authority({self.certificate.subject.rfc4514_string()})"

    @classmethod
    def new(cls, *, key: ec.EllipticCurvePrivateKey, serial: int, now: float) -> Self:
        """A self-signed CA that may sign leaves only; *now* in seconds since the epoch."""
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
                x509.NameAttribute(NameOID.COMMON_NAME, "kruntimes-ca"),
            ]
        )
        begin = datetime.fromtimestamp(now, UTC) - BACKDATED
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(serial)
            .not_valid_before(begin)
            .not_valid_after(begin + LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, *, certificate_pem: bytes, key_pem: bytes) -> Self:
        """Reads a CA. Raises ValueError where it is none, or the two do not belong together."""
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        key = serialization.load_pem_private_key(key_pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the CA's key is not an ECDSA key")
        if certificate.public_key() != key.public_key():
            raise ValueError("the CA's certificate and key do not belong together")
        return cls(certificate, key)

    def certificate_pem(self) -> bytes:
        """The certificate, which is also the bundle that others trust."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        """The key, unencrypted, for the Secret that only the operator reads."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def issue(self, approved: Approve, *, serial: int, now: float) -> bytes:
        """Signs exactly the names that were approved; returns the chain as PEM. Never outlives the CA.

        The subject says nothing of the workload: who it is stands in the alternative names.
        """
        request = approved.request
        begin = datetime.fromtimestamp(now, UTC)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in request.uris]
        names += [x509.DNSName(name) for name in request.dns]
        names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in request.ips]
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH]
        if approved.client:
            purposes.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        leaf = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION)]))
            .issuer_name(self.certificate.subject)
            .public_key(request.public_key)
            .serial_number(serial)
            .not_valid_before(begin - BACKDATED)
            .not_valid_after(min(begin + timedelta(seconds=request.seconds), self.certificate.not_valid_after_utc))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(issuer_id, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return leaf.public_bytes(serialization.Encoding.PEM)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
