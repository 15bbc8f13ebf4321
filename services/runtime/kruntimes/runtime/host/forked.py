"""Isolation `Fork`: the module is imported once, here, and each call runs in a fresh fork of this process.

This process has one thread, runs no handler, and only hands calls on. The next child is made before it is needed:
after an answer, or beside a call that takes longer. So a call pays for a fork only if it follows at once.

    link     to the Runtime Server, as in `serve`; closed in the children
    child    one socket pair to each child, on which it serves as an ordinary host, once
"""

import gc
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.encode import encode_call, encode_cancel, encode_progress, encode_result
from kruntimes.functions.wire.events import Call, CallEvent, Cancel, Mode, Progress, Quit, Result, Violation
from kruntimes.functions.wire.results import ResultDecoder
from kruntimes.runtime.host.ends import how_it_ended
from kruntimes.runtime.host.protocol import ERROR_TYPE, HOST_LIMITS, ErrorDocument, Meta
from kruntimes.runtime.proc import prctl, tree

READ_BYTES = 256 * 1024
SPARE_AFTER_MILLIS = 20
"""A call that has not answered by then has the next child made beside it; a shorter one would wait for that fork."""
EX_PROTOCOL = 76
"""sysexits.h: the other side broke the protocol."""


@dataclass(slots=True)
class _Child:
    pid: int
    link: socket.socket
    decoder: ResultDecoder = field(default_factory=lambda: ResultDecoder(HOST_LIMITS))

    def gone(self) -> bool:
        """Whether it has ended, without reaping it."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class ForkLoop:
    """The loop of the parent. decoder, events: of *link*, with what was read so far.

    run_child: serves as a host on the given socket. tidy: cleans what a call left on disk. leave: the orderly end.
    ask: the signal by which a child is told to look at its socket.
    """

    def __init__(
        self,
        link: socket.socket,
        decoder: CallDecoder,
        events: deque[CallEvent],
        *,
        run_child: Callable[[socket.socket], NoReturn],
        tidy: Callable[[], None],
        leave: Callable[[], NoReturn],
        ask: signal.Signals,
    ) -> None:
        self._link = link
        self._decoder = decoder
        self._events = events
        self._run_child = run_child
        self._tidy = tidy
        self._leave = leave
        self._ask = ask
        self._keep = frozenset(tree.children(os.getpid()))
        self._current: _Child | None = None
        self._spare: _Child | None = None
        self._asked = False

    def run(self) -> NoReturn:
        """Serves until the other side asks for the end or closes."""
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(self._ask, lambda number, frame: None)
        gc.collect()
        gc.freeze()
        while True:
            if self._spare is None:
                self._spare = self._fork()
            match self._next():
                case Call() as call:
                    self._serve(call)
                case Quit():
                    self._leave()
                case Cancel():
                    pass  # of a call that has ended meanwhile
                case _:
                    os._exit(EX_PROTOCOL)

    def _next(self) -> CallEvent:
        while not self._events:
            self._read()
        return self._events.popleft()

    def _read(self) -> None:
        data = self._link.recv(READ_BYTES)
        if not data:
            self._leave()
        self._events.extend(self._decoder.feed(data))

    def _serve(self, call: Call) -> None:
        child = self._current = self._take()
        self._asked = False
        result = self._run(call, child)
        self._current = None
        if self._asked:
            self._end(child)  # whoever stopped the call relies on everything being over with the answer
        self._link.sendall(encode_result(result, Mode.LINK))
        if not self._asked:
            self._end(child)

    def _run(self, call: Call, child: _Child) -> Result:
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        poll.register(child.link, select.POLLIN)
        try:
            child.link.sendall(encode_call(call, Mode.LINK))
        except OSError:
            return self._without_answer(call, child)
        while True:
            ready = dict(poll.poll(None if self._spare is not None else SPARE_AFTER_MILLIS))
            if not ready and self._spare is None:
                self._spare = self._fork()
            if self._link.fileno() in ready:
                self._read()
                self._pass_cancellation(call, child)
            if child.link.fileno() in ready and (result := self._heard(call, child)) is not None:
                return result

    def _heard(self, call: Call, child: _Child) -> Result | None:
        try:
            data = child.link.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            return self._without_answer(call, child)
        for event in child.decoder.feed(data):
            if isinstance(event, Violation) or event.uid != call.uid:
                return _failed(call, "was ended because it wrote into the host's own link", cancelled=False)
            if isinstance(event, Progress):
                self._link.sendall(encode_progress(event.uid, done=event.done, total=event.total))
            else:
                return _of_child(event)
        return None

    def _pass_cancellation(self, call: Call, child: _Child) -> None:
        if any(isinstance(event, Cancel) and event.uid == call.uid for event in self._events):
            self._asked = True
            self._events = deque(event for event in self._events if not isinstance(event, Cancel))
            try:
                child.link.sendall(encode_cancel(call.uid))
                os.kill(child.pid, self._ask)
            except OSError:
                return  # it has ended; its socket tells

    def _without_answer(self, call: Call, child: _Child) -> Result:
        os.kill(child.pid, signal.SIGKILL)  # it may only have closed its socket
        _, status = os.waitpid(child.pid, 0)
        child.pid = 0
        return _failed(call, how_it_ended(os.waitstatus_to_exitcode(status)), cancelled=self._asked)

    def _take(self) -> _Child:
        child, self._spare = self._spare, None
        if child is not None and not child.gone():
            return child
        if child is not None:
            self._end(child)
        return self._fork()

    def _end(self, child: _Child) -> None:
        """Ends *child*, what it started, and what it left on disk."""
        child.link.close()
        if child.pid:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
        keep = self._keep | ({self._spare.pid} if self._spare is not None else set())
        if set(tree.children(os.getpid())) - keep:
            tree.end_below(os.getpid(), lambda: _reap(keep), keep=keep)
        self._tidy()

    def _fork(self) -> _Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pid = os.fork()
        if pid == 0:
            os.setsid()  # a signal to its own group must not reach this process
            ours.close()
            for other in (self._current, self._spare):
                if other is not None:
                    other.link.close()
            prctl.set_name("kr-python-fork")
            self._run_child(theirs)
        theirs.close()
        return _Child(pid, ours)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        if self._current is None:
            self._leave()


def _of_child(result: Result) -> Result:
    """Its answer; that the child should be replaced goes without saying."""
    try:
        meta = Meta.decode(result.meta)
    except (ValueError, RecursionError):
        return result  # the Runtime Server says what is wrong with it
    return Result(
        uid=result.uid, code=result.code, content_type=result.content_type, body=result.body,
        meta=Meta(outputs=meta.outputs).encode(),
    )  # fmt: skip


def _failed(call: Call, how: str, *, cancelled: bool) -> Result:
    document = ErrorDocument(
        reason="FunctionError", message=f"the function's process {how} before it answered", type="ProcessEnded"
    )
    return Result(
        uid=call.uid, code=499 if cancelled else 500, content_type=ERROR_TYPE, body=document.encode(), meta=b""
    )


def _reap(keep: frozenset[int]) -> None:
    for pid in set(tree.children(os.getpid())) - keep:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
