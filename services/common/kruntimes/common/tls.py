"""mTLS between our workloads: contexts, peers' identities, and a certificate that stays current (design §8)."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kruntimes.common import clock, identity
from kruntimes.common.errors import KruntimesError, NotReady
from kruntimes.common.identity import Peer
from kruntimes.common.kube.backoff import draw, wait_after
from kruntimes.common.kube.csr import Certificate, CertificateNames, request_certificate
from kruntimes.common.kube.errors import ApiError

if TYPE_CHECKING:
    import grpc

    from kruntimes.common.kube.transport import Kube

__all__ = ["Peer", "Workload", "client_context", "peer_of", "server_context"]

log = logging.getLogger(__name__)

RENEW_AT = 2 / 3
"""The part of a certificate's life after which it is renewed: a third is left for a signer that is away."""
JITTER = 0.1
"""Renewals of Pods that started together are spread over this part of the life."""
LEAST_LIFE_SECONDS = 60.0
"""A certificate that is due as soon as it is issued means that a clock is wrong: the signer must not be flooded."""
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 60.0
OBTAIN_SECONDS, LONGEST_OBTAIN_RETRY_SECONDS = 120.0, 5.0
"""A start waits so long for its first certificate, and asks often, since it can do nothing without."""
CA_POLL_SECONDS = 5.0
"""A mounted ConfigMap changes without a signal that a container could wait for; its file is small."""
CA_FIRST_POLL_SECONDS = 0.1
CA_WAIT_SECONDS = 60.0
"""How long a start waits for the CA's file, which the operator may be about to write."""


def server_context(certificate: Certificate, ca_pem: bytes, *, require_client: bool) -> ssl.SSLContext:
    """A context that serves with *certificate* and, if so required, demands a client certificate of that CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED if require_client else ssl.CERT_NONE
    context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    load_pair(context, certificate)
    return context


def client_context(certificate: Certificate, ca_pem: bytes) -> ssl.SSLContext:
    """A context that calls with *certificate* and accepts servers of that CA whose DNS name is the one asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    load_pair(context, certificate)
    return context


def load_pair(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Gives *context* key and chain; handshakes from now on use them, connections that stand are untouched.

    The ssl module reads both from a file only: an anonymous one, so that no key touches a disk.
    """
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(certificate.key_pem.rstrip() + b"\n" + certificate.chain_pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")


def peer_of(source: object) -> Peer | None:
    """Who is at the other end, by the URI SAN of its verified certificate; None where it names no workload of ours.

    source: an `ssl.SSLObject` or `SSLSocket`, a certificate as PEM bytes or text, or grpc's `auth_context()`.
    A certificate with several URIs names nobody.
    """
    if source is None:
        return None
    if isinstance(source, str | bytes):
        return _peer_of_pem(source.encode() if isinstance(source, str) else source)
    if isinstance(source, Mapping):
        chain: Sequence[bytes] = source.get("x509_pem_cert", ())
        return _peer_of_pem(chain[0]) if len(chain) == 1 else None
    names = (source.getpeercert() or {}).get("subjectAltName", ()) if hasattr(source, "getpeercert") else ()
    return identity.from_uris(value for kind, value in names if kind == "URI")


def _peer_of_pem(pem: bytes) -> Peer | None:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return None
    return identity.from_uris(names.get_values_for_type(x509.UniformResourceIdentifier))


def renewal_time(certificate: Certificate, *, draw: float) -> float:
    """The wall-clock time at which to renew. draw: a random number in [0, 1), which moves it earlier a little."""
    life = certificate.not_after - certificate.not_before
    return certificate.not_before + life * (RENEW_AT - JITTER * draw)


class Workload:
    """A workload's certificate, kept current, and every context made from it.

    `run` renews it and follows the CA's file; contexts handed out are reloaded in place, so servers keep theirs.
    A CA that has left the bundle stays trusted by contexts that knew it, until the process ends: a rotation
    overlaps anyway.
    """

    def __init__(
        self,
        kube: "Kube",
        *,
        signer: str,
        names: CertificateNames,
        ca_file: Path,
        seconds: int,
        certificate: Certificate,
        ca_pem: bytes,
    ) -> None:
        self._kube = kube
        self._signer = signer
        self._names = names
        self._ca_file = ca_file
        self._seconds = seconds
        self._contexts: list[ssl.SSLContext] = []
        self._callbacks: list[Callable[[], None]] = []
        self.certificate = certificate
        self.ca_pem = ca_pem

    @classmethod
    async def obtain(
        cls, kube: "Kube", *, signer: str, names: CertificateNames, ca_file: Path, seconds: int = 3600
    ) -> Self:
        """Waits for the CA's file and for the first certificate, both of which an operator that has just started owes.

        Raises CertificateRefused when the signer says no, and after two minutes whatever stood in the way.
        """
        ca_pem = await _wait_for_ca(ca_file)
        certificate = await _first_certificate(kube, signer=signer, names=names, seconds=seconds)
        return cls(
            kube,
            signer=signer,
            names=names,
            ca_file=ca_file,
            seconds=seconds,
            certificate=certificate,
            ca_pem=ca_pem,
        )

    def server_ssl(self, *, require_client: bool = True) -> ssl.SSLContext:
        """A live context for servers."""
        context = server_context(self.certificate, self.ca_pem, require_client=require_client)
        self._contexts.append(context)
        return context

    def client_ssl(self) -> ssl.SSLContext:
        """A live context for clients."""
        context = client_context(self.certificate, self.ca_pem)
        self._contexts.append(context)
        return context

    def grpc_server_credentials(self) -> "grpc.ServerCredentials":
        """Credentials for a grpc.aio server that demands client certificates; each handshake uses what is current."""
        import grpc

        # gRPC asks before every handshake; None means "as before".
        given = (self.certificate, self.ca_pem)

        def configuration() -> Any:
            pair = [(self.certificate.key_pem, self.certificate.chain_pem)]
            return grpc.ssl_server_certificate_configuration(pair, root_certificates=self.ca_pem)

        def fetch() -> Any:
            nonlocal given
            current = (self.certificate, self.ca_pem)
            if current == given:
                return None
            given = current
            return configuration()

        return grpc.dynamic_ssl_server_credentials(configuration(), fetch, require_client_authentication=True)

    def grpc_channel_credentials(self) -> "grpc.ChannelCredentials":
        """Credentials for a new channel. gRPC fixes them for the channel's life: make a new one `on_change`."""
        import grpc

        return grpc.ssl_channel_credentials(
            root_certificates=self.ca_pem,
            private_key=self.certificate.key_pem,
            certificate_chain=self.certificate.chain_pem,
        )

    def on_change(self, callback: Callable[[], None]) -> None:
        """Calls *callback* after the certificate or the CA bundle has changed."""
        self._callbacks.append(callback)

    async def run(self) -> None:
        """Renews and follows until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())
            group.create_task(self._follow_ca())

    async def _renew(self) -> None:
        failures = 0
        due = renewal_time(self.certificate, draw=draw())
        while True:
            # Short steps, since the wall clock may be set meanwhile.
            if (left := due - clock.wall()) > 0:
                await asyncio.sleep(min(left, LONGEST_RETRY_SECONDS))
                continue
            try:
                certificate = await request_certificate(
                    self._kube, signer=self._signer, names=self._names, seconds=self._seconds
                )
            except KruntimesError as error:
                failures += 1
                wait = wait_after(error, failures=failures, first=FIRST_RETRY_SECONDS, cap=LONGEST_RETRY_SECONDS)
                log.warning("certificate not renewed", extra={"signer": self._signer, "error": str(error)})
                await asyncio.sleep(wait)
                continue
            failures = 0
            due = max(renewal_time(certificate, draw=draw()), clock.wall() + LEAST_LIFE_SECONDS)
            self.install(certificate=certificate)
            log.info("certificate renewed", extra={"signer": self._signer})

    async def _follow_ca(self) -> None:
        while True:
            await asyncio.sleep(CA_POLL_SECONDS)
            found = _read_ca(self._ca_file)
            if found is not None and found != self.ca_pem:
                self.install(ca_pem=found)
                log.info("ca bundle changed")

    def install(self, *, certificate: Certificate | None = None, ca_pem: bytes | None = None) -> None:
        """Takes a new certificate or bundle into every live context and tells whoever asked to know."""
        if certificate is not None:
            for context in self._contexts:
                load_pair(context, certificate)
            self.certificate = certificate
        if ca_pem is not None:
            for context in self._contexts:
                context.load_verify_locations(cadata=ca_pem.decode("ascii"))
            self.ca_pem = ca_pem
        for callback in self._callbacks:
            callback()


def _read_ca(path: Path) -> bytes | None:
    """The bundle, or None where there is none that can be used (a file half written, or not there)."""
    try:
        found = path.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found.decode("ascii"))
    except (OSError, ValueError):
        return None
    return found


async def _first_certificate(kube: "Kube", *, signer: str, names: CertificateNames, seconds: int) -> Certificate:
    """Asks until it is there. A 403 counts as "not yet": our role may be about to be bound."""
    give_up, failures = clock.monotonic() + OBTAIN_SECONDS, 0
    while True:
        try:
            return await request_certificate(kube, signer=signer, names=names, seconds=seconds)
        except (NotReady, ApiError) as error:
            failures += 1
            wait = wait_after(error, failures=failures, first=FIRST_RETRY_SECONDS, cap=LONGEST_OBTAIN_RETRY_SECONDS)
            if clock.monotonic() + wait >= give_up:
                raise
            log.info("no certificate yet", extra={"signer": signer, "error": str(error)})
            await asyncio.sleep(wait)


async def _wait_for_ca(path: Path) -> bytes:
    try:
        async with asyncio.timeout(CA_WAIT_SECONDS):
            while True:
                if (found := _read_ca(path)) is not None:
                    return found
                await asyncio.sleep(CA_FIRST_POLL_SECONDS)
    except TimeoutError:
        raise NotReady(f"no CA bundle in {path} within {CA_WAIT_SECONDS:.0f} s") from None
