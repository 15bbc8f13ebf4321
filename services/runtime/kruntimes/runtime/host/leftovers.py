"""What a call leaves behind: ended or removed after its answer was sent, so that nothing accumulates in a warm host.

The host is the sub-reaper of its descendants, so one system call tells that there is nothing to do.
"""

import os
import sys
import threading
from pathlib import Path

from kruntimes.runtime import scratch
from kruntimes.runtime.proc import tree

MAX_THREADS_LEFT = 64
"""More threads than a pool of a warm module would keep; a thread cannot be ended from outside, so the process is."""


class Leftovers:
    """Processes and threads that were there when the function became ready are the module's own and stay."""

    def __init__(self) -> None:
        self._keep = frozenset(tree.children(os.getpid()))
        self._threads = threading.active_count()

    def end_processes(self) -> None:
        """Kills and reaps every process that the call started and that still exists."""
        if not self._keep and _no_child():
            return
        tree.end_below(os.getpid(), self._reap, keep=self._keep)

    def recycle_reason(self) -> str:
        """Why the process should be replaced, or an empty text; asked before `end_processes`.

        A process of `multiprocessing` shares locks with objects of this one. Killing it may leave a lock taken
        that a later call, or the garbage collector in it, waits for: then the whole host goes.
        """
        threads = threading.active_count() - self._threads
        if threads > MAX_THREADS_LEFT:
            return f"{threads} threads were left running"
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is None:
            return ""
        workers = [child for child in multiprocessing.active_children() if child.pid not in self._keep]
        return f"{len(workers)} processes of multiprocessing were left running" if workers else ""

    def _reap(self) -> None:
        for pid in tree.children(os.getpid()):
            if pid not in self._keep:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue


class ScratchFolder:
    """The function's folder for temporary files; what was in it when the function became ready stays."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._keep = frozenset(os.listdir(path)) if path else frozenset()

    def empty(self) -> None:
        """Removes what the call left."""
        if self._path is not None:
            scratch.empty(self._path, self._keep)


def _no_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False
