"""The control plane's own authority: made at the first start in a folder, used again by later ones.

One P-256 CA signs the serving certificate, the administrator's client certificate, and the one that the API server
shows to nodes. CSRs of workloads are signed by the operator with its own authority, which is another.
"""

import os
import ssl
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
LEAF_DAYS = 365
"""A local stack is restarted long before."""
_SKEW = timedelta(minutes=5)
SERVING_NAMES = (
    "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
)  # fmt: skip


def private_file(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Authority:
    """A CA: its certificate as PEM, and a way to sign."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key, self._certificate = key, certificate
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def in_folder(cls, folder: Path, *, now: datetime) -> "Authority":
        """The CA of a state folder, made there where it is missing."""
        file = folder / "ca.pem"
        if file.exists():
            held = file.read_bytes()
            key = serialization.load_pem_private_key(held, None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError(f"{file}: not a P-256 key")
            return cls(key, x509.load_pem_x509_certificate(held))
        made = cls._make(now)
        private_file(file, _pem(made._key) + made.pem)
        return made

    @classmethod
    def _make(cls, now: datetime) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kruntimes-local")])
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    def _leaf(
        self, *, now: datetime, name: str, group: str, usage: x509.ObjectIdentifier, names: list[x509.GeneralName]
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if group:
            subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + timedelta(days=LEAF_DAYS))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return _pem(key), certificate.public_bytes(serialization.Encoding.PEM)

    def serving(self, host: str, *, now: datetime) -> tuple[bytes, bytes]:
        """Key and certificate for the listener at *host*, an address."""
        hosts = dict.fromkeys((host, "127.0.0.1"))
        names: list[x509.GeneralName] = [x509.IPAddress(ip_address(h)) for h in hosts]
        names += [x509.DNSName(n) for n in SERVING_NAMES]
        return self._leaf(now=now, name="kube-apiserver", group="", usage=ExtendedKeyUsageOID.SERVER_AUTH, names=names)

    def client(self, name: str, group: str, *, now: datetime) -> tuple[bytes, bytes]:
        """Key and certificate of a client of that name and group."""
        return self._leaf(now=now, name=name, group=group, usage=ExtendedKeyUsageOID.CLIENT_AUTH, names=[])


def server_context(folder: Path, authority: Authority, host: str, *, now: datetime) -> ssl.SSLContext:
    """The listener's TLS: a client certificate is asked for and not demanded, since tokens do as well."""
    key, certificate = authority.serving(host, now=now)
    file = folder / "serving.pem"
    private_file(file, key + certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.load_cert_chain(file)
    tls.load_verify_locations(cadata=authority.pem.decode())
    tls.verify_mode = ssl.CERT_OPTIONAL
    tls.set_alpn_protocols(["http/1.1"])
    return tls


def node_context(folder: Path, authority: Authority, *, now: datetime) -> ssl.SSLContext:
    """The client's side towards the log servers of nodes.

    Their certificates are made by themselves and signed by no one, so they are not verified: as with a kube-apiserver
    that is given no --kubelet-certificate-authority. Nothing secret is sent, and the port is this machine's own.
    """
    key, certificate = authority.client("kube-apiserver-kubelet-client", "system:masters", now=now)
    file = folder / "node-client.pem"
    private_file(file, key + certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    tls.load_cert_chain(file)
    return tls
