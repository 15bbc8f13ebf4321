"""A protected process is closed to another one of the same user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534
TRY = "import sys; from kruntimes.common.protect import protect; {}; print('on', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(("call", "readable"), [("protect()", False), ("None", True)], ids=["protected", "not"])
def test_environment_of_a_process_of_the_same_user(call: str, readable: bool, tmp_path: Path) -> None:
    user = NOBODY if os.geteuid() == 0 else None
    groups: list[int] | None = None if user is None else []
    python = [sys.executable, "-c"]
    with subprocess.Popen(
        [*python, TRY.format(call)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, group=user,
        extra_groups=groups, cwd="/", stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != b"on\n":
            pytest.skip("an ordinary user cannot start this interpreter")
        look = f"open('/proc/{process.pid}/environ', 'rb').read()"
        looked = subprocess.run(
            [*python, look], user=user, group=user, extra_groups=groups, cwd="/", capture_output=True
        )  # fmt: skip
        process.stdin.close()
    assert (looked.returncode == 0) is readable
    assert (b"PermissionError" in looked.stderr) is not readable
