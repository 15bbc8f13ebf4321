"""The processes below one process, from /proc, and their end.

Works only below a sub-reaper, where no descendant can leave the tree however it forks.
"""

import os
import signal
import time
from collections.abc import Callable, Set

PAUSE_SECONDS = 0.002
"""Between two looks at the tree: killed processes need a moment to go."""
GIVE_UP_SECONDS = 10.0
"""A process that SIGKILL does not end in this time hangs in the kernel; it is reported, not waited for."""


def children(pid: int) -> list[int]:
    """The direct children of every thread of *pid*, zombies included; empty where *pid* is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        return found or (_children_by_scan(pid) if os.path.exists(f"/proc/{pid}") else [])
    except (ProcessLookupError, PermissionError):
        pass
    return found


def _children_by_scan(pid: int) -> list[int]:
    """For kernels without /proc/PID/task/TID/children."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rsplit(b")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if parent == pid:
            found.append(int(name))
    return found


def descendants(pid: int, keep: Set[int] = frozenset()) -> list[int]:
    """Everything below *pid*; a process of *keep* and what is below it are left out."""
    found: list[int] = []
    todo = [pid]
    while todo:
        for child in children(todo.pop()):
            if child not in keep:
                found.append(child)
                todo.append(child)
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Sends *number* to each that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def end_below(pid: int, reap: Callable[[], None], *, keep: Set[int] = frozenset()) -> int:
    """Kills and reaps what is below *pid* (this process) until nothing is left; returns how many would not go.

    reap: collects ended children without blocking.
    """
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while True:
        reap()
        left = descendants(pid, keep)
        if not left or time.monotonic() > give_up:
            return len(left)
        signal_all(left, signal.SIGKILL)
        reap()
        time.sleep(PAUSE_SECONDS)
