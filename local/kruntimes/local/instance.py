"""What one `krt dev` owns on this machine, and what takes care that nothing of it is left (design §10).

A temporary folder that only its owner can enter, a network of Pod addresses, and a guard: a process that removes
the folder and gives the network back when the main process and every container have ended, in whatever way.
"""

import asyncio
import fcntl
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kruntimes.common.errors import Terminal
from kruntimes.local.node.addresses import Addresses
from kruntimes.local.node.guard import HOLD, MAIN
from kruntimes.local.sweep import PREFIX

GUARD = Path(__file__).parent / "node" / "guard.py"
SOCKET_PATH_BYTES = 107
"""Linux's limit for the path of a unix socket (sun_path)."""
LONGEST_SOCKET = "/p/12345678/v/kruntimes-gateway/functions.sock"
"""The longest path of a socket below the folder; a longer $TMPDIR than fits is not used."""
GUARD_SECONDS = 10.0
"""The guard ends when the last shim has: within milliseconds, or after the five seconds when it kills them."""
GUARD_LOOK_SECONDS = 0.2
GUARD_AGAIN_SECONDS = 60.0
"""One that cannot run at all is started again at ever longer intervals, up to this one."""


class Guard:
    """The process that clears up after this one, whatever this one's end; started again when it is killed.

    claim: the descriptor of the claim on the addresses, which it holds too.
    """

    def __init__(self, folder: Path, *, claim: int) -> None:
        self._folder, self._claim = folder, claim
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), str(self._folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(self._claim,), start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the one that was started last."""
        return self._process.pid

    async def keep(self, say: Callable[[str], None]) -> None:
        """Starts it again, for ever, each time that it has ended. say: a line for the person."""
        pause = GUARD_LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            if self._process.poll() is None:
                pause = GUARD_LOOK_SECONDS
                continue
            pause = min(2 * pause, GUARD_AGAIN_SECONDS)
            try:
                self._process = self._start()
            except OSError as error:
                say(f"the guard, which clears up after krt dev, ended and cannot be started again: {error.strerror}")
            else:
                say("the guard, which clears up after krt dev, ended, and is started again")

    def wait(self) -> bool:
        """Waits until it has cleared up; False where it was killed before it could. Raises TimeoutExpired."""
        return self._process.wait(GUARD_SECONDS) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One running `krt dev`.

    hold: the descriptor of the file that says that something still lives; each container keeps a copy. main: of the
    one that says that the main process does.
    """

    folder: Path
    logs: Path
    addresses: Addresses
    hold: int
    main: int
    guard: Guard

    @classmethod
    def open(cls, *, draw: random.Random, logs: Path | None = None) -> Self:
        """Makes folder, network and guard. logs: a folder to keep; by default logs end with the instance.

        Raises Terminal where a folder cannot be made, or none whose sockets have short enough paths.
        """
        if logs is not None:
            _make(logs)
        try:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_parent()))
        except OSError as error:
            raise Terminal(f"no folder for temporary files can be made: {error.strerror}") from None
        try:
            main, hold = _lock(folder / MAIN), _lock(folder / HOLD)
            addresses = Addresses.take(draw=draw)
            place = logs if logs is not None else folder / "logs"
            _make(place)
            guard = Guard(folder, claim=addresses.claim.fileno())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(folder=folder, logs=place, addresses=addresses, hold=hold, main=main, guard=guard)

    def close(self) -> None:
        """Gives everything back and waits until the guard has removed it; processes must have ended before."""
        self.addresses.close()
        os.close(self.hold)
        os.close(self.main)
        try:
            cleared = self.guard.wait()
        except subprocess.TimeoutExpired:
            raise Terminal(f"processes are left; {self.folder} goes with the last of them") from None
        if not cleared:  # somebody ended the guard, so its work is ours
            shutil.rmtree(self.folder, ignore_errors=True)


def _lock(file: Path) -> int:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Terminal(f"the folder for logs, {folder}, cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Terminal(f"the folder for logs, {folder}, cannot be written to")


def parents() -> list[Path]:
    """Where instances have their folders: $TMPDIR, and /tmp where sockets below it would have too long paths."""
    return list(dict.fromkeys(Path(parent) for parent in (tempfile.gettempdir(), "/tmp")))  # noqa: S108


def _parent() -> Path:
    """The first of them where the paths of sockets are short enough."""
    for parent in parents():
        if len(os.fsencode(f"{parent}/{PREFIX}12345678{LONGEST_SOCKET}")) <= SOCKET_PATH_BYTES:
            return parent
    raise Terminal("no folder for temporary files has a short enough path")
