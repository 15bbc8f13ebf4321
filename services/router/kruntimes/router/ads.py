"""The aggregated discovery service over gRPC: the shell around `kruntimes.router.stream` (design §6, §8).

Whoever serves this owns all routing, so it is mTLS and answers to the role gateway only. Messages go out as bytes
that were made once; gRPC never sees more than one response of a type per Envoy.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import grpc
import grpc.aio

from kruntimes.common import clock
from kruntimes.common.identity import Peer
from kruntimes.common.tls import peer_of
from kruntimes.router import discovery
from kruntimes.router.metrics import Metrics
from kruntimes.router.snapshot import Key, Snapshot
from kruntimes.router.stream import Stream
from kruntimes.router.subscription import Reply

log = logging.getLogger(__name__)

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
METHOD = "DeltaAggregatedResources"
MAX_STREAMS = 256
"""Envoys of one installation; more are a mistake, and each costs an index of what it holds."""
MAX_REQUEST_BYTES = 4 << 20
"""An Envoy that resumes names every resource with its version: 8,194 of them are 0.4 MB."""
MAX_RESPONSE_BYTES = 64 << 20
"""Far above a response, which is closed at 2 MiB and only exceeds it by one resource."""
STOP_SECONDS = 1.0
"""Streams never end by themselves; Envoys keep what they have and resume elsewhere."""

OPTIONS = (
    # A dead Envoy is noticed within 40 s. Envoys ping as well: every 10 s must not count as abuse.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    # The client's certificate is checked when it connects and lives for an hour: so does a connection.
    ("grpc.max_connection_age_ms", 3_600_000),
    ("grpc.max_connection_age_grace_ms", 1_000),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", MAX_RESPONSE_BYTES),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.so_reuseport", 0),
)

Context = grpc.aio.ServicerContext[bytes, bytes]


class _Client:
    """One connected Envoy: its stream, and since when the changes have waited that it has not yet."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.wake = asyncio.Event()
        self.ended = False
        self.malformed = False
        self.node = ""
        self.waiting: dict[str, float] = {}
        self.flying: dict[str, float] = {}

    def changed(self, keys: Collection[Key], now: float) -> None:
        self.stream.changed(keys)
        for type_url in {key.type_url for key in keys}:
            self.waiting.setdefault(type_url, now)
        self.wake.set()

    def settle(self) -> None:
        """Everything that is due was sent: what still waits, but for no response under way, came to nothing."""
        under_way = self.stream.under_way
        self.waiting = {type_url: since for type_url, since in self.waiting.items() if type_url in under_way}

    def end(self) -> None:
        self.ended = True
        self.wake.set()


class Publisher:
    """Serves the current snapshot to every Envoy that connects; until the first `publish`, streams wait.

    allowed: whether this peer, None where it named nobody, may have the routes.
    """

    def __init__(self, *, allowed: Callable[[Peer | None], bool], metrics: Metrics) -> None:
        self._allowed = allowed
        self._metrics = metrics
        self._clients: set[_Client] = set()
        self._streams = 0
        self._serving = asyncio.Event()
        self._snapshot = Snapshot()

    @property
    def serving(self) -> bool:
        """Whether there is a world to serve."""
        return self._serving.is_set()

    def publish(self, snapshot: Snapshot, changed: Collection[Key]) -> None:
        """Makes *snapshot* what is served; *changed*: the keys in which it differs from the one before."""
        self._snapshot = snapshot
        self._serving.set()
        now = clock.monotonic()
        for client in self._clients:
            client.changed(changed, now)

    def handler(self) -> grpc.GenericRpcHandler:
        """The service, to be added to a server."""
        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._serve)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    async def _serve(self, _: Any, context: Context) -> None:
        peer = peer_of(_auth_context(context))
        if not self._allowed(peer):
            self._metrics.refused("identity")
            log.warning("stream refused", extra={"peer": context.peer(), "identity": str(peer)})
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "routes are for gateways")
        if self._streams >= MAX_STREAMS:
            self._metrics.refused("too_many")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
        client = _Client()
        self._streams += 1
        self._metrics.streams.set(self._streams)
        try:
            await self._serving.wait()
            self._clients.add(client)
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(client, context))
                await self._write(client, context)
                reading.cancel()
        finally:
            self._clients.discard(client)
            self._streams -= 1
            self._metrics.streams.set(self._streams)
        if client.malformed:
            self._metrics.refused("malformed")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a discovery request")

    async def _read(self, client: _Client, context: Context) -> None:
        """Takes requests until the client has no more, or sends what is none."""
        while isinstance(data := await context.read(), bytes):
            try:
                request = discovery.decode(data)
                reply = client.stream.receive(request)
            except ValueError as error:
                log.warning("malformed request", extra={"node": client.node, "error": str(error)})
                client.malformed = True
                break
            if request.node and not client.node:
                client.node = request.node
                log.info("envoy connected", extra={"node": client.node, "peer": context.peer()})
            self._metrics.replied(request.type_url, reply)
            since = client.flying.pop(request.nonce, None)
            if reply is Reply.ACK and since is not None:
                self._metrics.pushed(request.type_url, clock.monotonic() - since)
            if reply is Reply.NACK:
                log.error(
                    "envoy refused a response",
                    extra={"node": client.node, "type": request.type_url, "error": request.error},
                )
            client.wake.set()
        client.end()

    async def _write(self, client: _Client, context: Context) -> None:
        """Sends what is due until the client ends; waits where the connection is slower than the changes."""
        while not client.ended:
            client.wake.clear()
            while (response := client.stream.next(self._snapshot)) is not None:
                since = client.waiting.pop(response.type_url, None)
                if since is not None:
                    client.flying[response.nonce] = since
                data = discovery.encode(response)
                self._metrics.sent(response.type_url, len(data))
                await context.write(data)
            client.settle()
            await client.wake.wait()


def new_server(publisher: Publisher) -> grpc.aio.Server:
    """A server with the service on it; the caller adds a port, starts it, and stops it with STOP_SECONDS."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((publisher.handler(),))
    return server


def _auth_context(context: Context) -> Mapping[str, Any]:
    """Who is at the other end, as TLS proved it; nothing on a plaintext connection."""
    proven: Mapping[str, Any] = context.auth_context()
    return proven
