"""A Run's source on disk, made and removed without following any link (design §5).

It lies in WORKSPACE/.kruntimes/POD_UID/RUN_UID/ATTEMPT/. The workspace may be a volume that outlives the Pod and
that other Pods share, so what is made and removed here is below our own Pod's UID, and nothing else is touched.

User code shares the volume and may have left anything in it, so every step goes through a descriptor of the folder
above, and a link where a folder is expected is an error, never a way out. Blocking: call it in a thread.
"""

import errno
import os
import shutil
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from kruntimes.common.errors import NotReady, Terminal

MAX_SOURCE_BYTES = 256 * 1024
"""The API bounds characters; this bounds bytes (design §4)."""
MAX_PATH_BYTES = 4096
SCRIPT = "script"
"""The file of a task's inline source where its entrypoint names none; the public contract's name."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of one Pod in its workspace."""

    workspace: Path
    pod_uid: str

    @property
    def segments(self) -> tuple[str, ...]:
        """The way to it from the workspace."""
        return (".kruntimes", self.pod_uid)

    def working_dir(self, *, uid: str, attempt: int) -> Path:
        """The folder of one epoch; a retry never sees what an earlier attempt left."""
        return self.workspace.joinpath(*self.segments, uid, str(attempt))

    def outputs(self, *, uid: str, attempt: int) -> Path:
        """The file of a task's outputs, beside its working directory."""
        return self.workspace.joinpath(*self.segments, uid, f"{attempt}.outputs")


def checked_path(path: str) -> tuple[str, ...]:
    """The segments of an inlinePath. Raises Terminal for one that is not plainly relative."""
    parts = tuple(path.split("/"))
    if len(path.encode()) > MAX_PATH_BYTES or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Terminal("inlinePath must be relative, without empty, '.' or '..' segments")
    return parts


def task_path(entrypoint: str) -> str:
    """Where a task's inline source is written: its entrypoint, without `./`, or SCRIPT."""
    return "/".join(part for part in entrypoint.split("/") if part not in ("", ".")) or SCRIPT


def materialise(home: Home, *, uid: str, attempt: int, inline: str | None, path: str) -> Path:
    """Writes the inline source of one epoch and returns its folder; repeated, it leaves the same.

    A file appears whole under its name or not at all. Raises Terminal where the source can never be written, NotReady
    where the disk refuses it now.
    """
    content: bytes | None = None
    segments: tuple[str, ...] = ()
    if inline is not None:
        segments = checked_path(path)
        content = inline.encode()
        if len(content) > MAX_SOURCE_BYTES:
            raise Terminal(f"the inline source has {len(content)} bytes, more than {MAX_SOURCE_BYTES}")
    try:
        with ExitStack() as stack:
            folder = open_workspace(home.workspace, stack)
            for name in (*home.segments, uid, str(attempt), *segments[:-1]):
                folder = enter(folder, name, stack)
            if content is not None:
                # A script that names its interpreter is a program.
                _write(folder, segments[-1], content, mode=0o755 if content.startswith(b"#!") else 0o644)
    except OSError as error:
        raise explained(error) from error
    return home.working_dir(uid=uid, attempt=attempt)


def remove(home: Home, *, uid: str, attempt: int) -> None:
    """Removes what there is of one epoch, and the Run's own folder once it is empty; repeated, it does nothing."""
    try:
        with ExitStack() as stack, suppress(FileNotFoundError):
            root = _home(home, stack)
            run = os.open(uid, FOLDER, dir_fd=root)
            stack.callback(os.close, run)
            for name in (str(attempt), f"{attempt}.outputs", f"{attempt}.new"):
                drop(name, run)
            with suppress(OSError):
                os.rmdir(uid, dir_fd=root)
    except OSError as error:
        raise NotReady(f"the workspace could not be cleaned: {error.strerror}") from error


def found(home: Home) -> frozenset[str]:
    """The UIDs of the Runs of which there is anything."""
    try:
        with ExitStack() as stack:
            return frozenset(os.listdir(_home(home, stack)))
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise NotReady(f"the workspace cannot be read: {error.strerror}") from error


def remove_all(home: Home, *, uid: str) -> None:
    """Removes whatever there is of a Run, whoever left it; repeated, it does nothing. Raises NotReady."""
    try:
        with ExitStack() as stack, suppress(FileNotFoundError):
            drop(uid, _home(home, stack))
    except OSError as error:
        raise NotReady(f"the workspace could not be cleaned: {error.strerror}") from error


def drop(name: str, folder: int) -> None:
    """Removes *name* of *folder*, whatever user code has made of it; a link goes, and not what it leads to."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _home(home: Home, stack: ExitStack) -> int:
    folder = open_workspace(home.workspace, stack)
    for name in home.segments:
        folder = os.open(name, FOLDER, dir_fd=folder)
        stack.callback(os.close, folder)
    return folder


def open_workspace(workspace: Path, stack: ExitStack) -> int:
    """The workspace's own folder, open until *stack* ends; it is the Pod's, and may be a link."""
    fd = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


def enter(parent: int, name: str, stack: ExitStack) -> int:
    """The folder *name* below *parent*, made if need be; a link of that name raises OSError."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
    fd = os.open(name, FOLDER, dir_fd=parent)
    stack.callback(os.close, fd)
    return fd


def _write(folder: int, name: str, content: bytes, *, mode: int) -> None:
    temporary = f".{name}.kruntimes-new" if len(name) < 200 else ".kruntimes-new"
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    fd = os.open(temporary, NEW_FILE, mode, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def explained(error: OSError) -> Terminal | NotReady:
    """What *error* means for a source: a path that can never be written, or a disk that refuses it now."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
        return Terminal(f"the source cannot be written to its path: {error.strerror}")
    return NotReady(f"the workspace cannot be written: {error.strerror}")
