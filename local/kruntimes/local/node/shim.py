"""Runs one container's command, and proves that nothing of it is left when it is over (design §10).

A program of its own, started by path with `python -I -S`: it imports little, so that a dozen of them cost little.
It is the sub-reaper of whatever the command starts: a grandchild that detaches itself becomes the shim's child and
is found and killed. The command itself dies with the shim (PR_SET_PDEATHSIG), and the shim ends everything as soon
as its standard input closes, which is what happens when the main process dies in whatever way.

    shim.py --log FILE --bytes N [--hold FD] -- COMMAND [ARGUMENT…]

Standard input takes the lines `TERM` (to the command alone, as a container's first process gets it) and `KILL` (to
the whole tree). Standard output gives `started PID`, then one of `exited CODE`, `signaled NUMBER`, `failed SENTENCE`.
The command's two output streams go to FILE, which is turned over to FILE.1 at N bytes; FILE.times says when what was
written. FD stays open as long as the shim lives, and is not handed to the command. Environment and working folder are
the command's own.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CHUNK = 65536
PIPE_BYTES = 1024 * 1024
"""What the command may write ahead of the log; also the most that an unprivileged process may ask of a pipe."""
LOG_SECONDS = 0.02
"""Output is taken this often: a service that writes a line for each call must not wake its shim for each."""
TIMES, TURNED = ".times", ".1"
"""What the names of the file of times, and of a file that was turned over, end in."""
TIMES_BYTES = 2 * 1024 * 1024
"""Of 16 bytes for each write: a log whose writes have 80 bytes or more is turned over for its own size first."""
CLOSE_FROM = 3
MAX_DESCRIPTOR = 4096
"""A shim opens fewer than twenty; its own descriptors are closed at exec anyway."""
SWEEP_SECONDS = 0.02
"""How long killed processes get to turn into something that can be reaped, before the tree is walked again."""
DRAIN_READS = 256
"""What a dead tree can have left in the pipe is one pipe buffer; more reads than this are never needed."""


class Log:
    """A file of bounded size: at *limit* bytes it becomes FILE.1 and a new one begins.

    FILE.times beside it says when what was written; `log_times.py` states its form.
    """

    def __init__(self, path: str, limit: int) -> None:
        self.path, self.limit = path, limit
        self._open()

    def _open(self) -> None:
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        seen = os.fstat(self.fd)
        self.size = seen.st_size
        self.times = os.open(self.path + TIMES, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        head = seen.st_ino.to_bytes(8, "little") + bytes(8)
        if os.pread(self.times, len(head), 0) != head:  # it is new, or another log's
            os.ftruncate(self.times, 0)
            self._append(self.times, head)
        self.times_size = os.fstat(self.times).st_size

    def _turn(self) -> None:
        for fd, path in ((self.fd, self.path), (self.times, self.path + TIMES)):
            os.close(fd)
            os.replace(path, path + TURNED)
        self._open()

    def _append(self, fd: int, data: bytes) -> int:
        """Writes what there is room for; a full disk costs the text and never the command."""
        try:
            return os.write(fd, data)
        except OSError:
            return 0

    def write(self, data: bytes) -> None:
        """Appends *data*, and before it when that was: whoever reads the one finds the other."""
        if self.size + len(data) > self.limit or self.times_size >= TIMES_BYTES:
            self._turn()
        when = self.size.to_bytes(8, "little") + time.time_ns().to_bytes(8, "little")
        self.times_size += self._append(self.times, when)
        self.size += self._append(self.fd, data)


def prctl(option: int, value: int) -> None:
    """Calls prctl(2); raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def children(pid: int) -> list[int]:
    """The living children of *pid*, over all of its threads."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            continue
    return found


def descendants(pid: int) -> list[int]:
    """Every process below *pid*."""
    found: list[int] = []
    level = children(pid)
    while level:
        found += level
        level = [grandchild for child in level for grandchild in children(child)]
    return found


def send(pid: int, number: int) -> None:
    """Sends a signal; a process that is gone already is no error."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def sweep() -> None:
    """Kills everything below this process and reaps it, again and again until nothing is left."""
    while True:
        for pid in descendants(os.getpid()):
            send(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        select.select([], [], [], SWEEP_SECONDS)


def start(command: list[str], output: int) -> int:
    """Forks and executes *command*; returns its PID, or raises OSError with the reason it could not be executed."""
    parent = os.getpid()
    failure, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            empty = os.open(os.devnull, os.O_RDONLY)
            os.dup2(empty, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.dup2(report, CLOSE_FROM, inheritable=False)
            os.closerange(CLOSE_FROM + 1, MAX_DESCRIPTOR)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(command[0], command, os.environ)  # noqa: S606
        except OSError as error:
            os.write(CLOSE_FROM, str(error.errno or 0).encode())
        finally:
            os._exit(127)
    os.close(report)
    with os.fdopen(failure, "rb") as stream:
        said = stream.read(16)
    if said:
        os.waitpid(pid, 0)
        raise OSError(int(said), os.strerror(int(said)))
    return pid


def say(line: str) -> None:
    """Tells the main process; where there is none any more, nobody needs to know."""
    try:
        os.write(1, line.encode() + b"\n")
    except OSError:
        return


def watch(pid: int, log: Log, output: int) -> int:
    """Serves signals and log until *pid* ends; returns its wait status."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    commands = b""
    listening = [0, woken]
    quiet_until: float | None = 0.0  # None once the command's output has ended
    while True:
        wait, heard = 1.0, listening
        if quiet_until is not None:
            wait = quiet_until - time.monotonic()
            if wait <= 0:
                wait, heard = 1.0, [*listening, output]
        readable = select.select(heard, [], [], wait)[0]
        if output in readable:
            data = os.read(output, PIPE_BYTES)
            log.write(data)
            quiet_until = time.monotonic() + LOG_SECONDS if data else None
        if woken in readable:
            os.read(woken, CHUNK)
        if 0 in readable:
            data = os.read(0, CHUNK)
            commands += data
            *lines, commands = commands.split(b"\n")
            if b"TERM" in lines:
                send(pid, signal.SIGTERM)
            if not data or b"KILL" in lines:
                for each in [pid, *descendants(os.getpid())]:
                    send(each, signal.SIGKILL)
            if not data:
                listening.remove(0)
        status = reap(pid)
        if status is not None:
            return status


def reap(pid: int) -> int | None:
    """Reaps whatever has ended; returns the wait status of *pid* if it is among them."""
    found = None
    try:
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if not ended:
                return found
            if ended == pid:
                found = status
    except ChildProcessError:
        return found


def main(arguments: list[str]) -> None:
    """Runs the one command and ends when everything of it has ended."""
    split = arguments.index("--")
    options = dict(zip(arguments[:split:2], arguments[1:split:2], strict=True))
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if "--hold" in options:
        os.set_inheritable(int(options["--hold"]), False)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    log = Log(options["--log"], int(options["--bytes"]))
    output, write = os.pipe()
    with contextlib.suppress(OSError):  # the system's own size will do
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        pid = start(arguments[split + 1 :], write)
    except OSError as error:
        say(f"failed {error.strerror}: {arguments[split + 1]}")
        return
    os.close(write)
    say(f"started {pid}")
    status = watch(pid, log, output)
    sweep()
    os.set_blocking(output, False)
    try:
        for _ in range(DRAIN_READS):
            data = os.read(output, PIPE_BYTES)
            if not data:
                break
            log.write(data)
    except BlockingIOError:
        pass
    say(f"signaled {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exited {os.WEXITSTATUS(status)}")


if __name__ == "__main__":
    main(sys.argv[1:])
