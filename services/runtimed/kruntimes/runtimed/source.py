"""A Run's source on disk: WORKSPACE/RUN_UID/ATTEMPT/, made and removed without following any link (design §5).

User code shares the volume and may have left anything in it, so every step goes through a descriptor of the folder
above, and a link where a folder is expected is an error, never a way out. Blocking: call it in a thread.
"""

import errno
import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from kruntimes.common.api.views import Source
from kruntimes.common.errors import NotReady, Terminal

MAX_SOURCE_BYTES = 256 * 1024
"""The API bounds characters; this bounds bytes (design §4)."""
MAX_PATH_BYTES = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def working_dir(workspace: Path, *, uid: str, attempt: int) -> Path:
    """The folder of one epoch; a retry never sees what an earlier attempt left."""
    return workspace / uid / str(attempt)


def checked_path(path: str) -> tuple[str, ...]:
    """The segments of an inlinePath. Raises Terminal for one that is not plainly relative."""
    parts = tuple(path.split("/"))
    if len(path.encode()) > MAX_PATH_BYTES or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Terminal("inlinePath must be relative, without empty, '.' or '..' segments")
    return parts


def materialise(workspace: Path, *, uid: str, attempt: int, source: Source | None) -> Path:
    """Writes the source of one epoch and returns its folder; repeated, it leaves the same.

    A file appears whole under its name or not at all. Raises Terminal where the source can never be written, NotReady
    where the disk refuses it now.
    """
    if source is not None and source.repo_url is not None:
        raise Terminal("a source from a repository is not supported")
    content: bytes | None = None
    segments: tuple[str, ...] = ()
    if source is not None and source.inline is not None:
        segments = checked_path(source.inline_path or "")
        content = source.inline.encode()
        if len(content) > MAX_SOURCE_BYTES:
            raise Terminal(f"the inline source has {len(content)} bytes, more than {MAX_SOURCE_BYTES}")
    try:
        with ExitStack() as stack:
            folder = _open(workspace, stack)
            for name in (uid, str(attempt), *segments[:-1]):
                folder = _enter(folder, name, stack)
            if content is not None:
                _write(folder, segments[-1], content)
    except OSError as error:
        raise _explained(error) from error
    return working_dir(workspace, uid=uid, attempt=attempt)


def remove(workspace: Path, *, uid: str, attempt: int) -> None:
    """Removes the folder of one epoch, and the Run's own once it is empty; repeated, it does nothing."""
    try:
        with ExitStack() as stack:
            root = _open(workspace, stack)
            with suppress(FileNotFoundError):
                run = os.open(uid, _FOLDER, dir_fd=root)
                stack.callback(os.close, run)
                with suppress(FileNotFoundError):
                    shutil.rmtree(str(attempt), dir_fd=run)
                with suppress(OSError):
                    os.rmdir(uid, dir_fd=root)
    except OSError as error:
        raise NotReady(f"the workspace could not be cleaned: {error.strerror}") from error


def _open(workspace: Path, stack: ExitStack) -> int:
    fd = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


def _enter(parent: int, name: str, stack: ExitStack) -> int:
    """The folder *name* below *parent*, made if need be; a link of that name raises OSError."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
    fd = os.open(name, _FOLDER, dir_fd=parent)
    stack.callback(os.close, fd)
    return fd


def _write(folder: int, name: str, content: bytes) -> None:
    temporary = f".{name}.kruntimes-new" if len(name) < 200 else ".kruntimes-new"
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    fd = os.open(temporary, _NEW_FILE, 0o644, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _explained(error: OSError) -> Terminal | NotReady:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
        return Terminal(f"the source cannot be written to its path: {error.strerror}")
    return NotReady(f"the workspace cannot be written: {error.strerror}")
