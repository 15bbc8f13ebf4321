"""What one `krt dev` owns on this machine, and what takes care that nothing of it is left (design §10).

A temporary folder that only its owner can enter, a network of Pod addresses, and a guard: a process that removes
the folder and gives the network back when the main process and every container have ended, in whatever way.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kruntimes.common.errors import Terminal
from kruntimes.local.node.addresses import Addresses

GUARD = Path(__file__).parent / "node" / "guard.py"
SOCKET_PATH_BYTES = 107
"""Linux's limit for the path of a unix socket (sun_path)."""
LONGEST_SOCKET = "/p/12345678/v/kruntimes-gateway/functions.sock"
"""The longest path of a socket below the folder; a longer $TMPDIR than fits is not used."""
GUARD_SECONDS = 10.0
"""The guard ends when the last shim has; a killed tree is gone within milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One running `krt dev`. hold: the descriptor whose last copy ends the guard's wait."""

    folder: Path
    logs: Path
    addresses: Addresses
    hold: int
    guard: subprocess.Popen[bytes]

    @classmethod
    def open(cls, *, draw: random.Random, logs: Path | None = None) -> Self:
        """Makes folder, network and guard. logs: a folder to keep; by default logs end with the instance.

        Raises Terminal where no folder can be made whose sockets have short enough paths.
        """
        folder = Path(tempfile.mkdtemp(prefix="krt-dev-", dir=_parent()))
        addresses = Addresses.take(draw=draw)
        watched, hold = os.pipe()
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), str(watched), str(folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(watched, addresses.claim.fileno()), start_new_session=True,
        )  # fmt: skip
        os.close(watched)
        place = logs if logs is not None else folder / "logs"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(folder=folder, logs=place, addresses=addresses, hold=hold, guard=guard)

    def close(self) -> None:
        """Gives everything back and waits until the guard has removed it; processes must have ended before."""
        self.addresses.close()
        os.close(self.hold)
        try:
            status = self.guard.wait(GUARD_SECONDS)
        except subprocess.TimeoutExpired:
            raise Terminal(f"processes are left; {self.folder} goes with the last of them") from None
        if status != 0:  # somebody ended the guard, so its work is ours
            shutil.rmtree(self.folder, ignore_errors=True)


def _parent() -> str:
    """$TMPDIR, or /tmp where sockets below it would have too long paths."""
    for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108
        if len(os.fsencode(f"{parent}/krt-dev-12345678{LONGEST_SOCKET}")) <= SOCKET_PATH_BYTES:
            return parent
    raise Terminal("no folder for temporary files has a short enough path")
