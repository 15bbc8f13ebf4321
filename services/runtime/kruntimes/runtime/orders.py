"""Talking to the warden of one process (`proc.warden`): orders go to it, and one last word comes back."""

import contextlib
import json
import socket
from typing import Any

from kruntimes.runtime.proc import nursery


def send(control: socket.socket, what: dict[str, object]) -> None:
    """Sends an order. A warden that has ended does not take it; its last word is read in a moment."""
    nursery.wake()
    with contextlib.suppress(OSError):
        control.send(json.dumps(what).encode())


def last_word(control: socket.socket) -> dict[str, Any] | None:
    """What the warden said as it ended, empty where it could not, None where it has not spoken yet."""
    try:
        try:
            packet = control.recv(nursery.PACKET_BYTES)
        except ConnectionResetError:
            # It ended with an order of ours unread, which is told first; its last word lies behind it.
            packet = control.recv(nursery.PACKET_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        packet = b""
    return json.loads(packet) if packet else {}
