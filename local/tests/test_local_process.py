"""The shim: nothing of a command is left, whoever dies first, and its log is bounded."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kruntimes.local.node import shim
from kruntimes.local.node.process import SHIM, Exit, Process, StartFailed

DETACHED = "(setsid sh -c 'setsid sleep 600 & setsid sleep 600' &) ; sleep 0.2; echo up; "


async def until(check: Callable[[], Awaitable[object]], limit: float = 10.0) -> None:
    async with asyncio.timeout(limit):
        while not await check():
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Started:
    """Starts commands through the shim, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.processes: list[Process] = []

    async def sh(self, script: str) -> Process:
        process = await Process.start(
            command=["sh", "-c", script], env={"PATH": os.environ["PATH"]}, cwd=self.folder, log=self.log
        )
        self.processes.append(process)
        return process

    async def said(self, text: str) -> None:
        async def look() -> bool:
            return text in self.log.read_text()

        await until(look)


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Started]:
    made = Started(tmp_path)
    yield made
    for process in made.processes:
        process.kill()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("exit 0", Exit(0), id="success"),
        pytest.param("exit 3", Exit(3), id="failure"),
        pytest.param("kill -9 $$", Exit(137, 9), id="killed"),
        pytest.param("kill -15 $$", Exit(143, 15), id="terminated"),
    ],
)
async def test_how_a_command_ended_is_told(started: Started, script: str, expected: Exit) -> None:
    assert await (await started.sh(script)).wait() == expected


async def test_output_and_environment_are_the_command_s_own(started: Started) -> None:
    process = await started.sh("echo out; echo err >&2; env; pwd; ls -l /proc/$$/fd | wc -l; cat")
    assert await process.wait() == Exit(0)
    lines = started.log.read_text().splitlines()
    assert lines[:2] == ["out", "err"]
    assert str(started.folder) in lines
    assert not [line for line in lines if line.startswith("PYTHON")]


async def test_sigterm_reaches_the_command_which_may_answer_it(started: Started) -> None:
    process = await started.sh("trap 'echo asked; exit 5' TERM; echo up; while :; do sleep 0.05; done")
    await started.said("up")
    process.terminate()
    assert await process.wait() == Exit(5)
    assert "asked" in started.log.read_text()


async def test_detached_descendants_end_with_the_command(started: Started) -> None:
    process = await started.sh(DETACHED + "sleep 600")
    await started.said("up")
    below = shim.descendants(process._shim.pid)
    assert len(below) >= 4
    os.kill(process.pid, signal.SIGKILL)
    assert await process.wait() == Exit(137, 9)
    assert not [pid for pid in below if alive(pid)]


async def test_a_kill_ends_the_whole_tree(started: Started) -> None:
    process = await started.sh("trap '' TERM; " + DETACHED + "while :; do sleep 0.1; done")
    await started.said("up")
    below = shim.descendants(process._shim.pid)
    process.kill()
    assert await process.wait() == Exit(137, 9)
    assert not [pid for pid in below if alive(pid)]


async def test_everything_ends_when_the_main_process_is_killed(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; {DETACHED} sleep 600"
    parent = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-I', '-S', {str(SHIM)!r}, '--log', {str(tmp_path / 'log')!r}, '--bytes', "
        f"'9999', '--', 'sh', '-c', {script!r}], stdin=subprocess.PIPE, start_new_session=True)\n"
        "time.sleep(600)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent)
    log = tmp_path / "log"

    async def up() -> bool:
        return log.exists() and "up" in log.read_text()

    await until(up)
    below = shim.descendants(process.pid)
    assert len(below) >= 5
    process.kill()
    await process.wait()

    async def gone() -> bool:
        return not [pid for pid in below if alive(pid)]

    await until(gone)


async def test_the_command_dies_with_a_shim_that_is_killed(started: Started) -> None:
    process = await started.sh("echo up; sleep 600")
    await started.said("up")
    process._shim.kill()
    assert await process.wait() == Exit(137, 9)

    async def gone() -> bool:
        return not alive(process.pid)

    await until(gone)


async def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="No such file or directory: nonsense"):
        await Process.start(command=["nonsense"], env={"PATH": "/bin"}, cwd=tmp_path, log=tmp_path / "log")


def test_a_log_is_turned_over_at_its_bound(tmp_path: Path) -> None:
    log = shim.Log(str(tmp_path / "log"), 10)
    for text in (b"12345\n", b"678\n", b"next\n"):
        log.write(text)
    os.close(log.fd)
    assert (tmp_path / "log.1").read_bytes() == b"12345\n678\n"
    assert (tmp_path / "log").read_bytes() == b"next\n"
