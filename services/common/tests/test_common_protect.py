"""A protected process is closed to another one of the same user."""

import subprocess
import sys

import pytest
from tests.ordinary_user import as_ordinary_user, needs_ordinary_user

TRY = "import sys; from kruntimes.common.protect import protect; {}; print('on', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(("call", "readable"), [("protect()", False), ("None", True)], ids=["protected", "not"])
def test_environment_of_a_process_of_the_same_user(call: str, readable: bool) -> None:
    needs_ordinary_user()
    python = as_ordinary_user([sys.executable, "-c"])
    with subprocess.Popen(
        [*python, TRY.format(call)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        look = f"open('/proc/{process.pid}/environ', 'rb').read()"
        looked = subprocess.run([*python, look], cwd="/", capture_output=True)
        process.stdin.close()
    assert looked.returncode == (0 if readable else 1), looked.stderr
    assert (b"PermissionError" in looked.stderr) is not readable
