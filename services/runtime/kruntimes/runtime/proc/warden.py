"""The warden: one small process above each host, so that every descendant can be proved dead.

It is the sub-reaper of the host's whole tree, has one thread, loads no user code, and holds the only means
to signal the host without a race on its PID. It speaks with the Runtime Server in packets of JSON:

    from the server   {"signal": N} to the host; {"term": true} to the whole tree; {"kill": true}
    to the server     {"exit": wait status, "left": how many processes would not end, "passed": which limit
                      it was killed for, if any}, after which it ends
    end of stream     the server is gone: kill everything and end
Source: design §7; notes on host processes in a restricted Pod.
"""

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from kruntimes.runtime.proc import limits, prctl, tree

PACKET_BYTES = 1024
LOOK_SECONDS = 1.0
"""Between two looks at what the host uses; a look costs a tenth of a millisecond, and a Pod has many wardens."""
LOOK_CLOSELY_SECONDS = 0.1
"""The same, once it uses more than half of what it may."""


def run(
    control: socket.socket, host: Callable[[], NoReturn], of_host: tuple[int, ...], bounds: limits.HostLimits
) -> NoReturn:
    """Starts *host* in a child, watches it to its end, and never returns. Called in a fresh fork.

    of_host: descriptors that only the host keeps; while another held them, nobody would see their end. bounds: for
    the host with all that is below it, which is killed once it passes one.
    """
    os.setsid()
    prctl.become_subreaper()
    prctl.set_name("kr-warden")
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(wake_read)
        os.close(wake_write)
        control.close()
        host()
    for descriptor in of_host:
        os.close(descriptor)
    _Warden(control, pid, bounds).watch(wake_read)


class _Warden:
    def __init__(self, control: socket.socket, host: int, bounds: limits.HostLimits) -> None:
        self._control = control
        self._bounds = bounds
        self._passed = ""
        self._pause = LOOK_SECONDS
        self._host = host
        self._status: int | None = None

    def watch(self, wake: int) -> NoReturn:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while self._status is None:
            ready = poll.poll(int(self._pause * 1000) if self._bounds.watched else None)
            if not ready:
                self._look()
            for descriptor, _ in ready:
                if descriptor == wake:
                    os.read(wake, 4096)
                    self._reap()
                else:
                    self._obey()
        left = tree.end_below(os.getpid(), self._reap)
        last = {"exit": self._status, "left": left, "passed": self._passed}
        with contextlib.suppress(OSError):  # the server may be gone; then there is nobody to tell
            self._control.send(json.dumps(last).encode())
        os._exit(0)

    def _obey(self) -> None:
        try:
            packet = self._control.recv(PACKET_BYTES)
        except OSError:
            packet = b""
        order = json.loads(packet) if packet else {"kill": True}
        if self._status is not None:
            return
        if "signal" in order:
            os.kill(self._host, order["signal"])
        elif "term" in order:
            tree.signal_all(tree.descendants(os.getpid()), signal.SIGTERM)
        else:
            self._kill()

    def _kill(self) -> None:
        os.kill(self._host, signal.SIGKILL)
        # With the host gone nothing forks on its behalf; what it left is ended once its end is noticed.
        _, self._status = os.waitpid(self._host, 0)

    def _look(self) -> None:
        """Kills the host if it passes a limit."""
        below = tree.descendants(os.getpid())
        memory = limits.memory_of(below)
        self._passed = self._bounds.exceeded(memory=memory, processes=len(below))
        if self._passed:
            self._kill()
        near = memory * 2 > self._bounds.memory > 0 or len(below) * 2 > self._bounds.processes > 0
        self._pause = LOOK_CLOSELY_SECONDS if near else LOOK_SECONDS

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._host:
                self._status = status
