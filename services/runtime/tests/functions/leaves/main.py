"""Handlers that take their process with them, or try to."""

import ctypes
import os
import resource
import signal
import sys
import threading


def exit_0(event: object) -> None:
    sys.exit(0)


def exit_3(event: object) -> None:
    sys.exit(3)


def hard_exit_0(event: object) -> None:
    os._exit(0)


def hard_exit_5(event: object) -> None:
    os._exit(5)


def from_a_thread(event: object) -> None:
    thread = threading.Thread(target=os._exit, args=(0,))
    thread.start()
    threading.Event().wait()


def segfault(event: object) -> None:
    ctypes.string_at(0)


def killed(event: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def memory(event: object) -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (512 * 1024 * 1024, hard))
    try:
        return len(bytearray(2 * 1024 * 1024 * 1024))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def interrupts(event: object) -> None:
    raise KeyboardInterrupt


def raises(event: object) -> None:
    secret = {"key": "value"}
    raise LookupError(f"nothing for {event!r} in {len(secret)}")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises_unprintable(event: object) -> None:
    raise Unprintable


def forks_and_returns(event: object) -> str:
    os.fork()
    return "once"


def fine(event: object) -> str:
    return "fine"
