"""Scratch folders: one for each function and each task, on the Pod's own volume, empty whenever a call begins.

User code shares our user, so anything may lie in there: links, folders without rights, a changed current folder.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FOLDER = "scratch"
_MODE = stat.S_IRWXU
_PRIVATE_PREFIX = "kr-scratch-"


class Scratch:
    """The folder of all scratch folders. Removing is left to `to_thread` where the loop must go on."""

    def __init__(self, state_dir: Path) -> None:
        """Under *state_dir* where that can be written, else in the system's temporary folder; what is there goes."""
        root = state_dir / _FOLDER
        try:
            remove(root)
            root.mkdir(_MODE)
        except OSError:
            root = Path(tempfile.mkdtemp(prefix=_PRIVATE_PREFIX))
        self._root = root

    def make(self, name: str) -> Path:
        """A new, empty folder. name: a plain word. Raises OSError."""
        path = self._root / name
        remove(path)
        path.mkdir(_MODE)
        return path

    def discard(self, name: str) -> None:
        """Removes the folder *name*."""
        remove(self._root / name)

    def close(self) -> None:
        """Removes everything."""
        remove(self._root)


def remove(path: Path) -> None:
    """Removes *path* with all that is below it; what cannot be removed stays, and no link is followed."""
    shutil.rmtree(path, onerror=_make_accessible)


def empty(path: Path, keep: frozenset[str] = frozenset()) -> None:
    """Removes what lies in *path*, apart from the names of *keep*."""
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        if name in keep:
            continue
        found = path / name
        if found.is_dir() and not found.is_symlink():
            remove(found)
        else:
            _unlink(found)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def _make_accessible(failed: Callable[..., Any], path: str, error: object) -> None:
    """A folder without rights is given them, and gone through once more."""
    parent = os.path.dirname(path)
    try:
        os.chmod(parent, _MODE)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, _MODE)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except OSError:
        return
