"""The loop of a host: one call after another from the link, on the main thread, and one answer for each.

Runs where user code runs, so it expects everything: a fork that comes back twice, closed descriptors, signals.
The link is a private socket; a forked Python child closes it, an executed program never sees it.
"""

import atexit
import functools
import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, Protocol

from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.encode import encode_progress, encode_result
from kruntimes.functions.wire.events import Call, CallEvent, Cancel, Mode, Quit, Result
from kruntimes.runtime.host import forks
from kruntimes.runtime.host.forked import ForkLoop
from kruntimes.runtime.host.protocol import ERROR_TYPE, HOST_LIMITS, INITIALISE, NOTHING, Config, ErrorDocument, Meta

ASK_SIGNAL = signal.SIGURG
"""Says that the link holds a cancellation. Ignored by default, so it harms no program that lost our handler."""
READ_BYTES = 256 * 1024
LINK_DESCRIPTOR = 200
"""Where the link lives: beyond what programs that close "all" low descriptors, or guess one, will hit."""
EX_PROTOCOL = 76
"""sysexits.h: the other side broke the protocol."""


NOT_STARTED = ErrorDocument(reason="Cancelled", message="the invocation was cancelled before it started")


class Stopped(BaseException):
    """SIGTERM came while the handler ran: it should end now. Raised in it, so that its `finally` blocks run."""


class Answer:
    """What a host says to one call."""

    __slots__ = ("body", "code", "content_type", "meta")

    def __init__(self, code: int, body: bytes, content_type: str, meta: Meta = NOTHING) -> None:
        self.code = code
        self.body = body
        self.content_type = content_type
        self.meta = meta

    @classmethod
    def error(cls, code: int, document: ErrorDocument, recycle: str = "") -> "Answer":
        """An answer that is not 200."""
        return cls(code, document.encode(), ERROR_TYPE, Meta(recycle=recycle))


class Host(Protocol):
    """A kind of host: Python, Bash."""

    def initialise(self, config: Config) -> Answer:
        """Prepares the function; 200, or 500 with the reason. Called once, first."""

    def begin(self, call: Call, report: Callable[[int, int], None]) -> None:
        """An invocation is about to run: from now on `ask` means this one. report: takes its progress."""

    def invoke(self, call: Call) -> Answer:
        """Runs the call that was begun to its end. May be interrupted by `ask` and by Stopped."""

    def ask(self) -> None:
        """Asks the call to give way, also before it has started. Called from a signal handler."""

    def tidy(self) -> None:
        """After the answer was sent: ends what the call left behind."""

    def tidy_disk(self) -> None:
        """The part of it that concerns files."""


def serve(link: socket.socket, host: Host) -> NoReturn:
    """Serves *host* on *link* until the other side asks for the end or closes; never returns."""
    _Loop(link, host).run()


class _Loop:
    def __init__(self, link: socket.socket, host: Host) -> None:
        self._pid = os.getpid()
        self._host = host
        self._decoder = CallDecoder(Mode.LINK, HOST_LIMITS)
        self._events: deque[CallEvent] = deque()
        self._current: str | None = None
        self._asked = self._forked = False
        self._sending = threading.Lock()  # a handler's threads may report progress
        self._link = socket.socket(fileno=_move(link.detach()))
        self._arrival = select.poll()
        self._arrival.register(self._link, select.POLLIN)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(ASK_SIGNAL, self._on_ask)
        forks.make_children_ordinary({signal.SIGTERM: self._on_term, ASK_SIGNAL: self._on_ask}, self._link)

    def run(self) -> NoReturn:
        while True:
            if self._forked:
                self._fork_from_now_on()
            match self._next():
                case Call() as call:
                    self._serve(call)
                case Quit():
                    self._leave()
                case Cancel():
                    pass  # of a call that has ended meanwhile
                case _:
                    os._exit(EX_PROTOCOL)

    def _fork_from_now_on(self) -> NoReturn:
        ForkLoop(
            self._link, self._decoder, self._events, run_child=lambda link: serve(link, self._host),
            tidy=self._host.tidy_disk, leave=self._leave, ask=ASK_SIGNAL,
        ).run()  # fmt: skip

    def _next(self) -> CallEvent:
        while not self._events:
            # A process that waits in recv is also woken when the other side takes our last answer, for nothing; one
            # that polls is woken by what arrives alone. With many hosts that is half of their turns on a processor.
            self._arrival.poll()
            data = self._link.recv(READ_BYTES)
            if not data:
                self._leave()
            self._events.extend(self._decoder.feed(data))
        return self._events.popleft()

    def _serve(self, call: Call) -> None:
        self._current, self._asked = call.uid, False
        try:
            if call.function == INITIALISE:
                config = Config.decode(call.payload or b"")
                answer = self._host.initialise(config)
                self._forked = config.forked and answer.code == 200
            else:
                self._host.begin(call, functools.partial(self._report, call.uid))
                self._read_on()  # a cancellation may have come together with the call
                answer = self._host.invoke(call)
        except Stopped as stopped:
            answer = Answer.error(
                499, ErrorDocument(reason="Stopped", message="the handler was stopped", type=type(stopped).__name__)
            )
        with self._sending:
            self._current = None
        if os.getpid() != self._pid:
            os._exit(0)  # a fork made by the handler came back through it; only the original answers
        if self._asked:
            self._host.tidy()  # whoever stopped the call relies on everything being over with the answer
        _flush()
        meta = answer.meta.encode()
        self._link.sendall(
            encode_result(
                Result(uid=call.uid, code=answer.code, content_type=answer.content_type, body=answer.body, meta=meta),
                Mode.LINK,
            )
        )
        if not self._asked:
            self._host.tidy()  # what was left behind must not delay the answer

    def _report(self, uid: str, done: int, total: int) -> None:
        """Sends progress of the running call; nothing may come after its answer, nor from a fork."""
        with self._sending:
            if self._current == uid and os.getpid() == self._pid:
                self._link.sendall(encode_progress(uid, done=done, total=total))

    def _read_on(self) -> None:
        """Takes what has arrived since, without waiting, and obeys a cancellation of the running call."""
        try:
            while data := self._link.recv(READ_BYTES, socket.MSG_DONTWAIT):
                self._events.extend(self._decoder.feed(data))
        except BlockingIOError:
            pass
        if any(isinstance(event, Cancel) and event.uid == self._current for event in self._events):
            self._asked = True
            self._host.ask()

    def _on_ask(self, number: int, frame: FrameType | None) -> None:
        if self._current is not None:
            self._read_on()

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        if self._current is None:
            self._leave()
        raise Stopped

    def _leave(self) -> NoReturn:
        """The orderly end: what the module registered for it runs; threads are not waited for."""
        try:
            atexit._run_exitfuncs()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        _flush()
        os._exit(0)


def _move(descriptor: int) -> int:
    os.dup2(descriptor, LINK_DESCRIPTOR, inheritable=False)
    os.close(descriptor)
    return LINK_DESCRIPTOR


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: S112 - a handler may have closed or replaced it; its answer does not depend on it
            continue
