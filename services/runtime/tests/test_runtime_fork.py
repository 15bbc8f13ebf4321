"""Isolation `Fork`: one import, a fresh fork per call, made ahead; nothing of a call reaches the next."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.runtime_process import Client, Registered, Server, alive, connect, until

from kruntimes.pb import executor_v1_pb2 as pb

MODULE = """
import os, random, signal, tempfile, threading, time
with open("imports", "a") as file: file.write("x")
PARENT = os.getpid()
def who(event): return [os.getppid(), os.getpid(), PARENT]
def dies(event): os._exit(event)
def kills_group(event): os.killpg(0, signal.SIGKILL)
def kills_parent(event): os.kill(os.getppid(), signal.SIGKILL); time.sleep(30)
def sleeps(event): time.sleep(event); return os.getpid()
def draws(event): return random.random()
def leaves(event):
    with tempfile.NamedTemporaryFile(delete=False) as file: pass
    os.mkdir(os.path.join(tempfile.gettempdir(), "folder"))
    return [os.path.dirname(file.name), len(os.listdir(os.path.dirname(file.name)))]
def gives_way(event, context):
    while not context.cancelled: time.sleep(0.005)
    return "gave way"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "main.py").write_text(MODULE)
    return tmp_path


@pytest.fixture
async def forks(python_server: Server) -> AsyncIterator[Client]:
    async with connect(python_server) as client:
        client.isolation = pb.FUNCTION_ISOLATION_FORK
        yield client


async def value(function: Registered, event: object = None) -> object:
    return json.loads(await function.output(json.dumps(event).encode()))


async def test_the_module_is_imported_once_and_each_call_has_its_own_process(forks: Client, folder: Path) -> None:
    function = await forks.register(folder, "main.who")
    called = [await value(function) for _ in range(4)]
    parents = {(parent, importer) for parent, _, importer in called}  # type: ignore[attr-defined, union-attr]
    assert len(parents) == 1
    assert len({pid for _, pid, _ in called}) == 4  # type: ignore[attr-defined, union-attr]
    assert (folder / "imports").read_text() == "x"
    assert function.warning == ""


@pytest.mark.parametrize(("handler", "says"), [("dies", "exited with status 7"), ("kills_group", "SIGKILL")])
async def test_a_call_that_dies_costs_no_import(forks: Client, folder: Path, handler: str, says: str) -> None:
    function = await forks.register(folder, f"main.{handler}")
    for _ in range(3):
        failure = await function.fails(b"7")
        assert (failure.code, failure.type) == ("UNKNOWN", "ProcessEnded")
        assert says in failure.message
    assert (folder / "imports").read_text() == "x"


async def test_a_parent_that_is_killed_is_replaced(forks: Client, folder: Path) -> None:
    function = await forks.register(folder, "main.kills_parent")
    assert "SIGKILL" in (await function.fails()).message
    assert (await function.fails(millis=2_000)).type == "ProcessEnded"


async def test_the_next_child_is_there_before_its_call(forks: Client, python_server: Server, folder: Path) -> None:
    function = await forks.register(folder, "main.sleeps")
    await until(lambda: _spares(python_server), "no child is made ahead")
    (ahead,) = _spares(python_server)
    assert await value(function, 0) == ahead
    running = asyncio.ensure_future(value(function, 0.5))
    await until(lambda: len(_spares(python_server)) == 2, "no child is made beside a call")
    assert await running != ahead
    await until(lambda: len(_spares(python_server)) == 1, "a used child stays")


async def test_a_spare_that_was_killed_is_replaced(forks: Client, python_server: Server, folder: Path) -> None:
    function = await forks.register(folder, "main.sleeps")
    await until(lambda: _spares(python_server), "no child is made ahead")
    (ahead,) = _spares(python_server)
    os.kill(ahead, signal.SIGKILL)
    await until(lambda: not alive(ahead), "it lives")
    assert await value(function, 0) != ahead


async def test_forks_draw_different_random_numbers(forks: Client, folder: Path) -> None:
    function = await forks.register(folder, "main.draws")
    assert len({await value(function) for _ in range(5)}) == 5


async def test_cancelling_reaches_the_child_and_keeps_the_parent(forks: Client, folder: Path) -> None:
    function = await forks.register(folder, "main.gives_way")
    for _ in range(3):
        failure = await function.fails(millis=200)
        assert (failure.code, failure.metadata["stage"]) == ("DEADLINE_EXCEEDED", "ask")
    assert (folder / "imports").read_text() == "x"


@pytest.mark.parametrize("isolation", [pb.FUNCTION_ISOLATION_WORKER, pb.FUNCTION_ISOLATION_FORK])
async def test_each_call_finds_its_scratch_folder_empty(
    forks: Client, python_server: Server, folder: Path, isolation: int
) -> None:
    function = await forks.register(folder, "main.leaves", isolation=isolation)
    where, count = await value(function)  # type: ignore[misc]
    assert (count, str(Path(where).parent)) == (2, str(python_server.socket.parent / "scratch"))
    assert await value(function) == [where, 2]
    await until(lambda: not os.listdir(where), "files stay after a call")
    await function.unregister()
    assert not Path(where).exists()


async def test_threads_of_the_module_are_warned_about(forks: Client, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "def handler(event): return threading.active_count()\n"
    )
    function = await forks.register(tmp_path, "main.handler")
    assert function.warning == (
        "importing the module started threads (1), which the forks that run the calls do not have"
    )  # fmt: skip
    assert await function.output() == b"1"
    warm = await forks.register(tmp_path, "main.handler", isolation=pb.FUNCTION_ISOLATION_WORKER)
    assert (warm.warning, await warm.output()) == ("", b"2")


def _spares(server: Server) -> list[int]:
    return [pid for pid in server.processes() if _comm(pid) == "kr-python-fork" and alive(pid)]


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
