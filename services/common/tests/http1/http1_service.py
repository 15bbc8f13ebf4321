"""A small service for the listener's tests, and raw connections to it."""

import asyncio
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kruntimes.common.http1.connection import Exchange
from kruntimes.common.http1.machine import Limits
from kruntimes.common.http1.messages import Fault, Request, Response
from kruntimes.common.http1.server import Server

LIMIT_SECONDS = 30.0
BODY_BYTES = 4096


@dataclass
class Echo:
    """Answers by target: `/now` at once, `/wait` once `release` is set, `/big` with much, `/raise` never."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    callers: int = 0

    def identify(self, transport: asyncio.BaseTransport) -> int:
        self.callers += 1
        return self.callers

    def handle(self, exchange: Exchange[int]) -> None:
        request = exchange.request
        self.seen.append(request.target)
        exchange.on_gone = lambda: self.ended.append("gone")
        if request.body is None:
            exchange.answer(Response(status=413, close=True))
        elif request.target in ("/wait", "/late"):
            exchange.wait_for(self._wait(request))
        elif request.target == "/raise":
            raise ValueError(request.target)
        elif request.target == "/big":
            exchange.answer(Response(status=200, body=b"x" * 8_000_000))
        elif request.target == "/broken":
            exchange.answer(Response(status=200, headers={"a": "b\r\nc: d"}))
        else:
            exchange.answer(Response(status=200, headers={"x-method": request.method}, body=request.body))

    async def _wait(self, request: Request) -> Response:
        self.waiting.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        if request.target == "/late":
            raise ValueError(request.target)
        return Response(status=200, body=request.body or b"")

    def refuse(self, fault: Fault, caller: int) -> Response:
        self.ended.append(fault.wrong.name)
        return Response(status=fault.wrong.value, body=fault.message.encode())

    def lost(self, request: Request, caller: int) -> None:
        self.ended.append("lost")


@dataclass
class Peer:
    """One raw connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        async with asyncio.timeout(LIMIT_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            return (
                int(head[0].split()[1]),
                headers,
                await self.reader.readexactly(int(headers.get("content-length", 0))),
            )

    async def rest(self) -> bytes:
        """Everything until the other side closes."""
        async with asyncio.timeout(LIMIT_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


@dataclass
class Listener:
    """The service on a unix socket."""

    echo: Echo
    server: Server[int]
    path: Path

    @asynccontextmanager
    async def peer(self, *, receive_bytes: int = 0) -> AsyncIterator[Peer]:
        """A connection. receive_bytes: a small receive buffer, for a caller that does not take its answers."""
        end = socket.socket(socket.AF_UNIX)
        if receive_bytes:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        end.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(end, str(self.path))
        except OSError:
            end.close()
            raise
        reader, writer = await asyncio.open_unix_connection(sock=end)
        try:
            yield Peer(reader, writer)
        finally:
            writer.close()


@asynccontextmanager
async def listening(*, body: int = BODY_BYTES, idle_seconds: float = 60.0, most: int = 100) -> AsyncIterator[Listener]:
    """The listener, on a socket of its own."""
    echo = Echo()
    server = Server(echo, limits=Limits(body=body), idle_seconds=idle_seconds, max_connections=most)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{secrets.token_hex(4)}.sock"
        await server.listen_unix(path, umask=0o177)
        assert os.stat(path).st_mode & 0o777 == 0o600
        try:
            yield Listener(echo, server, path)
        finally:
            echo.release.set()
            await server.close(0.1)
