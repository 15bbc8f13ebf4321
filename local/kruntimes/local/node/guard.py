"""Removes what the main process would have removed, if it dies before it could (design §10).

A program of its own, started by path with `python -I -S` in a session of its own, so that neither Ctrl-C nor a
kill of the main process's group reaches it.

    guard.py FOLDER

Two files in the folder are locked (flock): `main.lock` by the main process alone, `hold.lock` by the main process and
by every shim, which share one open file. The kernel gives a lock back when its last holder has ended, in whatever
way. So whoever gets the first one knows that the main process is dead, and with the second one every process.
Processes that still hold the second one when they should have ended, such as a stopped one, are killed.

The guard also keeps the descriptors that it was given otherwise (the claim on the instance's addresses) until then.
"""

import fcntl
import os
import select
import shutil
import signal
import sys
import time

MAIN, HOLD = "main.lock", "hold.lock"
END_SECONDS = 5.0
"""A shim ends its tree within milliseconds of the main process's death; one that takes this long never will."""
LOOK_SECONDS = 0.02
SHIM_OPTION = b"--hold"
"""By which a shim is told from whoever else has opened the file."""


def lock(path: str, *, wait: bool) -> int | None:
    """Opens and locks a file; returns its descriptor, or None where another holds it, or there is no such file of ours.

    wait: until nobody else holds it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def clear(folder: str, *, limit: float) -> bool:
    """Ends what is left of an instance whose main process is dead, and removes its folder; True when it is gone.

    Whoever calls it holds `main.lock`. limit: seconds after which it gives up.
    """
    hold = os.path.join(folder, HOLD)
    began, held = time.monotonic(), None
    while os.path.exists(hold) and (held := lock(hold, wait=False)) is None:
        passed = time.monotonic() - began
        if passed > limit:
            return False
        if passed > END_SECONDS:
            for pid in holders(hold):
                kill(pid)
        select.select([], [], [], LOOK_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
    if held is not None:
        os.close(held)
    return not os.path.lexists(folder)


def holders(path: str) -> list[int]:
    """The shims that have *path* open; those of other users are not seen."""
    wanted = os.stat(path)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if SHIM_OPTION not in file.read().split(b"\0"):
                    continue
            opened = [os.stat(f"/proc/{name}/fd/{number}") for number in os.listdir(f"/proc/{name}/fd")]
        except OSError:
            continue
        if any((one.st_dev, one.st_ino) == (wanted.st_dev, wanted.st_ino) for one in opened):
            found.append(int(name))
    return found


def kill(pid: int) -> None:
    """Kills a process with everything below it, which is stopped first, so that it starts nothing meanwhile."""
    from kruntimes.local.node import shim

    found: list[int] = []
    while new := [each for each in shim.descendants(pid) if each not in found]:
        for each in new:
            shim.send(each, signal.SIGSTOP)
        found += new
    for each in [*found, pid]:
        shim.send(each, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Waits until the main process is dead, then removes its folder."""
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))
    from kruntimes.local.node import shim  # now: nobody knows what of us is left on the disk later

    assert shim
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = arguments[0]
    if lock(os.path.join(folder, MAIN), wait=True) is not None:
        clear(folder, limit=float("inf"))


if __name__ == "__main__":
    main(sys.argv[1:])
