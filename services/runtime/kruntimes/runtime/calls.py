"""Invocations over the functions protocol, for our own runtimed (design §13, "call on the functions socket").

Shell: bytes in, frames out. Who may run is decided by the functions manager, which gRPC's InvokeFunction shares.
Nothing waits here: an overlap is answered 429, and control input is read whatever runs. What is written while one
read is acted upon goes out together.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

from kruntimes.functions.ingress import Ingress
from kruntimes.functions.wire.events import Mode
from kruntimes.functions.wire.invocations import CALL_LIMITS
from kruntimes.runtime import sockets
from kruntimes.runtime.manager import DRAIN_SECONDS, Manager

MAX_CONNECTIONS = 8
"""One runtimed has one; a few more while it comes back after its end was not noticed yet."""
WRITE_BUFFER_BYTES = 4 * 1024 * 1024
"""Results that the other side has not taken; above it no further call is read from that connection."""


class Listener:
    """Every connection of the functions socket. door: says which may stay."""

    def __init__(self, manager: Manager, door: sockets.Door) -> None:
        self.calls = manager.calls
        self._door = door
        self._connections: set[Connection] = set()

    def admit(self, connection: "Connection", peer: sockets.HasOptions) -> bool:
        """Whether the *connection* may stay."""
        admitted = self._door.admit(connection, peer)
        if admitted:
            self._connections.add(connection)
        return admitted

    def gone(self, connection: "Connection") -> None:
        """The *connection* is closed."""
        self._door.gone(connection)
        self._connections.discard(connection)

    def close(self) -> None:
        """Closes every connection."""
        for connection in tuple(self._connections):
            connection.close()


class Connection(asyncio.Protocol):
    """One connection of runtimed's. When it closes, whatever it had in flight is cancelled."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._ingress: Ingress | None = None

    def close(self) -> None:
        """Closes the connection once what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Only runtimed is served."""
        # uvloop's transports are not subclasses of asyncio's.
        transport = cast(asyncio.Transport, transport)
        if not self._listener.admit(self, transport.get_extra_info("socket")):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport = transport
        self._ingress = Ingress(
            self._listener.calls, Mode.LINK, transport.write, on_end=transport.close, limits=CALL_LIMITS
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for these any more; their slots wait for their ends."""
        self._transport = None
        self._listener.gone(self)
        if self._ingress is not None:
            self._ingress.abandon()

    def pause_writing(self) -> None:
        """Results pile up: no new work for whoever does not take them."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """They were taken."""
        if self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Acts on every event that *data* completes."""
        if self._ingress is not None:
            self._ingress.feed(data)


@contextlib.asynccontextmanager
async def listening(
    path: Path | None, manager: Manager, *, runtimed_pid: int, on_stranger: Callable[[], None]
) -> AsyncIterator[None]:
    """Listens on the unix socket *path* while the context lasts; without a path, nothing happens.

    runtimed_pid: the only process that is served, 0 for those of other containers. At the end, calls that run get
    DRAIN_SECONDS. Raises OSError where the path cannot be used.
    """
    if path is None:
        yield
        return
    door = sockets.Door("functions", runtimed_pid=runtimed_pid, most=MAX_CONNECTIONS, on_stranger=on_stranger)
    listener = Listener(manager, door)
    with sockets.binding(path):
        server = await asyncio.get_running_loop().create_unix_server(lambda: Connection(listener), str(path))
    try:
        yield
    finally:
        server.close()
        sockets.remove(path)
        await manager.drain(DRAIN_SECONDS)
        listener.close()
