"""Programs as a user to whom nothing of the machine belongs: containment means nothing to root."""

import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import pytest

NOBODY: Final = 65534
_BECOME: Final = (
    f"import os, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); os.execv(sys.argv[1], sys.argv[1:])"
)


def uid() -> int:
    """Of the user that `as_ordinary_user` starts programs as."""
    return NOBODY if os.geteuid() == 0 else os.geteuid()


def as_ordinary_user(argv: Sequence[str]) -> list[str]:
    """The command that runs *argv* (an absolute path first) as nobody under root, and *argv* itself otherwise.

    `Popen(user=...)` would fork this process to change the user, and gRPC's fork handlers may crash the child.
    """
    become = [sys.executable, "-IS", "-c", _BECOME] if os.geteuid() == 0 else []
    return [*become, *argv]


@functools.cache
def _error_of_start() -> str:
    argv = as_ordinary_user([sys.executable, "-c", "import kruntimes.runtime.main"])
    tried = subprocess.run(argv, cwd="/", capture_output=True, text=True)
    assert tried.returncode >= 0, f"the interpreter died of signal {-tried.returncode}"
    return tried.stderr if tried.returncode else ""


def needs_ordinary_user() -> None:
    """Skips the test where an interpreter of root's own folders is closed to others."""
    if _error_of_start():
        pytest.skip("an ordinary user cannot start this interpreter")
