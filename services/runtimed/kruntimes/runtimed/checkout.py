"""The tree of a commit on disk: built beside its place and renamed into it, so that it is there whole or not at all.

Blocking, and as careful as `source`: every folder is entered through a descriptor of the one above, no link is ever
followed, and nothing that is there already is written to.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from kruntimes.runtimed.source import FOLDER, NEW_FILE, Home, drop, enter, explained, open_workspace


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes below the folder that *root* describes."""

    root: int

    def file(self, path: tuple[bytes, ...], content: bytes, *, mode: int) -> None:
        """A new file. Raises OSError where anything of that name is there."""
        with ExitStack() as stack:
            fd = os.open(path[-1], NEW_FILE, mode, dir_fd=self._parent(path, stack))
        with os.fdopen(fd, "wb") as file:
            file.write(content)

    def link(self, path: tuple[bytes, ...], target: bytes) -> None:
        """A new symbolic link. Raises OSError likewise."""
        with ExitStack() as stack:
            os.symlink(target, path[-1], dir_fd=self._parent(path, stack))

    def _parent(self, path: tuple[bytes, ...], stack: ExitStack) -> int:
        folder = self.root
        for name in path[:-1]:
            folder = enter(folder, os.fsdecode(name), stack)
        return folder


def is_there(home: Home, *, uid: str, attempt: int) -> bool:
    """Whether the folder of the epoch is in its place."""
    try:
        return stat.S_ISDIR(home.working_dir(uid=uid, attempt=attempt).lstat().st_mode)
    except OSError:
        return False


@contextmanager
def new_tree(home: Home, *, uid: str, attempt: int) -> Iterator[Writer]:
    """A writer whose files are in their place once the block has ended well. Raises Terminal or NotReady."""
    name = f"{attempt}.new"
    try:
        with ExitStack() as stack:
            folder = open_workspace(home.workspace, stack)
            for part in (*home.segments, uid):
                folder = enter(folder, part, stack)
            drop(name, folder)
            os.mkdir(name, 0o755, dir_fd=folder)
            try:
                root = os.open(name, FOLDER, dir_fd=folder)
                stack.callback(os.close, root)
                yield Writer(root)
                os.rename(name, str(attempt), src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                drop(name, folder)
                raise
    except OSError as error:
        raise explained(error) from error
