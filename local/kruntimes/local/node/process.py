"""A container's command as a process of this machine: the other end of `shim.py` (design §10)."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kruntimes.common.errors import Terminal

SHIM = Path(__file__).with_name("shim.py")
LOG_BYTES = 10 * 1024 * 1024
"""One file of this size and its predecessor are kept per container, as kubelet does."""
START_SECONDS = 20.0
"""A shim says `started` within 50 ms; on a machine that is busy starting a dozen of them it may take seconds."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended. code: its exit status, or 128 + the signal's number, as shells and kubelet write it."""

    code: int
    signal: int = 0


class StartFailed(Terminal):
    """The command could not be executed; the message says why."""


class Process:
    """One running command with everything that it starts."""

    def __init__(self, shim: asyncio.subprocess.Process, pid: int) -> None:
        self.pid = pid
        self._shim = shim

    @classmethod
    async def start(
        cls, *, command: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path, hold: int | None = None
    ) -> Self:
        """Starts *command*; its output goes to *log*. hold: a descriptor that stays open as long as the shim lives.

        Raises StartFailed where the command cannot be executed.
        """
        options = ["--log", str(log), "--bytes", str(LOG_BYTES)]
        if hold is not None:
            options += ["--hold", str(hold)]
        shim = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(SHIM), *options, "--", *command,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=dict(env), cwd=cwd, start_new_session=True, pass_fds=() if hold is None else (hold,),
        )  # fmt: skip
        assert shim.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                word, _, rest = (await shim.stdout.readline()).decode().strip().partition(" ")
        except BaseException:
            _close(shim)
            raise
        if word != "started":
            _close(shim)
            await shim.wait()
            raise StartFailed(rest or "the process could not be started")
        return cls(shim, int(rest))

    async def wait(self) -> Exit:
        """Returns when the command has ended and nothing that it started is left."""
        assert self._shim.stdout is not None
        word, _, rest = (await self._shim.stdout.readline()).decode().strip().partition(" ")
        await self._shim.wait()
        if word == "exited":
            return Exit(int(rest))
        number = int(rest) if word == "signaled" else 9
        return Exit(128 + number, number)

    def terminate(self) -> None:
        """Asks the command to end (SIGTERM)."""
        self._say(b"TERM\n")

    def kill(self) -> None:
        """Ends the command and all of its descendants (SIGKILL)."""
        self._say(b"KILL\n")

    def _say(self, line: bytes) -> None:
        if self._shim.stdin is not None and not self._shim.stdin.is_closing():
            self._shim.stdin.write(line)


def _close(shim: asyncio.subprocess.Process) -> None:
    """Closes the shim's input, which makes it end everything."""
    if shim.stdin is not None:
        shim.stdin.close()
