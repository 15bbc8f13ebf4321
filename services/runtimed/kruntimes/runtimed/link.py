"""runtimed's one connection to the Runtime Server's functions socket (design §13, "call on the functions socket").

Shell: calls out, results in, each told to whoever sent the call. A call that was under way when the connection was lost
is `Lost`: whether it ran is not known here. Nothing is repeated, and nothing waits for a connection.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import cast

from kruntimes.functions.wire.encode import encode_cancel
from kruntimes.functions.wire.events import Progress, Result, Violation
from kruntimes.functions.wire.invocations import CALL_LIMITS
from kruntimes.functions.wire.results import ResultDecoder

log = logging.getLogger(__name__)

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.05, 1.0
"""Between two attempts to connect: the server is in the same Pod, and soon back. Meanwhile calls go over gRPC."""
WRITE_BUFFER_BYTES = 16 * 1024 * 1024
"""Calls that the server has not read; above it none is sent. Slots bound it too, by 1 MiB for each function."""


class Lost:
    """The connection ended before the result came."""


LOST = Lost()
OnResult = Callable[[Result | Progress | Lost], None]
"""Hears of one call: any progress, then once its end."""


class FunctionsLink:
    """The connection to *path*, once the server has offered it; kept by `run`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offered = asyncio.Event()
        self._wire: _Wire | None = None

    @property
    def usable(self) -> bool:
        """Whether a call may be sent at this moment."""
        return self._wire is not None and self._wire.usable

    def offer(self, path: str) -> bool:
        """The server says that it takes calls at *path*; False where that is no path that we were configured with."""
        if path != str(self._path):
            return False
        self._offered.set()
        return True

    def call(self, tx: str, frame: bytes, on_result: OnResult) -> None:
        """Sends the call *tx*, whose *frame* is encoded; *on_result* is called later, once with its result, unless it
        is forgotten before. Needs `usable`.
        """
        assert self._wire is not None, "a call without a connection"
        self._wire.call(tx, frame, on_result)

    def cancel(self, tx: str) -> None:
        """Asks for the end of *tx*; its result still comes. Where it is not under way, nothing happens."""
        if self._wire is not None:
            self._wire.cancel(tx)

    def forget(self, tx: str) -> None:
        """Nobody wants to hear of *tx* any more."""
        if self._wire is not None:
            self._wire.forget(tx)

    async def run(self) -> None:
        """Connects once the socket was offered, and again whenever the connection is lost; until cancelled."""
        await self._offered.wait()
        loop, wait = asyncio.get_running_loop(), FIRST_WAIT_SECONDS
        while True:
            wire = _Wire(loop.create_future())
            try:
                await loop.create_unix_connection(lambda wire=wire: wire, str(self._path))  # type: ignore[misc]
            except OSError as error:
                log.debug("functions socket not reached", extra={"error": error.strerror})
            else:
                self._wire = wire
                log.info("functions socket connected")
                try:
                    answered = await wire.closed
                finally:
                    self._wire = None
                    wire.close()
                log.warning("functions socket lost", extra={"answered": answered})
                if answered:
                    wait = FIRST_WAIT_SECONDS
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)


class _Wire(asyncio.Protocol):
    """One connection. closed: done with whether it has ever given a result."""

    def __init__(self, closed: asyncio.Future[bool]) -> None:
        self.closed = closed
        self._decoder = ResultDecoder(CALL_LIMITS)
        self._waiting: dict[str, OnResult] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._answered = False

    @property
    def usable(self) -> bool:
        return self._transport is not None and self._writable

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        waiting, self._waiting = self._waiting, {}
        for on_result in waiting.values():
            on_result(LOST)
        if not self.closed.done():
            self.closed.set_result(self._answered)

    def data_received(self, data: bytes) -> None:
        for event in self._decoder.feed(data):
            if isinstance(event, Result):
                self._answered = True
                if (on_result := self._waiting.pop(event.uid, None)) is not None:
                    on_result(event)
            elif isinstance(event, Progress):
                if (on_result := self._waiting.get(event.uid)) is not None:
                    on_result(event)
            elif isinstance(event, Violation):
                log.error("the Runtime Server broke the functions protocol", extra={"error": event.message})
                self.close()

    def call(self, tx: str, frame: bytes, on_result: OnResult) -> None:
        assert self._transport is not None, "a call on a closed connection"
        self._waiting[tx] = on_result
        self._transport.write(frame)

    def cancel(self, tx: str) -> None:
        if self._transport is not None and tx in self._waiting:
            self._transport.write(encode_cancel(tx))

    def forget(self, tx: str) -> None:
        self._waiting.pop(tx, None)

    def close(self) -> None:
        """Cuts the connection; whoever waits is told."""
        if self._transport is not None:
            self._transport.abort()
