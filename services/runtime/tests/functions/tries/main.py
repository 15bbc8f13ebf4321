"""What user code may try against the processes and sockets of its own Pod; each tells how it ended."""

import ctypes
import errno
import os
import signal
import socket
from collections.abc import Callable

PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def _told(attempt: Callable[[], object]) -> str:
    try:
        return f"did it: {str(attempt())[:40]}"
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def _attach(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0)
    libc.ptrace(PTRACE_DETACH, pid, None, None)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(64)


def reads(pids: list[int]) -> dict[str, list[str]] | int:
    """Memory, environment and descriptors of processes; for 0, which process it is itself."""
    if not pids:
        return os.getpid()
    ways: dict[str, Callable[[int], object]] = {
        "environ": lambda pid: _read(f"/proc/{pid}/environ"),
        "maps": lambda pid: _read(f"/proc/{pid}/maps"),
        "mem": lambda pid: os.open(f"/proc/{pid}/mem", os.O_RDONLY),
        "fd": lambda pid: os.listdir(f"/proc/{pid}/fd"),
        "ptrace": _attach,
    }
    return {name: [_told(lambda way=way, pid=pid: way(pid)) for pid in pids] for name, way in ways.items()}  # type: ignore[misc]


def takes_descriptors(pid: int) -> str | int:
    """pidfd_getfd, which needs no /proc; for 0, which process it is itself."""
    if not pid:
        return os.getpid()
    syscall = ctypes.CDLL(None, use_errno=True).syscall

    def attempt() -> int:
        pidfd = os.pidfd_open(pid)
        taken = int(syscall(438, pidfd, 0, 0))
        if taken < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return taken

    return _told(attempt)


def speaks_executor(path: str) -> str:
    """Registers a later attempt of another Run."""
    import grpc

    from kruntimes.pb import executor_v1_pb2 as pb
    from kruntimes.pb import executor_v1_pb2_grpc as rpc

    with grpc.insecure_channel(f"unix:{path}") as channel:
        try:
            rpc.FunctionRuntimeStub(channel).RegisterFunction(
                pb.RegisterFunctionRequest(
                    run_uid="victim", registration_attempt=2, working_dir=os.getcwd(), handler="main.reads",
                    registration_digest="0" * 64,
                ),
                timeout=10,
            )  # fmt: skip
        except grpc.RpcError as error:
            return str(error.code().name)
        return "registered"


def speaks_functions(event: list[str]) -> str:
    """Calls another function without anybody's leave."""
    path, registration = event
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        try:
            connection.sendall(
                f'FUNCTION_PAYLOAD t1 5 "{registration} timeout_ms=5000 attempt=1 inv=aQ len=4" 0x0 "s" '
                "application/json\nnull\nFUNCTION_PAYLOAD_END\n".encode()
            )
            return connection.recv(100).decode()
        except ConnectionError:
            return ""


def hidden_sockets(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


def signals(pids: list[int]) -> list[str]:
    return [_told(lambda pid=pid: os.kill(pid, signal.SIGURG)) for pid in pids]  # type: ignore[misc]


def writes(text: str) -> str:
    """Into its own scratch folder."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write(text)
    return file.name


def keeps_open(folder: str) -> str:
    """A scratch file, until the test has looked."""
    import time

    path = writes("a secret")
    with open(os.path.join(folder, "where.new"), "w") as note:
        note.write(path)
    os.rename(os.path.join(folder, "where.new"), os.path.join(folder, "where"))
    while not os.path.exists(os.path.join(folder, "done")):
        time.sleep(0.005)
    return path


def sees(path: str) -> str:
    return _told(lambda: _read(path))
