"""A listener for the hot paths behind Envoy: HTTP/1.1 with nothing that they do not need (design §2).

It listens, counts connections, ends those whose deadline has passed, and drains. Everything else is `connection`'s
and `machine`'s. One timer serves all connections: none is made for a request.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Generic, TypeVar

from kruntimes.common.http1.connection import Connection, Service
from kruntimes.common.http1.machine import Limits

IDLE_SECONDS = 180.0
"""Far above the 30 s after which Envoy closes an idle connection: it must be Envoy that closes, since a request that
meets a closing connection may not be repeated."""
MAX_CONNECTIONS = 4096
"""Several gateways, each with as many connections as its circuit breaker lets through."""
BACKLOG = 512
HANDSHAKE_SECONDS = 10.0
SWEEP_SECONDS = 1.0
"""Between two looks at the deadlines, all of which are longer."""
CANCEL_SECONDS = 5.0
"""What work gets for its clean-up once its caller was cut off."""

Caller = TypeVar("Caller")


class Server(Generic[Caller]):
    """Serves *service* on one address. draining: every answer is its connection's last."""

    def __init__(
        self,
        service: Service[Caller],
        *,
        limits: Limits,
        idle_seconds: float = IDLE_SECONDS,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.draining = False
        self.limits = limits
        self.idle_seconds = idle_seconds
        self._service = service
        self._max_connections = max_connections
        self._connections: set[Connection[Any]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._work: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listens on TCP; returns the port."""
        server = await asyncio.get_running_loop().create_server(
            self._made,
            host,
            port,
            ssl=tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
        )
        self._begin(server)
        return int(server.sockets[0].getsockname()[1])

    async def listen_unix(self, path: Path, *, umask: int) -> None:
        """Listens on a unix socket, which is made under *umask*."""
        before = os.umask(umask)
        try:
            server = await asyncio.get_running_loop().create_unix_server(self._made, str(path), backlog=BACKLOG)
        finally:
            os.umask(before)
        self._begin(server)

    async def close(self, seconds: float) -> None:
        """Stops listening, lets requests that are under way end for *seconds*, and closes every connection."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            if not connection.busy:
                connection.close()
        await self._until_empty(seconds)
        for connection in tuple(self._connections):
            connection.abort()
        await self._until_empty(CANCEL_SECONDS)
        if work := tuple(self._work):
            await asyncio.wait(work, timeout=CANCEL_SECONDS)
        if self._sweep is not None:
            self._sweep.cancel()

    # --- for connections

    def opened(self, connection: Connection[Any]) -> bool:
        """Takes the *connection* in, unless there are too many."""
        if len(self._connections) >= self._max_connections:
            return False
        self._connections.add(connection)
        self._empty.clear()
        return True

    def closed(self, connection: Connection[Any]) -> None:
        """Forgets the *connection*."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs *work*, which raises nothing but its cancellation."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    # --- inside

    def _made(self) -> Connection[Caller]:
        return Connection(self._service, self)

    async def _until_empty(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()

    def _begin(self, server: asyncio.Server) -> None:
        self._server = server
        self._look()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [known for known in self._connections if known.deadline <= now]:
            connection.expire()
        self._sweep = loop.call_later(SWEEP_SECONDS, self._look)
