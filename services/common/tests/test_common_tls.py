"""mTLS between workloads: who is let in, who is recognised, and what changes while connections stand."""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kruntimes.common import clock, tls
from kruntimes.common.api.names import Role
from kruntimes.common.errors import NotReady
from kruntimes.common.kube.csr import Certificate, CertificateNames, CertificateRefused, assemble, new_key
from kruntimes.common.kube.errors import Forbidden
from kruntimes.common.tls import Workload, client_context, load_pair, peer_of, renewal_time, server_context

URI = "spiffe://cluster.local/ns/demo/gateway/kruntimes/pod/uid-1"
SERVER = "uid-2.runtimed.kruntimes.internal"
LIMIT_SECONDS = 20.0


class Authority:
    """A CA, and whatever certificates a test wants from it."""

    def __init__(self, name: str = "test ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = built.public_bytes(serialization.Encoding.PEM)

    def issue(self, *, uris: tuple[str, ...] = (), dns: tuple[str, ...] = (), ips: tuple[str, ...] = ()) -> Certificate:
        key, now = new_key(), datetime.datetime.now(datetime.UTC)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [x509.DNSName(name) for name in dns]
        names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips]
        chain = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )
        return assemble(key, chain)


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority()


@asynccontextmanager
async def echo(context: ssl.SSLContext) -> AsyncIterator[tuple[int, list[object]]]:
    """A TLS server that answers with what it is sent; its port, and who called."""
    peers: list[object] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(peer_of(writer.get_extra_info("ssl_object")))
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], peers
    finally:
        server.close()


async def call(port: int, context: ssl.SSLContext, name: str = SERVER) -> tuple[bytes, int]:
    """One call; returns the echo and the serial number of the server's certificate."""
    async with asyncio.timeout(LIMIT_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        try:
            writer.write(b"hello")
            answer = await reader.readexactly(5)
            der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return answer, x509.load_der_x509_certificate(der).serial_number
        finally:
            writer.close()


def _serial(certificate: Certificate) -> int:
    return x509.load_pem_x509_certificate(certificate.chain_pem).serial_number


async def test_both_ends_know_each_other(ca: Authority) -> None:
    server = server_context(ca.issue(dns=(SERVER,)), ca.pem, require_client=True)
    async with echo(server) as (port, peers):
        answer, _ = await call(port, client_context(ca.issue(uris=(URI,)), ca.pem))
    assert answer == b"hello"
    [peer] = peers
    assert peer == tls.Peer(
        trust_domain="cluster.local", namespace="demo", role=Role.GATEWAY, owner="kruntimes", pod_uid="uid-1"
    )


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(lambda ca: _anonymous(ca), id="no-client-certificate"),
        pytest.param(lambda ca: client_context(Authority().issue(uris=(URI,)), ca.pem), id="another-ca-s-client"),
        pytest.param(lambda ca: client_context(ca.issue(uris=(URI,)), Authority().pem), id="server-of-another-ca"),
        pytest.param(lambda ca: _old(client_context(ca.issue(uris=(URI,)), ca.pem)), id="tls-1.1"),
    ],
)
async def test_who_is_not_let_in(ca: Authority, client: Callable[[Authority], ssl.SSLContext]) -> None:
    server = server_context(ca.issue(dns=(SERVER,)), ca.pem, require_client=True)
    async with echo(server) as (port, peers):
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await call(port, client(ca))
    assert peers in ([], [None])


async def test_a_server_of_another_name_is_refused(ca: Authority) -> None:
    server = server_context(ca.issue(dns=("uid-3.runtimed.kruntimes.internal",)), ca.pem, require_client=True)
    async with echo(server) as (port, _):
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await call(port, client_context(ca.issue(uris=(URI,)), ca.pem))


def _anonymous(ca: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca.pem.decode())


def _old(context: ssl.SSLContext) -> ssl.SSLContext:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


async def test_a_context_takes_a_new_certificate_while_connections_stand(ca: Authority) -> None:
    first, second = ca.issue(dns=(SERVER,)), ca.issue(dns=(SERVER,))
    server, client = server_context(first, ca.pem, require_client=False), _anonymous(ca)
    async with echo(server) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=SERVER)
        load_pair(server, second)
        assert await call(port, client) == (b"hello", _serial(second))
        writer.write(b"still")
        assert await reader.readexactly(5) == b"still"
        writer.close()


@pytest.mark.parametrize(
    ("uris", "known"),
    [
        pytest.param((URI,), True, id="one"),
        pytest.param((URI, "spiffe://cluster.local/ns/demo/router/r/pod/x"), False, id="two"),
        pytest.param((), False, id="none"),
        pytest.param(("spiffe://other",), False, id="foreign"),
    ],
)
def test_peers_by_pem_and_grpc(ca: Authority, uris: tuple[str, ...], known: bool) -> None:
    pem = ca.issue(uris=uris, dns=("x",)).chain_pem
    for source in (pem, pem.decode(), {"x509_pem_cert": [pem], "transport_security_type": [b"ssl"]}):
        assert (peer_of(source) is not None) is known


@pytest.mark.parametrize(
    "source", [None, b"", "x", {}, {"x509_pem_cert": []}, 5, object()], ids=lambda value: type(value).__name__
)
def test_what_is_no_certificate_names_nobody(source: object) -> None:
    assert peer_of(source) is None


def test_no_key_touches_the_disk(ca: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not-there"))
    server_context(ca.issue(dns=(SERVER,)), ca.pem, require_client=True)


@pytest.mark.parametrize(("draw", "expected"), [(0.0, 2400.0), (1.0, 2040.0)], ids=["latest", "earliest"])
def test_renewal_is_due_at_two_thirds_or_a_little_before(draw: float, expected: float) -> None:
    certificate = Certificate(key_pem=b"", chain_pem=b"", not_before=0.0, not_after=3600.0)
    assert renewal_time(certificate, draw=draw) == pytest.approx(expected)


class Signer:
    """Stands in for `request_certificate`; raises what *troubles* holds, then issues."""

    def __init__(self, ca: Authority, *troubles: Exception) -> None:
        self.ca = ca
        self.troubles = list(troubles)
        self.issued: list[Certificate] = []

    async def __call__(self, kube: object, *, signer: str, names: CertificateNames, seconds: int) -> Certificate:
        if self.troubles:
            raise self.troubles.pop(0)
        certificate = self.ca.issue(uris=names.uris, dns=names.dns)
        self.issued.append(certificate)
        return certificate


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(tls, "CA_POLL_SECONDS", 0.01)


async def _obtain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca: Authority, *troubles: Exception
) -> tuple[Workload, Signer]:
    signer = Signer(ca, *troubles)
    monkeypatch.setattr(tls, "request_certificate", signer)
    (tmp_path / "ca.crt").write_bytes(ca.pem)
    kube: Any = None
    workload = await Workload.obtain(
        kube,
        signer="kruntimes.io/runtimed",
        names=CertificateNames(uris=(URI,), dns=(SERVER,)),
        ca_file=tmp_path / "ca.crt",
    )
    return workload, signer


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("quick")
class TestWorkload:
    async def test_a_start_waits_for_its_role_and_its_signer(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca: Authority
    ) -> None:
        workload, signer = await _obtain(monkeypatch, tmp_path, ca, Forbidden(status=403), NotReady("away"))
        assert [workload.certificate] == signer.issued

    async def test_a_refusal_is_final(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca: Authority) -> None:
        with pytest.raises(CertificateRefused):
            await _obtain(monkeypatch, tmp_path, ca, CertificateRefused("no"))

    async def test_it_gives_up_in_the_end(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca: Authority) -> None:
        monkeypatch.setattr(tls, "OBTAIN_SECONDS", 0.05)
        with pytest.raises(NotReady):
            await _obtain(monkeypatch, tmp_path, ca, *[NotReady("away")] * 100)
        monkeypatch.setattr(tls, "CA_WAIT_SECONDS", 0.05)
        with pytest.raises(NotReady, match="no CA bundle"):
            await tls._wait_for_ca(tmp_path / "not-there")

    async def test_it_renews_at_two_thirds_despite_failures_and_servers_follow(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca: Authority
    ) -> None:
        workload, signer = await _obtain(monkeypatch, tmp_path, ca)
        signer.troubles = [NotReady("away"), Forbidden(status=403), CertificateRefused("not now")]
        changes: list[int] = []
        workload.on_change(lambda: changes.append(len(signer.issued)))
        server, client = workload.server_ssl(), workload.client_ssl()
        due = renewal_time(workload.certificate, draw=0.0) + 1
        async with echo(server) as (port, _), asyncio.TaskGroup() as group:
            assert (await call(port, client))[1] == _serial(signer.issued[0])
            monkeypatch.setattr(clock, "wall", lambda: due)
            running = group.create_task(workload.run())
            await _until(lambda: changes)
            assert (await call(port, client))[1] == _serial(signer.issued[1])
            running.cancel()
        assert workload.certificate is signer.issued[1]
        assert changes == [2], "a certificate that is due at once is not renewed at once"

    async def test_it_follows_the_ca_with_overlap_and_ignores_a_broken_file(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca: Authority
    ) -> None:
        workload, _ = await _obtain(monkeypatch, tmp_path, ca)
        other = Authority("next ca")
        stranger = client_context(other.issue(uris=(URI,)), ca.pem)
        async with echo(workload.server_ssl()) as (port, _), asyncio.TaskGroup() as group:
            running = group.create_task(workload.run())
            (tmp_path / "ca.crt").write_bytes(b"-----BEGIN CERT")
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await call(port, stranger)
            (tmp_path / "ca.crt").write_bytes(ca.pem + other.pem)
            await _until(lambda: workload.ca_pem == ca.pem + other.pem)
            assert (await call(port, stranger))[0] == b"hello"
            assert (await call(port, client_context(ca.issue(uris=(URI,)), ca.pem)))[0] == b"hello"
            running.cancel()

    async def test_grpc_serves_with_what_is_current_and_tells_the_peer(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca: Authority
    ) -> None:
        workload, _ = await _obtain(monkeypatch, tmp_path, ca)
        peers: list[object] = []

        async def who(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            peers.append(peer_of(context.auth_context()))
            return request

        server = grpc.aio.server()
        handlers = {"Who": grpc.unary_unary_rpc_method_handler(who)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
        port = server.add_secure_port("127.0.0.1:0", workload.grpc_server_credentials())
        await server.start()
        options = [("grpc.ssl_target_name_override", SERVER), ("grpc.use_local_subchannel_pool", 1)]

        async def ask() -> bytes:
            credentials = workload.grpc_channel_credentials()
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
                answer: bytes = await channel.unary_unary("/test.Test/Who")(b"x", timeout=LIMIT_SECONDS)
                return answer

        try:
            assert await ask() == b"x"
            next_ca = Authority("next ca")
            workload.install(certificate=next_ca.issue(uris=(URI,), dns=(SERVER,)), ca_pem=next_ca.pem)
            assert await ask() == b"x"
            assert [peer is not None for peer in peers] == [True, True]
            workload.ca_pem = ca.pem
            with pytest.raises(grpc.aio.AioRpcError):
                await ask()
        finally:
            await server.stop(None)
