"""What an instance owns is gone after it, whoever of main process, guard and shims is killed or stopped."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kruntimes.common.errors import Terminal
from kruntimes.local.instance import Instance
from kruntimes.local.node import shim
from kruntimes.local.sweep import sweep

LIMIT = 30.0
PROGRAM = """
import asyncio, os, random, sys
from pathlib import Path
from kruntimes.local.instance import Instance
from kruntimes.local.node.process import Process

def say(text):
    print("said", text, instance.guard.pid, flush=True)

async def main():
    process = await Process.start(
        command=["sh", "-c", "(setsid sleep 600 &) ; sleep 600"], env=dict(os.environ), cwd=instance.folder,
        log=instance.logs / "log", hold=instance.hold,
    )
    print(instance.folder, instance.guard.pid, process._shim.pid, flush=True)
    await instance.guard.keep(say)

instance = Instance.open(draw=random.Random())
asyncio.run(main())
"""


def eventually(what: str, check: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not check():
        assert time.monotonic() < end, f"not within {LIMIT} s: {what}"
        time.sleep(0.02)


def over(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Main:
    """A main process with an instance, and one container with a detached grandchild."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.output = self.process.stdout
        where, guard, self.shim = self.output.readline().split()
        self.folder, self.guard, self.shim = Path(where), int(guard), int(self.shim)
        eventually("the command and what it detached", lambda: len(shim.descendants(self.shim)) == 3)
        self.tree = [self.shim, *shim.descendants(self.shim)]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self.output.close()
        for pid in self.tree:
            shim.send(pid, signal.SIGKILL)


@pytest.fixture
def main() -> Iterator[Main]:
    place = Path(tempfile.mkdtemp(prefix="ki-", dir="/tmp"))  # short, as paths of sockets must be
    made = Main(place)
    yield made
    made.close()
    shutil.rmtree(place)


def test_a_guard_that_is_killed_is_told_started_again_and_does_its_work(main: Main) -> None:
    os.kill(main.guard, signal.SIGKILL)
    told = main.output.readline()
    assert "the guard, which clears up after krt dev, ended, and is started again" in told
    assert int(told.split()[-1]) != main.guard
    eventually("it is reaped", lambda: not Path(f"/proc/{main.guard}").exists())
    main.kill()
    eventually("the folder is gone", lambda: not main.folder.exists())
    eventually("every process is gone", lambda: all(map(over, main.tree)))


def test_a_stopped_container_is_killed_when_the_main_process_is_dead(main: Main) -> None:
    for pid in main.tree:
        os.kill(pid, signal.SIGSTOP)
    main.kill()
    eventually("every process is gone", lambda: all(map(over, main.tree)))
    eventually("the folder is gone", lambda: not main.folder.exists())
    eventually("the guard has ended", lambda: over(main.guard))


def test_a_start_removes_what_is_left_when_the_guard_was_killed_first(main: Main) -> None:
    parent = main.folder.parent
    assert sweep([parent]) == [], "it lives"
    os.kill(main.process.pid, signal.SIGSTOP)
    os.kill(main.guard, signal.SIGKILL)
    eventually("the guard is dead", lambda: over(main.guard))
    assert sweep([parent]) == [], "it lives still"
    assert main.folder.exists()
    main.kill()
    assert sweep([parent]) == [main.folder]
    assert not main.folder.exists()
    assert all(map(over, main.tree))


def test_a_folder_whose_guard_is_at_work_and_those_of_others_are_left_alone(main: Main, tmp_path: Path) -> None:
    parent = main.folder.parent
    (parent / "krt-dev-other").mkdir(mode=0o700)
    (parent / "krt-dev-empty.lock").write_text("")
    open_to_all = parent / "krt-dev-open"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    (open_to_all / "main.lock").write_text("")
    (open_to_all / "hold.lock").write_text("")
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (target / "main.lock").write_text("")
    (parent / "krt-dev-link").symlink_to(target)
    os.kill(main.shim, signal.SIGSTOP)
    main.kill()
    assert sweep([parent]) == []
    left = {entry.name for entry in parent.iterdir()}
    assert left >= {"krt-dev-other", "krt-dev-empty.lock", "krt-dev-open", "krt-dev-link"}
    assert target.exists()
    os.kill(main.shim, signal.SIGCONT)
    eventually("the guard has done it", lambda: not main.folder.exists())


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_folder_for_logs_that_cannot_be_made_is_a_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "file").write_text("")
    temporary = tmp_path / "t"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with pytest.raises(Terminal, match=r"the folder for logs, \S+, cannot be made: (File exists|Not a directory)"):
        Instance.open(draw=random.Random(), logs=tmp_path / name)
    assert list(temporary.iterdir()) == []
