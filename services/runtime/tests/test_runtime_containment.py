"""What a handler may do to the processes and sockets of its own Pod, as an ordinary user (docs/handlers.md)."""

import asyncio
import json
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.ordinary_user import needs_ordinary_user, uid
from tests.runtime_process import FUNCTIONS, Client, Server, alive, connect, until, wait_until


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Of that user, in a place that it may enter."""
    path = Path(tempfile.mkdtemp(prefix="kr-"))
    try:
        shutil.copy(FUNCTIONS / "tries" / "main.py", path)
        if os.geteuid() == 0:
            os.chown(path, uid(), uid())
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    needs_ordinary_user()
    server = Server(folder, "python", ordinary_user=True)
    try:
        yield server
        assert server.stop() == 0, server.text()[-2000:]
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with connect(server) as client:
        yield client


async def test_no_process_of_ours_can_be_read_nor_another_functions(
    client: Client, server: Server, folder: Path
) -> None:
    reads = await client.register(folder, "main.reads", env={"SECRET": "x"})
    takes = await client.register(folder, "main.takes_descriptors")
    processes = [server.process.pid, *server.processes()]
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in processes}
    assert {"kr-nursery", "kr-warden", "kr-python-host"} <= names
    tried = []
    for pid in processes:
        if pid != json.loads(await reads.output(b"0")):
            tried.append(json.loads(await reads.output(json.dumps([pid]).encode())))
        if pid != json.loads(await takes.output(b"0")):
            assert await takes.output(str(pid).encode()) == b"EPERM"
    refused = {"environ": ["EACCES"], "maps": ["EACCES"], "mem": ["EACCES"], "fd": ["EACCES"], "ptrace": ["EPERM"]}
    assert tried == [refused] * (len(processes) - 1)


async def test_the_executor_socket_is_closed_to_user_code(client: Client, server: Server, folder: Path) -> None:
    victim = await client.register(folder, "main.hidden_sockets", uid="victim")
    attacker = await client.register(folder, "main.speaks_executor")
    assert await attacker.output(json.dumps(str(server.socket)).encode()) == b"UNAVAILABLE"
    assert await victim.output(json.dumps(str(folder)).encode()) == b"[]"
    assert "connection refused" in server.text()


async def test_the_functions_socket_is_closed_to_user_code(client: Client, server: Server, folder: Path) -> None:
    victim = await client.register(folder, "main.reads")
    attacker = await client.register(folder, "main.speaks_functions")
    event = [str(server.functions_socket), victim.registration.registration_id]
    assert await attacker.output(json.dumps(event).encode()) == b""
    assert (await victim.status()).last_activity_unix_nano == 0


@pytest.mark.parametrize("runtimed_pid", [0, 1])
def test_without_the_right_pid_only_other_containers_are_served(tmp_path: Path, runtimed_pid: int) -> None:
    server = Server(tmp_path, "python", runtimed_pid=runtimed_pid)
    try:
        for path in (server.socket, server.functions_socket):
            wait_until(path.exists, "no socket")
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(20)
                wait_until(lambda stranger=stranger, path=path: not stranger.connect_ex(str(path)), "it never listens")
                assert stranger.recv(1) == b""
        wait_until(lambda: server.text().count("connection refused") == 2, "it is not logged")
        assert server.stop() == 0
        assert not server.functions_socket.exists()
        assert not server.socket.exists()
    finally:
        server.process.kill()
        server.process.wait()


async def test_scratch_folders_are_shared_by_the_functions_of_one_user_and_by_nobody_else(
    client: Client, folder: Path
) -> None:
    writes = await client.register(folder, "main.keeps_open", env={"SECRET": "of mine"})
    sees = await client.register(folder, "main.sees")
    running = asyncio.ensure_future(writes.output(json.dumps(str(folder)).encode()))
    note = folder / "where"
    await until(note.exists, "the call has written")
    path = note.read_text()
    assert (await sees.output(json.dumps(path).encode())).startswith(b"did it"), "documented as what one Pod shares"
    for part in (Path(path), *Path(path).parents):
        if part == folder:
            break
        mode = part.stat()
        assert (mode.st_mode & 0o077, mode.st_uid) == (0, uid())
    (folder / "done").touch()
    await running
    assert await sees.output(json.dumps(path).encode()) == b"ENOENT", "nothing of a call is left for a later one"


async def test_what_one_pod_shares(client: Client, server: Server, folder: Path) -> None:
    """Signals and files between functions of one user are the kernel's to allow, and documented as shared."""
    signals = await client.register(folder, "main.signals")
    assert json.loads(await signals.output(json.dumps([server.process.pid]).encode()))[0].startswith("did it")
    assert json.loads(await signals.output(b"[1]"))[0] == "EPERM"
    await until(lambda: alive(server.process.pid), "a signal that is ignored ended the server")
