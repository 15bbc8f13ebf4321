"""One connection of the hot listeners: the shell around `machine`, an asyncio Protocol.

A request is handed to its service in the call that brought its last byte; where the answer is known at once it is
written in that call, without a task, a future or a further round of the event loop. Requests that come while one is
answered wait in the buffer, unread ones in the socket.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar, cast

from kruntimes.common.http1.machine import Continue, Limits, Machine, Stage
from kruntimes.common.http1.messages import CONTINUE, Fault, Request, Response, Wrong, encode_response

log = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
"""For a request's line and headers, from their first byte: Envoy sends them in one piece."""
BODY_SECONDS = 30.0
"""For a body, from its head: Envoy has all of it before it sends any."""
WRITE_SECONDS = 30.0
"""For a caller to take an answer that fills the buffers between us."""
LINGER_SECONDS = 2.0
LINGER_BYTES = 16 * 1024 * 1024
"""What is still read, and dropped, after an answer that ends a connection early: a socket that is closed with unread
bytes in it takes the answer back from a caller that is still sending."""
FOREVER = float("inf")

Caller = TypeVar("Caller")


class Service(Protocol[Caller]):
    """What a listener serves. None of these may block; none may raise."""

    def identify(self, transport: asyncio.BaseTransport) -> Caller:
        """Who is at the other end; asked once for each connection."""

    def handle(self, exchange: "Exchange[Caller]") -> None:
        """Answers now, or later, or has `exchange.wait_for` do it."""

    def refuse(self, fault: Fault, caller: Caller) -> Response:
        """The answer to a request that is not served; the connection ends with it."""

    def lost(self, request: Request, caller: Caller) -> None:
        """The caller left before the request's body was whole."""


class Exchange(Generic[Caller]):
    """One request and its answer. on_gone: called once if the caller leaves before it is answered."""

    __slots__ = ("_connection", "_task", "caller", "on_gone", "request")

    def __init__(self, connection: "Connection[Caller]", request: Request, caller: Caller) -> None:
        self.request = request
        self.caller = caller
        self.on_gone: Callable[[], None] | None = None
        self._connection: Connection[Caller] | None = connection
        self._task: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        """Whether an answer is still wanted."""
        return self._connection is not None

    def answer(self, response: Response) -> None:
        """Sends the answer; without effect after another one, or once the caller has left."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection._answer(self.request, response)

    def wait_for(self, work: Coroutine[Any, Any, Response]) -> None:
        """Answers with what *work* gives; it is cancelled if the caller leaves. It must not raise anything else."""
        assert self._connection is not None, "work for an exchange that is over"
        self._task = self._connection._keeper.spawn(self._work(work))

    async def _work(self, work: Coroutine[Any, Any, Response]) -> None:
        try:
            response = await work
        except Exception:
            log.exception("a request's work failed")
            if (connection := self._connection) is not None:
                fault = Fault(Wrong.INTERNAL, "an internal error", self.request)
                self.answer(connection._service.refuse(fault, self.caller))
        else:
            self.answer(response)

    def _leave(self) -> None:
        """The caller has left."""
        self._connection = None
        if self._task is not None:
            self._task.cancel()
        if (on_gone := self.on_gone) is not None:
            self.on_gone = None
            on_gone()


class Keeper(Protocol):
    """What a connection needs of its server."""

    draining: bool
    limits: Limits
    idle_seconds: float

    def opened(self, connection: "Connection[Any]") -> bool:
        """Whether the connection may stay."""

    def closed(self, connection: "Connection[Any]") -> None:
        """The connection is gone."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs *work* until it ends or is cancelled; the server's end waits for it."""


class Connection(asyncio.Protocol, Generic[Caller]):
    """See the module. deadline: on the loop's clock, when what it waits for must have come; looked at by the server."""

    def __init__(self, service: Service[Caller], keeper: Keeper) -> None:
        self.deadline = FOREVER
        self._service = service
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._machine = Machine(keeper.limits)
        self._transport: asyncio.Transport | None = None
        self._caller: Caller
        self._current: Exchange[Caller] | None = None
        self._stage = Stage.IDLE
        self._turning = False
        self._writable = True
        self._paused = False
        self._ended = False
        self._dropped = 0

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, or read."""
        return self._current is not None or self._stage in (Stage.HEAD, Stage.BODY)

    # --- told by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The caller may send."""
        transport = cast(asyncio.Transport, transport)  # uvloop's transports are not of the class
        if not self._keeper.opened(self):
            transport.abort()
            return
        self._transport = transport
        self._caller = self._service.identify(transport)
        # Not the head's: a pool may keep a connection that it has not used yet, and must never find it closed.
        self.deadline = self._loop.time() + self._keeper.idle_seconds

    def data_received(self, data: bytes) -> None:
        """Hands on what *data* completes."""
        if self._ended:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.abort()
            return
        self._machine.feed(data)
        if self._current is None and self._writable:
            self._turn()
        else:
            self._pause()

    def eof_received(self) -> None:
        """The caller sends no more. It is gone then, since Envoy never closes one half alone."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever was under way for the caller is told."""
        self._transport = None
        self.deadline = FOREVER
        self._keeper.closed(self)
        if (current := self._current) is not None:
            self._current = None
            current._leave()
        elif not self._ended and (begun := self._machine.begun) is not None:
            self._service.lost(begun, self._caller)

    def pause_writing(self) -> None:
        """The caller does not take its answers: no further request of it is looked at."""
        self._writable = False
        self.deadline = self._loop.time() + WRITE_SECONDS

    def resume_writing(self) -> None:
        """It did take them."""
        self._writable = True
        if self._ended:
            self.deadline = self._loop.time() + LINGER_SECONDS
        elif self._current is None:
            self._turn()
        else:
            self.deadline = FOREVER

    # --- told by the server

    def expire(self) -> None:
        """The deadline has passed."""
        if self._ended or not self._writable:
            self.abort()
        elif self._machine.stage in (Stage.HEAD, Stage.BODY):
            self._refuse(Fault(Wrong.TIMED_OUT, "the request did not come in time", self._machine.begun))
        else:
            self.close()

    def close(self) -> None:
        """Closes the connection once what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Cuts the connection."""
        if self._transport is not None:
            self._transport.abort()

    # --- inside

    def _turn(self) -> None:
        """Takes requests from the buffer until one waits for its answer, or nothing is whole."""
        self._turning = True
        try:
            while self._transport is not None and self._writable and not self._ended:
                event = self._machine.next()
                if event is None:
                    self._await_more()
                    return
                if isinstance(event, Request):
                    self._begin(event)
                    if self._current is not None:
                        return
                elif isinstance(event, Continue):
                    self._transport.write(CONTINUE)
                else:
                    self._refuse(event)
        finally:
            self._turning = False

    def _begin(self, request: Request) -> None:
        assert self._transport is not None, "a request without a connection"
        self.deadline = FOREVER
        self._stage = Stage.IDLE
        exchange = self._current = Exchange(self, request, self._caller)
        try:
            self._service.handle(exchange)
        except Exception:
            log.exception("a request's handler failed")
            exchange.answer(self._service.refuse(Fault(Wrong.INTERNAL, "an internal error", request), self._caller))
        if self._current is not None and self._machine.buffered:
            self._pause()

    def _await_more(self) -> None:
        """Sets the deadline of what comes next."""
        self._resume()
        stage = self._machine.stage
        if stage is Stage.IDLE:
            self.deadline = self._loop.time() + self._keeper.idle_seconds
        elif stage is not self._stage:
            self.deadline = self._loop.time() + (HEAD_SECONDS if stage is Stage.HEAD else BODY_SECONDS)
        self._stage = stage

    def _answer(self, request: Request, response: Response) -> None:
        """Sends the answer to the current request, and goes on with the next."""
        self._current = None
        self._send(request, response)
        if not self._turning and self._writable and not self._ended:
            self._turn()

    def _refuse(self, fault: Fault) -> None:
        self._send(fault.request, self._service.refuse(fault, self._caller), last=True)

    def _send(self, request: Request | None, response: Response, *, last: bool = False) -> None:
        if self._transport is None:
            return
        wants_more = request is not None and request.keep_alive
        last = last or response.close or self._keeper.draining or not wants_more
        try:
            data = encode_response(
                response, head_only=request is not None and request.method == "HEAD", close=last,
                old=request is not None and request.old,
            )  # fmt: skip
        except ValueError:
            log.exception("an answer cannot be sent")
            last, data = True, self._broken(request)
        self._transport.write(data)
        if last:
            self._end(all_read=request is not None and request.body is not None)

    def _broken(self, request: Request | None) -> bytes:
        fault = Fault(Wrong.INTERNAL, "the answer cannot be sent", request)
        return encode_response(self._service.refuse(fault, self._caller), head_only=False, close=True)

    def _end(self, *, all_read: bool) -> None:
        """The last answer is on its way: what else comes is not looked at."""
        self._ended = True
        if all_read:
            self.close()
            return
        self.deadline = self._loop.time() + LINGER_SECONDS
        self._resume()

    def _pause(self) -> None:
        """One request at a time: what comes meanwhile stays in the socket."""
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
