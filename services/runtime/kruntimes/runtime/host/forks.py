"""Forks made by user code: the child must be an ordinary process, without the host's link and signal handlers.

A signal that reaches a fresh child before the interpreter is set up there would be forgotten, and one that meets
a system call about to block would be handled late; whoever terminates a child, as a multiprocessing pool does,
then waits for ever. So the host's signals are held back around a fork, and have their default meaning after it.
"""

import os
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Any


class _Held(threading.local):
    """The mask that the forking thread had."""

    mask: set[Any] | None = None


def make_children_ordinary(handlers: Mapping[signal.Signals, Any], link: socket.socket) -> None:
    """From now on, forked children close *link* and reset those of *handlers* that are still in place."""
    held = _Held()

    def before() -> None:
        held.mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, handlers.keys()))

    def restore() -> None:
        if held.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, held.mask)
            held.mask = None

    def in_child() -> None:
        link.close()
        for number, handler in handlers.items():
            if signal.getsignal(number) == handler:
                signal.signal(number, signal.SIG_DFL)
        restore()

    os.register_at_fork(before=before, after_in_parent=restore, after_in_child=in_child)
