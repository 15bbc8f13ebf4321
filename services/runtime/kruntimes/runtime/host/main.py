"""Which host a process becomes. Imported by the nursery, so that every host starts with its modules loaded."""

import socket
from collections.abc import Callable
from typing import NoReturn

from kruntimes.runtime.host.bash import BashHost
from kruntimes.runtime.host.python import PythonHost
from kruntimes.runtime.host.serve import Host, serve

KINDS: dict[str, Callable[[], Host]] = {"python": PythonHost, "bash": BashHost}


def run(kind: str, link: socket.socket) -> NoReturn:
    """Serves as a host of *kind* on *link*; called in a fresh process."""
    serve(link, KINDS[kind]())
