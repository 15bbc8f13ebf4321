"""Tasks from the command line to their end: what they print, hand out, and how they are stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import eventually

PYTHON = """
import os, sys
print("hello", *sys.argv[1:])
print("to stderr", file=sys.stderr)
with open(os.environ["KRUNTIME_OUTPUTS"], "a") as outputs:
    print("rows=3", file=outputs)
"""
BASH = 'echo "hello $*"; echo "to stderr" >&2; echo rows=3 >> "$KRUNTIME_OUTPUTS"'


@pytest.fixture
def krt(stack: Any) -> Any:
    """Runs `krt`; returns its exit status and both streams."""

    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [Path(sys.executable).with_name("krt"), *arguments],
            env={**os.environ, "KUBECONFIG": str(stack.kubeconfig)},
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize(("file", "code"), [("job.py", PYTHON), ("job.sh", BASH)])
def test_a_task_prints_hands_out_and_succeeds(krt: Any, tmp_path: Path, file: str, code: str) -> None:
    (tmp_path / file).write_text(code)
    status, name, errors = krt("task", str(tmp_path / file), "--", "you", "and me")
    assert (status, errors) == (0, "")
    name = name.strip()
    status, printed, errors = krt("logs", name, "-f")
    assert status == 0, errors
    assert "hello you and me" in printed
    assert "to stderr" in printed
    assert krt("wait", name, "--for", "phase=Succeeded")[0] == 0
    run = json.loads(krt("get", name, "-o", "json")[1])
    assert run["status"]["outputs"] == {"rows": "3"}
    assert run["metadata"].get("finalizers", []) == []
    assert krt("delete", name)[0] == 0


def test_a_task_that_fails_says_how(krt: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.sh").write_text("exit 3")
    name = krt("task", str(tmp_path / "bad.sh"))[1].strip()
    assert krt("wait", name, "--for", "phase=Failed")[0] == 0
    run = json.loads(krt("get", name, "-o", "json")[1])
    assert "TaskFailed" in run["status"]["message"]
    assert "status 3" in run["status"]["message"]


def test_a_task_is_cancelled_with_all_that_it_started(krt: Any, tmp_path: Path) -> None:
    mark = f"86{os.getpid()}"
    (tmp_path / "long.sh").write_text(f"sleep {mark} & sleep {mark}")
    name = krt("task", str(tmp_path / "long.sh"))[1].strip()

    def sleepers() -> int:
        found = 0
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += entry.read_bytes() == b"sleep\0" + mark.encode() + b"\0"
            except OSError:
                continue
        return found

    eventually("it runs", lambda: sleepers() == 2, 60.0)
    assert krt("cancel", name)[0] == 0
    assert krt("wait", name, "--for", "phase=Cancelled")[0] == 0
    assert sleepers() == 0, "the phase is written when nothing runs any more"
