"""The server's side of one host process: its link, its log, its warden (shell; no rules).

A HostProcess lives once: it is started empty, initialised by its first call, and when it has ended another one
takes its place.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, cast

from kruntimes.functions.wire.encode import encode_cancel, encode_quit
from kruntimes.functions.wire.events import Progress, Result, Violation
from kruntimes.functions.wire.results import ResultDecoder
from kruntimes.runtime import orders
from kruntimes.runtime.host.protocol import HOST_LIMITS
from kruntimes.runtime.host.serve import ASK_SIGNAL
from kruntimes.runtime.ladder import Action
from kruntimes.runtime.proc import nursery
from kruntimes.runtime.proc.limits import HostLimits

LOG_READ_BYTES = 64 * 1024
"""Also what a pipe holds, so one read at the end of a call takes all that the call printed."""
LINK_CLOSE_SECONDS = 1.0
"""After a host's end its link closes at once, unless a process that would not die still holds it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a host ended, with everything below it.

    status: as waitpid gives it, None where its warden was killed too. left: processes that would not end.
    violation: what it said against the protocol, passed: which limit it passed, for which it was killed.
    """

    status: int | None
    left: int = 0
    violation: str = ""
    passed: str = ""

    def __str__(self) -> str:
        if self.passed:
            return f"was killed (it {self.passed})"
        if self.violation:
            return f"was killed because it wrote into the host's own link ({self.violation})"
        if self.status is None:
            return "was killed together with its warden"
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            with contextlib.suppress(ValueError):
                return f"was killed by signal {number} ({signal.Signals(number).name})"
            return f"was killed by signal {number}"
        return f"exited with status {os.WEXITSTATUS(self.status)}"


Told = Callable[[Result | Progress | Ended], None]
"""Hears of one call: its progress, then its result, or how the host ended instead of giving one."""


class Nursery:
    """Starts hosts of one kind, and programs.

    limits: for each of them. on_end: called once if the nursery itself ends, after which nothing can be started.
    """

    def __init__(
        self, control: socket.socket, kind: str, on_end: Callable[[], None], limits: HostLimits | None = None
    ) -> None:
        self._limits = (limits or HostLimits()).encode()
        self._control = control
        self._kind = kind
        self._on_end = on_end
        control.setblocking(False)
        asyncio.get_running_loop().add_reader(control, self._ended)

    async def start(self, on_log: Callable[[bytes], None]) -> "HostProcess":
        """Starts an empty host whose output goes to *on_log*. Raises OSError."""
        loop = asyncio.get_running_loop()
        control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link, their_link = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        log_read, log_write = os.pipe2(os.O_CLOEXEC)
        try:
            self.order({"host": self._kind}, [their_control.fileno(), their_link.fileno(), log_write])
        except OSError:
            for end in (control, link):
                end.close()
            os.close(log_read)
            raise
        finally:
            their_control.close()
            their_link.close()
            os.close(log_write)
        host = HostProcess(loop, control, log_read, on_log)
        link.setblocking(False)
        await loop.create_unix_connection(lambda: _Link(host), sock=link)
        return host

    def order(self, order: dict[str, object], descriptors: list[int]) -> None:
        """Has the nursery start what *order* names, with *descriptors*. Raises OSError."""
        nursery.wake()
        socket.send_fds(self._control, [json.dumps({**order, "limits": self._limits}).encode()], descriptors)

    def close(self) -> None:
        """Lets the nursery end."""
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()

    def _ended(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._control.recv(1)
            asyncio.get_running_loop().remove_reader(self._control)
            self._on_end()


class _Link(asyncio.Protocol):
    def __init__(self, host: "HostProcess") -> None:
        self._host = host
        self._decoder = ResultDecoder(HOST_LIMITS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._host._linked(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        for event in self._decoder.feed(data):
            if isinstance(event, Violation):
                self._host._violated(event.message)
            else:
                self._host._heard(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._host._unlinked()


class HostProcess:
    """One running host. `ended` is done once the host and every descendant are dead, or will not die."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, control: socket.socket, log_read: int, on_log: Callable[[bytes], None]
    ) -> None:
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self._loop = loop
        self._control = control
        self._log_read = log_read
        self._on_log = on_log
        self._transport: asyncio.Transport | None = None
        self._uid = ""
        self._told_of: Told | None = None
        self._end: Ended | None = None
        self._violation = ""
        control.setblocking(False)
        os.set_blocking(log_read, False)
        self._printed = select.poll()
        self._printed.register(log_read, select.POLLIN)
        loop.add_reader(control, self._warned)
        loop.add_reader(log_read, self._read_log)

    @property
    def alive(self) -> bool:
        """Whether calls may be sent: neither the host's end nor its link's was noticed."""
        return self._end is None and self._transport is not None

    def call(self, uid: str, frame: bytes, told: Told) -> None:
        """Sends the call *uid*, whose *frame* is encoded; one at a time. *told* hears of it, never before this returns.

        Where the link is gone already, it hears of the host's end.
        """
        assert self._told_of is None, "a host takes one call at a time"
        self._uid, self._told_of = uid, told
        if self._transport is not None:
            self._transport.write(frame)

    def act(self, action: Action, uid: str) -> None:
        """Takes one step of the ladder against the call *uid*."""
        match action:
            case Action.ASK:
                if self._transport is not None:
                    self._transport.write(encode_cancel(uid))
                self._order({"signal": int(ASK_SIGNAL)})
            case Action.TERM:
                self._order({"term": True})
            case Action.KILL:
                self.kill()

    def quit(self) -> None:
        """Asks for an orderly end."""
        if self._transport is not None:
            self._transport.write(encode_quit())

    def kill(self) -> None:
        """Kills the host and everything below it; `ended` tells when that is done."""
        self._order({"kill": True})

    def drain_log(self) -> None:
        """Reads what the host printed so far."""
        if self._log_read >= 0 and self._printed.poll(0):  # most print nothing, and a read would raise to say so
            self._read_log()

    def _order(self, order: dict[str, object]) -> None:
        if self._end is None:
            orders.send(self._control, order)

    def _warned(self) -> None:
        document = orders.last_word(self._control)
        if document is None:
            return
        self._loop.remove_reader(self._control)
        self._control.close()
        self._end = Ended(document.get("exit"), document.get("left", 0), self._violation, document.get("passed", ""))
        if self._transport is None:
            self._finish()
        else:
            # The last answer may still lie in the link; its end comes after it.
            self._loop.call_later(LINK_CLOSE_SECONDS, self._finish)

    def _linked(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def _unlinked(self) -> None:
        self._transport = None
        if self._end is not None:
            self._finish()
        else:
            self.kill()  # the host closed its link, or is ending: nothing can be learned from it any more

    def _heard(self, event: Result | Progress) -> None:
        told = self._told_of
        if told is None or event.uid != self._uid:
            self._violated("an answer to a call that is not running")
            return
        if isinstance(event, Result):
            self._told_of = None
        told(event)

    def _violated(self, message: str) -> None:
        self._violation = message
        self.kill()

    def _finish(self) -> None:
        if self.ended.done() or self._end is None:
            return
        self.drain_log()
        if self._log_read >= 0:
            self._loop.remove_reader(self._log_read)
            os.close(self._log_read)
            self._log_read = -1
        if self._transport is not None:
            self._transport.abort()
        self.ended.set_result(self._end)
        told, self._told_of = self._told_of, None
        if told is not None:
            told(self._end)

    def _read_log(self) -> None:
        try:
            data = os.read(self._log_read, LOG_READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._on_log(data)
        else:
            self._loop.remove_reader(self._log_read)
            os.close(self._log_read)
            self._log_read = -1


def start_nursery() -> socket.socket:
    """Forks the nursery; see `kruntimes.runtime.proc.nursery.start` for when this may be called."""
    from kruntimes.runtime.host import main, task

    def host_main(kind: str, link: socket.socket) -> NoReturn:
        main.run(kind, link)

    return nursery.start(host_main, task.become)
