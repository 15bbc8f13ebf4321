"""Removes what instances of the same user have left whose main process and guard were both killed (design §10).

That an instance is dead is told by the kernel and by nothing else: its folder is this user's, nobody else can enter
it, and nobody holds the lock that its main process, and after that its guard, keeps to its end.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from kruntimes.local.node import guard

PREFIX = "krt-dev-"
CLEAR_SECONDS = 10.0
"""For each: what does not end by itself is killed after the guard's five seconds, and goes within milliseconds."""


def sweep(parents: Iterable[Path]) -> list[Path]:
    """Removes the folders of dead instances in *parents*; returns those that were, and are gone."""
    found = [entry for parent in parents for entry in sorted(parent.glob(f"{PREFIX}*"))]
    return [folder for folder in found if _private(folder) and _cleared(folder)]


def _private(folder: Path) -> bool:
    """Whether it is a folder, not a link to one, that is ours and that no other user can enter."""
    try:
        seen = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not stat.S_IMODE(seen.st_mode) & 0o077


def _cleared(folder: Path) -> bool:
    held = guard.lock(str(folder / guard.MAIN), wait=False)
    if held is None:  # it lives, or its guard is at work, or it is none of ours
        return False
    try:
        return guard.clear(str(folder), limit=CLEAR_SECONDS)
    finally:
        os.close(held)
