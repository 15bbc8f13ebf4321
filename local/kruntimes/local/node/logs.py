"""Serves the logs of the node's containers to the API server, so that `kubectl logs` works (design §10).

The API server asks `GET /containerLogs/NAMESPACE/POD/CONTAINER` of the node's own port, with a client certificate. As
kubelet does, the certificate must come from the cluster's CA, and its owner is asked about with a
SubjectAccessReview: without one this port would show every log to every process of the machine.
"""

import asyncio
import datetime
import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from kruntimes.common import clock
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import ApiError
from kruntimes.common.kube.transport import Kube
from kruntimes.local.node.context import HOST_IP
from kruntimes.local.node.log_options import BadOptions, Lines, LogOptions, parse
from kruntimes.local.node.log_times import Times

CHUNK = 64 * 1024
FOLLOW_SECONDS = 0.2
LIFE_DAYS = 30
"""Of the certificate that is made at every start."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class LogServer:
    """A small HTTPS server on a free port. `start` it, tell the node its port, `close` it when done."""

    def __init__(self, kube: Kube, *, node: str, logs: Path) -> None:
        self._kube = kube
        self._node = node
        self._logs = logs
        self._runner: web.AppRunner | None = None

    async def start(self, *, folder: Path, client_ca: str) -> int:
        """Listens and returns the port. folder: where the certificate is made; client_ca: PEM of the cluster's CA."""
        app = web.Application()
        app.add_routes([web.get("/containerLogs/{namespace}/{pod}/{container}", self._serve)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        tls = await asyncio.to_thread(context, folder, client_ca)
        site = web.TCPSite(self._runner, HOST_IP, 0, ssl_context=tls)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Ends every connection."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        peer = transport.get_extra_info("peercert") if transport is not None else None
        if not peer or not await self._allowed(peer):
            raise web.HTTPForbidden(text="not allowed to read logs of this node")
        parts = [request.match_info[name] for name in ("namespace", "pod", "container")]
        if not all(_NAME.fullmatch(part) for part in parts):
            raise web.HTTPBadRequest(text="not a name")
        namespace, pod, container = parts
        try:
            options = parse(request.query, now=clock.wall())
        except BadOptions as error:
            return web.Response(status=error.status, text=str(error))
        if options.previous:  # one log goes on over restarts
            raise web.HTTPBadRequest(text=f'previous terminated container "{container}" in pod "{pod}" not found')
        file = self._logs / f"{namespace}_{pod}" / f"{container}.log"
        if not file.is_file():
            raise web.HTTPNotFound(text=f"container {container} has not logged anything")
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await response.prepare(request)
        start = await asyncio.to_thread(tail_start, file, options.tail)
        await _copy(file, response, start=start, options=options)
        return response

    async def _allowed(self, peer: Mapping[str, Any]) -> bool:
        fields = [pair for part in peer.get("subject", ()) for pair in part]
        users = [value for name, value in fields if name == "commonName"]
        groups = [value for name, value in fields if name == "organizationName"]
        if not users:
            return False
        spec = {
            "user": users[0],
            "groups": [*groups, "system:authenticated"],
            "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "proxy", "name": self._node},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            answer = await self._kube.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body, dict)
        except ApiError:
            return False
        return bool(answer.get("status", {}).get("allowed"))


async def client_ca(kube: Kube) -> str | None:
    """The CA of client certificates, as the API server publishes it; None where it does not."""
    try:
        found = await kube.get(paths.configmaps("kube-system", "extension-apiserver-authentication"), dict)
    except ApiError:
        return None
    text = found.get("data", {}).get("client-ca-file")
    return str(text) if text else None


def tail_start(file: Path, lines: int | None) -> int:
    """Where the last *lines* of *file* begin, in bytes; 0 for all of it."""
    if lines is None:
        return 0
    with open(file, "rb") as stream:
        at = stream.seek(0, os.SEEK_END)
        found = 0
        while at > 0:
            size = min(CHUNK, at)
            stream.seek(at - size)
            chunk = stream.read(size)
            for index in range(len(chunk) - 1, -1, -1):
                if chunk[index] == 0x0A:
                    found += 1
                    if found > lines:
                        return at - size + index + 1
            at -= size
    return 0


class _Open:
    """One file of a log, with its times, read from *start* on."""

    def __init__(self, file: Path, *, start: int = 0) -> None:
        self._stream = open(file, "rb")  # noqa: SIM115
        self._stream.seek(start)
        self.inode = os.fstat(self._stream.fileno()).st_ino
        self._times = Times(file, inode=self.inode)
        self._at = start

    def read(self, lines: Lines) -> bytes | None:
        """What *lines* sends of the next piece; None at the end of what there is."""
        data = self._stream.read(CHUNK)
        if not data:
            return None
        self._times.read()
        at, self._at = self._at, self._at + len(data)
        return lines.take(data, at=at, written=self._times.at)

    def close(self) -> None:
        """Closes both."""
        self._stream.close()
        self._times.close()


async def _copy(file: Path, response: web.StreamResponse, *, start: int, options: LogOptions) -> None:
    """Sends *file* from *start*, as *options* say; follows as long as the caller listens, over a turned file too."""
    opened = await asyncio.to_thread(_Open, file, start=start)
    lines, turned = Lines(options), False
    try:
        while not lines.full:
            piece = opened.read(lines)
            if piece:
                await response.write(piece)
            elif piece is not None:
                await asyncio.sleep(0)  # nothing of it is wanted, and others wait
            elif not options.follow:
                return
            elif turned:  # and it was read to its end after that
                opened.close()
                opened, turned = await asyncio.to_thread(_Open, file), False
            elif not (turned := _turned(file, opened.inode)):
                await asyncio.sleep(FOLLOW_SECONDS)
    finally:
        opened.close()


def _turned(file: Path, inode: int) -> bool:
    """Whether the file of that inode has become the old one: it was turned over, and a new one has begun."""
    return file.exists() and file.stat().st_ino != inode


def context(folder: Path, client_ca: str) -> ssl.SSLContext:
    """A server's TLS context with a certificate made now; client certificates of *client_ca* are demanded."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "krt-dev")])
    now = clock.utcnow()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=LIFE_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST_IP))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    file = folder / "node.pem"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.load_cert_chain(file)
    tls.load_verify_locations(cadata=client_ca)
    tls.verify_mode = ssl.CERT_REQUIRED
    return tls
