"""Clients that send exactly what a test says: bytes over HTTP/1.1, frames over HTTP/2."""

import asyncio
import json
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import h2.config
import h2.connection
import h2.events

LIMIT_SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    """status is 0 for a stream that was reset, whose code is then `reset`, or a connection that was just closed."""

    status: int
    headers: dict[str, str]
    body: bytes
    reset: int | None = None

    @property
    def error(self) -> dict[str, Any]:
        """The content of the JSON error document."""
        assert self.headers["content-type"] == "application/json"
        document: dict[str, Any] = json.loads(self.body)
        assert list(document) == ["error"]
        found: dict[str, Any] = document["error"]
        return found


def parse(data: bytes) -> Answer:
    """Reads one HTTP/1.1 answer of known length."""
    head, _, body = data.partition(b"\r\n\r\n")
    if not head:
        return Answer(0, {}, b"")
    status, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Answer(int(status.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}, body)


async def http1(
    port: int,
    parts: Sequence[bytes],
    *,
    tls: ssl.SSLContext | None,
    wait_for_end: bool = False,
    host: str = "127.0.0.1",
    name: str = "localhost",
) -> Answer:
    """Sends *parts* and reads one answer, or until the end; a server that closes while we send is no error."""
    async with asyncio.timeout(LIMIT_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name if tls else None)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            if wait_for_end:
                return parse(await reader.read())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(v) for n, v in parse(head).headers.items() if n == "content-length"), 0)
            return parse(head + await reader.readexactly(length))
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            partial = error.partial if isinstance(error, asyncio.IncompleteReadError) else await reader.read()
            return parse(partial)
        finally:
            # Not a polite end: Envoy waits a second for a caller that has more to send.
            writer.transport.abort()


async def http2(
    port: int,
    headers: Iterable[tuple[str, str]],
    body: bytes = b"",
    *,
    tls: ssl.SSLContext,
    host: str = "127.0.0.1",
    name: str = "localhost",
) -> Answer:
    """Sends one request over HTTP/2 and reads its answer; headers are sent as they are, unchecked."""
    tls.set_alpn_protocols(["h2"])
    configuration = h2.config.H2Configuration(
        client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False, header_encoding="latin-1"
    )
    connection = h2.connection.H2Connection(configuration)
    async with asyncio.timeout(LIMIT_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
        try:
            connection.initiate_connection()
            stream = connection.get_next_available_stream_id()
            connection.send_headers(stream, list(headers), end_stream=not body)
            return await _exchange(connection, stream, body, reader, writer)
        finally:
            # Not a polite end: Envoy waits a second for a caller that has more to send.
            writer.transport.abort()


async def _exchange(
    connection: h2.connection.H2Connection,
    stream: int,
    body: bytes,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> Answer:
    sent, status, received, content = 0, 0, dict[str, str](), b""
    while True:
        while sent < len(body):
            room = min(connection.local_flow_control_window(stream), connection.max_outbound_frame_size)
            if room <= 0:
                break
            piece = body[sent : sent + room]
            sent += len(piece)
            connection.send_data(stream, piece, end_stream=sent == len(body))
        writer.write(connection.data_to_send())
        await writer.drain()
        data = await reader.read(65536)
        if not data:
            return Answer(status, received, content)
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                pairs = {str(name): str(value) for name, value in event.headers or ()}
                status = int(pairs.pop(":status"))
                received = pairs
            elif isinstance(event, h2.events.DataReceived):
                content += event.data or b""
                connection.acknowledge_received_data(event.flow_controlled_length, stream)
            elif isinstance(event, h2.events.StreamEnded):
                return Answer(status, received, content)
            elif isinstance(event, h2.events.StreamReset):
                return Answer(status, received, content, reset=int(event.error_code))
            elif isinstance(event, h2.events.ConnectionTerminated):
                return Answer(status, received, content, reset=int(event.error_code or 0))
