"""Invocations over the functions protocol, for our own runtimed (design §13, "call on the functions socket").

Shell: frames in, results out. Who may run is decided by the manager, which gRPC's InvokeFunction shares. Nothing
waits here: an overlap is answered 429, and control input is read whatever runs.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

from kruntimes.common import clock
from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.encode import encode_result
from kruntimes.functions.wire.events import Call, CallEvent, Cancel, Mode, Quit, Rejected, Result, Violation
from kruntimes.functions.wire.fields import FieldError, number
from kruntimes.functions.wire.invocations import CALL_LIMITS, invocation_id_of, type_of
from kruntimes.runtime import replies, requests, sockets
from kruntimes.runtime.answers import Answer
from kruntimes.runtime.manager import DRAIN_SECONDS, Invocation, Limits, Manager
from kruntimes.runtime.registry import Code, Refused

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 8
"""One runtimed has one; a few more while it comes back after its end was not noticed yet."""
WRITE_BUFFER_BYTES = 4 * 1024 * 1024
"""Results that the other side has not taken; above it no further call is read from that connection."""
STOPPING = Refused(Code.FAILED_PRECONDITION, "Stopping", "the Runtime Server is stopping")


class Listener:
    """Every connection of the functions socket. door: says which may stay."""

    def __init__(self, manager: Manager, limits: Limits, door: sockets.Door) -> None:
        self.manager = manager
        self.limits = limits
        self.stopping = False
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

    async def drain(self, seconds: float) -> None:
        """Takes no more calls, lets those that run end for *seconds*, and closes every connection."""
        self.stopping = True
        if work := [call.work for connection in self._connections for call in connection.running]:
            await asyncio.wait(work, timeout=seconds)
        for connection in tuple(self._connections):
            connection.close()


class Connection(asyncio.Protocol):
    """One connection of runtimed's. When it closes, whatever it had in flight is cancelled."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._decoder = CallDecoder(Mode.LINK, CALL_LIMITS)
        self._calls: dict[str, Invocation] = {}
        self._transport: asyncio.Transport | None = None

    @property
    def running(self) -> list[Invocation]:
        """What it has in flight."""
        return list(self._calls.values())

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

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for these any more; their slots wait for their ends."""
        self._transport = None
        self._listener.gone(self)
        for invocation in self._calls.values():
            invocation.cancel()

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
        if self._transport is not None:
            for event in self._decoder.feed(data):
                self._event(event)

    def _event(self, event: CallEvent) -> None:
        match event:
            case Call():
                self._call(event)
            case Cancel(uid=tx):
                if (invocation := self._calls.get(tx)) is not None:
                    invocation.cancel()
            case Rejected(uid=str(tx)):
                self._write(replies.of_rejected(tx, event))
            case Violation(message):
                log.error("runtimed broke the functions protocol", extra={"error": message})
                self.close()
            case Quit():
                self.close()

    def _call(self, call: Call) -> None:
        tx = call.uid
        if tx in self._calls:
            log.warning("transaction repeated while it runs, ignored", extra={"transaction": tx})
            return
        taken = self._take(call)
        if isinstance(taken, Refused):
            self._write(replies.of_refusal(tx, taken))
            return
        self._calls[tx] = taken
        taken.work.add_done_callback(functools.partial(self._ended, tx, clock.monotonic()))

    def _take(self, call: Call) -> Invocation | Refused:
        if self._listener.stopping:
            return STOPPING
        payload, content_type, limits = call.payload or b"", type_of(call), self._listener.limits
        invocation_id = invocation_id_of(call)
        try:
            millis = number(call.option("timeout_ms") or "")
        except FieldError:
            return Refused(Code.INVALID_ARGUMENT, "InvalidInvocation", "timeout_ms is missing or not a whole number")
        seconds = requests.check_invocation(
            invocation_id=invocation_id, content_type=content_type, size=len(payload), timeout_millis=millis,
            default=limits.default, maximum=limits.maximum,
        )  # fmt: skip
        if isinstance(seconds, Refused):
            return seconds
        return self._listener.manager.invoke(
            call.function, invocation_id=invocation_id, payload=payload, content_type=content_type, seconds=seconds
        )

    def _ended(self, tx: str, began: float, work: asyncio.Task[Answer]) -> None:
        del self._calls[tx]
        if self._transport is not None and not work.cancelled() and work.exception() is None:
            self._write(replies.of_answer(tx, work.result(), seconds=clock.monotonic() - began))

    def _write(self, result: Result) -> None:
        if self._transport is not None:
            self._transport.write(encode_result(result, Mode.LINK))


@contextlib.asynccontextmanager
async def listening(
    path: Path | None, manager: Manager, *, limits: Limits, runtimed_pid: int, on_stranger: Callable[[], None]
) -> AsyncIterator[None]:
    """Listens on the unix socket *path* while the context lasts; without a path, nothing happens.

    runtimed_pid: the only process that is served, 0 for those of other containers. At the end, calls that run get
    DRAIN_SECONDS. Raises OSError where the path cannot be used.
    """
    if path is None:
        yield
        return
    door = sockets.Door("functions", runtimed_pid=runtimed_pid, most=MAX_CONNECTIONS, on_stranger=on_stranger)
    listener = Listener(manager, limits, door)
    with sockets.binding(path):
        server = await asyncio.get_running_loop().create_unix_server(lambda: Connection(listener), str(path))
    try:
        yield
    finally:
        server.close()
        sockets.remove(path)
        await listener.drain(DRAIN_SECONDS)
