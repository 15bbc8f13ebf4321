"""The embedded API server as a process. Wire.

    python -m kruntimes.local.apiserver --listen 127.0.0.1:PORT --state DIR

It writes DIR/admin.kubeconfig and DIR/ca.crt, says nothing but what goes wrong, and is ready when /readyz is.
"""

import argparse
import asyncio
import base64
import random
import signal
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop

from kruntimes.common import clock
from kruntimes.local.apiserver import assemble, bootstrap, memory
from kruntimes.local.apiserver.api import Api, Call
from kruntimes.local.apiserver.certificates import Authority, node_context, private_file, server_context
from kruntimes.local.apiserver.encoding import Encoded, encode
from kruntimes.local.apiserver.metadata import SUFFIX_CHARACTERS
from kruntimes.local.apiserver.node_logs import NodeLogs
from kruntimes.local.apiserver.server import Server

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def kubeconfig(server: str, ca: bytes, key: bytes, certificate: bytes) -> bytes:
    """A kubeconfig with everything in it; JSON is YAML too."""

    def inline(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    name = "krt"
    return encode(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": inline(ca)}}],
            "users": [
                {
                    "name": name,
                    "user": {"client-certificate-data": inline(certificate), "client-key-data": inline(key)},
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def first_version(now: datetime) -> int:
    """A resourceVersion above all of an earlier life of the server, as long as that wrote less than one in a
    millisecond: its watchers are told that their version is too old, and list anew."""
    return int((now - _EPOCH) / timedelta(milliseconds=1))


async def serve(host: str, port: int, state: Path) -> None:
    """Serves until SIGTERM or SIGINT."""
    now = clock.utcnow()
    authority = Authority.in_folder(state, now=now)
    encoded = Encoded()
    draw = random.SystemRandom()
    api = Api(
        assemble.parts(state, authority),
        now=clock.utcnow,
        uid=lambda: str(uuid.uuid4()),
        suffix=lambda: "".join(draw.choices(SUFFIX_CHARACTERS, k=5)),
        size=encoded.size,
        first_version=first_version(now),
    )
    for path, namespace, obj in bootstrap.objects(client_ca=authority.pem.decode(), port=port):
        resource = api.resources.find(*path)
        assert resource is not None
        api.create(resource, namespace, obj, Call(manager="kube-apiserver"))
    logs = NodeLogs(api, lambda: node_context(state, authority, now=clock.utcnow()))
    server = Server(api, now=clock.utcnow, logs=logs, encoded=encoded)
    tls = server_context(state, authority, host, now=now)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.start(host, port, tls)
    key, certificate = authority.client("kubernetes-admin", "system:masters", now=now)
    (state / "ca.crt").write_bytes(authority.pem)
    private_file(state / "admin.kubeconfig", kubeconfig(f"https://{host}:{port}", authority.pem, key, certificate))
    try:
        async with asyncio.TaskGroup() as group:
            memory.settle()
            tasks = [group.create_task(memory.collect_when_quiet(server.last_request))]
            tasks += [group.create_task(part(api)) for part in api.parts.loops]
            await stop.wait()
            for task in tasks:
                task.cancel()
    finally:
        await server.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(prog="python -m kruntimes.local.apiserver", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--state", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdecimal():
        parser.error("--listen: not ADDRESS:PORT")
    options.state.mkdir(parents=True, exist_ok=True)
    uvloop.run(serve(host, int(port), options.state))


if __name__ == "__main__":
    main()
