"""The nursery: a process forked before gRPC is loaded, from which every host is forked.

A fork of a process that has loaded gRPC is not safe, and starting an interpreter for each function would cost
a tenth of a second and its memory; the nursery has one thread, the hosts' modules imported, and nothing else.

    from the server   {"host": kind} with three descriptors: control of the warden, link, log
                      {"task": true} with four: control of the warden, standard output, standard error, the program
                      both with "limits": a HostLimits
    end of stream     the server is gone; the nursery ends (each warden notices by itself)
Source: design §7; notes on host processes in a restricted Pod.
"""

import gc
import json
import os
import select
import signal
import socket
import traceback
from collections.abc import Callable
from typing import NoReturn

from kruntimes.common.protect import protect
from kruntimes.runtime.proc import limits, prctl, tree, warden

PACKET_BYTES = 1024
EX_SOFTWARE = 70
"""sysexits.h: an error of our own."""
MAX_DESCRIPTORS = 4

HostMain = Callable[[str, socket.socket], NoReturn]
"""Runs the host of that kind on that link; never returns."""
TaskMain = Callable[[int], NoReturn]
"""Becomes the program that the descriptor describes; never returns."""


def start(host_main: HostMain, task_main: TaskMain) -> socket.socket:
    """Forks the nursery and returns the server's end of its control socket.

    Must be called while this process has one thread and has not loaded gRPC. From now on nobody of the same user can
    read environment, descriptors and memory of this process, nor of what it forks until that executes a program: not
    the nursery's, and not one Python function's by another's.
    """
    protect()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _never_return(_Nursery(theirs, host_main, task_main).run)
    theirs.close()
    return ours


def wake() -> None:
    """Continues the nursery and every warden that was stopped; called in the server's process, before an order.

    User code has their user and may stop them for good: an order to end a function would then never be obeyed.
    """
    for child in tree.children(os.getpid()):
        tree.signal_all([child, *tree.children(child)], signal.SIGCONT)


class _Nursery:
    def __init__(self, control: socket.socket, host_main: HostMain, task_main: TaskMain) -> None:
        self._control = control
        self._host_main = host_main
        self._task_main = task_main
        self._wardens: set[int] = set()

    def run(self) -> NoReturn:
        os.setsid()
        prctl.become_subreaper()
        prctl.set_name("kr-nursery")
        gc.freeze()
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wake_read:
                    os.read(wake_read, 4096)
                    self._tidy()
                else:
                    self._give_birth(wake_read, wake_write)

    def _give_birth(self, wake_read: int, wake_write: int) -> None:
        packet, descriptors, _, _ = socket.recv_fds(self._control, PACKET_BYTES, MAX_DESCRIPTORS)
        if not packet:
            os._exit(0)
        order = json.loads(packet)
        kind = order.get("host")
        bounds = limits.HostLimits(**order["limits"])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            os.close(wake_read)
            os.close(wake_write)
            self._control.close()
            control, *theirs = descriptors
            _be_warden(control, lambda: self._be(kind, theirs, bounds), tuple(theirs), bounds)
        self._wardens.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)

    def _be(self, kind: str | None, descriptors: list[int], bounds: limits.HostLimits) -> NoReturn:
        limits.apply(bounds)
        if kind is None:
            stdout, stderr, program = descriptors
            _be_task(stdout, stderr, program, self._task_main)
        link, log = descriptors
        _be_host(kind, link, log, self._host_main)

    def _tidy(self) -> None:
        """Reaps wardens; what a murdered warden left behind has become our child, and is ended."""
        self._reap()
        me = os.getpid()
        if set(tree.children(me)) - self._wardens:
            tree.end_below(me, self._reap, keep=frozenset(self._wardens))

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._wardens.discard(pid)


def _be_warden(
    control: int, host: Callable[[], NoReturn], of_host: tuple[int, ...], bounds: limits.HostLimits
) -> NoReturn:
    _never_return(lambda: warden.run(socket.socket(fileno=control), host, of_host, bounds))


def _be_host(kind: str, link: int, log: int, host_main: HostMain) -> NoReturn:
    """Descriptors and signals as a program expects them; standard output and error are the log."""

    def run() -> NoReturn:
        _leave_ours(f"kr-{kind}-host")
        _stand_on(log, log)
        host_main(kind, socket.socket(fileno=link))

    _never_return(run)


def _be_task(stdout: int, stderr: int, program: int, task_main: TaskMain) -> NoReturn:
    def run() -> NoReturn:
        _leave_ours("kr-task")
        _stand_on(stdout, stderr)
        task_main(program)

    _never_return(run)


def _leave_ours(name: str) -> None:
    os.setsid()
    prctl.become_subreaper()
    prctl.set_name(name)


def _stand_on(stdout: int, stderr: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    for source in {null, stdout, stderr} - {0, 1, 2}:
        os.close(source)


def _never_return(run: Callable[[], NoReturn]) -> NoReturn:
    """A forked process must not unwind into its parent's stack, whatever happens."""
    try:
        run()
    except BaseException:
        traceback.print_exc()
    os._exit(EX_SOFTWARE)
