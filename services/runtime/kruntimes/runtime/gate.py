"""The gate before gRPC: who connects to the executor socket is looked at first, and only runtimed is let through.

gRPC does not tell a server which process has connected, and user code may reach the socket, since it shares our user
and folder. So the public socket is ours; gRPC listens on one that has no name any more, and which can be reached
only through a descriptor of this process. What an admitted connection says is passed on unread.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import cast

from kruntimes.runtime import sockets

MAX_CONNECTIONS = 32
"""A gRPC client has one; more only while ended ones are not noticed yet."""
BUFFER_BYTES = 1024 * 1024
"""What waits for a side that does not read; above it the other side is not read either."""


@contextlib.contextmanager
def unnamed(path: Path, bind: Callable[[str], object]) -> Iterator[str]:
    """Has *bind* listen on a socket beside *path* whose name is taken away; gives the path by which we reach it.

    *bind* is given gRPC's name of the address. The given path works in this process, while the context lasts.
    Raises OSError.
    """
    hidden = path.with_name(f".{secrets.token_hex(4)}")
    with sockets.binding(hidden):
        bind(f"unix:{hidden}")
    descriptor = os.open(hidden, os.O_PATH | os.O_CLOEXEC)
    sockets.remove(hidden)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextlib.asynccontextmanager
async def guarding(path: Path, door: sockets.Door, behind: str) -> AsyncIterator[Callable[[], None]]:
    """Listens on the unix socket *path* and passes admitted connections on to the one at *behind*.

    Gives what stops taking new connections; at the end of the context those that are left are closed. Raises OSError
    where the path cannot be used.
    """
    outer: set[_Outer] = set()
    async with asyncio.TaskGroup() as tasks:
        with sockets.binding(path):
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: _Outer(door, outer, tasks, behind), str(path)
            )

        def close() -> None:
            server.close()
            sockets.remove(path)

        try:
            yield close
        finally:
            close()
            for connection in tuple(outer):
                connection.close()


class _Side(asyncio.Protocol):
    """One side of a connection; what it hears goes to *other*, at the pace at which that is read."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.other is not None:
            self.other.close()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def close(self) -> None:
        """Closes this side once what was written is sent."""
        if self.transport is not None:
            self.transport.close()


class _Outer(_Side):
    def __init__(self, door: sockets.Door, all_: set["_Outer"], tasks: asyncio.TaskGroup, behind: str) -> None:
        super().__init__()
        self._door = door
        self._all = all_
        self._tasks = tasks
        self._behind = behind
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._door.admit(self, transport.get_extra_info("socket")):
            transport.abort()  # type: ignore[attr-defined]
            return
        self._all.add(self)
        self._tasks.create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            # Nothing is passed on yet. Reading can be paused only now: uvloop begins it after `connection_made`.
            self._early += data
            if self.transport is not None:
                self.transport.pause_reading()
            return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._door.gone(self)
        self._all.discard(self)

    async def _connect(self) -> None:
        inner = _Side()
        self.other, inner.other = inner, self  # before it speaks: gRPC's side begins unasked
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: inner, self._behind)
        except OSError:
            self.close()
            return
        if self.transport is None:
            inner.close()
            return
        if self._early and inner.transport is not None:
            inner.transport.write(self._early)
            self._early = b""
            self.transport.resume_reading()
