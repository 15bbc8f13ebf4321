"""The server's side of one task's process: its output, its warden (shell; no rules)."""

import asyncio
import os
import socket
from collections.abc import Callable

from kruntimes.runtime import orders
from kruntimes.runtime.host.task import Program
from kruntimes.runtime.hosts import LOG_READ_BYTES, Ended, Nursery
from kruntimes.runtime.ladder import Action

READS_AT_END = 64
"""What a pipe may hold at the end, in reads: its size can be raised to 1 MiB without privileges, to no more."""


class ProgramProcess:
    """One running program. `ended` is done once it and every descendant are dead, or will not die.

    on_stdout, on_stderr: are given what it prints, the last of it before `ended` is done.
    """

    def __init__(
        self, control: socket.socket, streams: dict[int, Callable[[bytes], None]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self._loop = loop
        self._control = control
        self._streams = streams
        control.setblocking(False)
        loop.add_reader(control, self._told)
        for descriptor in streams:
            os.set_blocking(descriptor, False)
            loop.add_reader(descriptor, self._read, descriptor)

    def act(self, action: Action) -> None:
        """Takes one step of the ladder; a program cannot be asked, so that is SIGTERM too."""
        if not self.ended.done():
            orders.send(self._control, {"kill": True} if action is Action.KILL else {"term": True})

    def _told(self) -> None:
        document = orders.last_word(self._control)
        if document is None:
            return
        self._loop.remove_reader(self._control)
        self._control.close()
        for descriptor in tuple(self._streams):
            for _ in range(READS_AT_END):
                if not self._read(descriptor):
                    break
            self._close(descriptor)
        self.ended.set_result(Ended(document.get("exit"), document.get("left", 0), passed=document.get("passed", "")))

    def _read(self, descriptor: int) -> bool:
        """Takes what lies in the pipe; False where that is nothing."""
        if (take := self._streams.get(descriptor)) is None:
            return False
        try:
            data = os.read(descriptor, LOG_READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            take(data)
        else:
            self._close(descriptor)
        return bool(data)

    def _close(self, descriptor: int) -> None:
        if self._streams.pop(descriptor, None) is not None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)


def start(
    nursery_: Nursery, program: Program, *, on_stdout: Callable[[bytes], None], on_stderr: Callable[[bytes], None]
) -> ProgramProcess:
    """Starts *program*. Raises OSError."""
    control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened: list[int] = []
    try:
        stdout, their_stdout = os.pipe2(os.O_CLOEXEC)
        opened += [stdout, their_stdout]
        stderr, their_stderr = os.pipe2(os.O_CLOEXEC)
        opened += [stderr, their_stderr]
        spec = os.memfd_create("kr-task", os.MFD_CLOEXEC)
        opened.append(spec)
        with open(spec, "wb", closefd=False) as file:
            file.write(program.encode())
        os.lseek(spec, 0, os.SEEK_SET)
        nursery_.order({"task": True}, [their_control.fileno(), their_stdout, their_stderr, spec])
    except OSError:
        control.close()
        for descriptor in opened:
            os.close(descriptor)
        raise
    finally:
        their_control.close()
    for descriptor in (their_stdout, their_stderr, spec):
        os.close(descriptor)
    return ProgramProcess(control, {stdout: on_stdout, stderr: on_stderr}, asyncio.get_running_loop())
