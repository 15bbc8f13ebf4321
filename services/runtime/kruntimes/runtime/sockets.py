"""Our unix sockets: who may reach them, and how a path is taken over (design §13)."""

import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

SOCKET_MODE = 0o660
"""The Pod's group: runtimed in the other container."""
OTHER_CONTAINER = 0
"""The PID that SO_PEERCRED gives for a process of a PID namespace that is not ours."""
_UCRED = struct.Struct("3i")


class HasOptions(Protocol):
    """A socket, or what an event loop shows of one."""

    def getsockopt(self, level: int, name: int, size: int, /) -> bytes:
        """As `socket.socket.getsockopt`."""


def peer_pid(connection: HasOptions) -> int:
    """The PID of the process that connected, as the kernel noted it then."""
    pid, _, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(pid)


def is_runtimed(pid: int, *, runtimed_pid: int) -> bool:
    """Whether the peer *pid* is runtimed: in another container, or exactly *runtimed_pid* where that is not 0.

    A parent proves nothing, since user code can be re-parented; a user's process in our own container has a PID here.
    """
    return pid == (runtimed_pid or OTHER_CONTAINER)


class Door:
    """Who may be connected to one of our sockets: runtimed, at most *most* times.

    name: of the socket, for the log. runtimed_pid: as in `is_runtimed`. on_stranger: told of each that was refused.
    """

    def __init__(self, name: str, *, runtimed_pid: int, most: int, on_stranger: Callable[[], None]) -> None:
        self._name = name
        self._runtimed_pid = runtimed_pid
        self._most = most
        self._on_stranger = on_stranger
        self._inside: set[object] = set()

    def admit(self, connection: object, peer: HasOptions) -> bool:
        """Whether *connection*, with *peer* at its other end, may stay; if so it counts until it is `gone`."""
        pid = peer_pid(peer)
        known = is_runtimed(pid, runtimed_pid=self._runtimed_pid)
        if known and len(self._inside) < self._most:
            self._inside.add(connection)
            return True
        self._on_stranger()
        log.warning("connection refused", extra={"socket": self._name, "peer": pid, "runtimed": known})
        return False

    def gone(self, connection: object) -> None:
        """*connection* is closed; for one that was refused nothing changes."""
        self._inside.discard(connection)


@contextlib.contextmanager
def binding(path: Path) -> Iterator[None]:
    """In the context a socket may be bound to *path*, with our mode; one that nobody listens on is removed first.

    Raises OSError where another process listens there.
    """
    _remove_stale(path)
    mask = os.umask(0o777 & ~SOCKET_MODE)
    try:
        yield
    finally:
        os.umask(mask)


def remove(path: Path) -> None:
    """Takes the socket away; one that is gone is no error."""
    path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            remove(path)
            return
    raise OSError(f"another process listens on {path}")
