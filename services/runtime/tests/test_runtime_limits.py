"""What one function may use: a limit that is passed ends the function's processes, and nobody else's."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.runtime_process import Client, Server, connect

from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtime.proc.limits import HostLimits

OPTIONS = ("--memory-mib", "150", "--processes", "20", "--open-files", "300", "--calls", "3",
           "--recycle-mib", "100")  # fmt: skip
HANDLERS = """
import os, resource, subprocess, sys, time
def eats(event):
    kept = bytearray(event << 20)
    time.sleep(20 if event > 150 else 0)
    return len(kept)
def eats_in_a_child(event):
    code = "import time; kept = bytearray(200 << 20); time.sleep(20)"
    return subprocess.run([sys.executable, "-S", "-c", code]).returncode
def multiplies(event):
    for _ in range(event): subprocess.Popen(["sleep", "20"])
    time.sleep(20 if event > 20 else 0)
    return event
def opens(event):
    return [os.open("/dev/null", os.O_RDONLY) for _ in range(event)][-1] > 0
def told(event):
    return [resource.getrlimit(resource.RLIMIT_CORE), os.getpid()]
"""


@pytest.fixture
async def limited(tmp_path: Path) -> AsyncIterator[Client]:
    (tmp_path / "main.py").write_text(HANDLERS)
    server = Server(tmp_path, "python", options=OPTIONS)
    try:
        async with connect(server) as client:
            yield client
        assert server.stop() == 0, server.text()[-2000:]
    finally:
        server.process.kill()
        server.process.wait()


@pytest.mark.parametrize("isolation", [pb.FUNCTION_ISOLATION_WORKER, pb.FUNCTION_ISOLATION_FORK])
async def test_memory_and_processes(limited: Client, tmp_path: Path, isolation: int) -> None:
    other = await limited.register(tmp_path, "main.told", isolation=isolation)
    for handler, within, beyond, says in [
        ("eats", b"20", b"200", "MiB of memory, at most 150 MiB are allowed"),
        ("multiplies", b"5", b"40", "processes, at most 20 are allowed"),
        ("eats_in_a_child", None, b"0", "MiB of memory, at most 150 MiB are allowed"),
    ]:
        function = await limited.register(tmp_path, f"main.{handler}", isolation=isolation)
        failure = await function.fails(beyond, millis=15_000)
        assert (failure.code, failure.type) == ("UNKNOWN", "ProcessEnded")
        assert says in failure.message
        if within is not None:
            await function.invoke(within)
    assert json.loads(await other.output())[0] == [0, 0]


async def test_open_files_and_replacement_after_so_many_calls(limited: Client, tmp_path: Path) -> None:
    opens = await limited.register(tmp_path, "main.opens")
    assert await opens.output(b"200") == b"true"
    assert (await opens.fails(b"200")).type == "OSError"
    told = await limited.register(tmp_path, "main.told")
    pids = [json.loads(await told.output())[1] for _ in range(7)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]


async def test_a_warm_process_that_holds_too_much_is_replaced(limited: Client, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import os\nkept = []\n\ndef handler(event):\n    kept.extend(bytes(16384) for _ in range(event))\n"
        "    return os.getpid()\n"
    )
    function = await limited.register(tmp_path, "main.handler")
    first = await function.output(b"7000")  # 110 MiB
    assert await function.output(b"0") == first, "the call that is told first is served as usual"
    assert await function.output(b"0") != first


async def test_a_task_has_the_same_limits(limited: Client, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("import time\nkept = bytearray(200 << 20)\ntime.sleep(20)\n")
    await limited.runtime.Execute(pb.ExecuteRequest(id="t", entrypoint="task.py", working_dir=str(tmp_path)))
    statuses: list[pb.StatusResponse] = []
    while not statuses or statuses[-1].state == pb.EXECUTION_STATE_RUNNING:
        statuses.append(await limited.runtime.Status(pb.StatusRequest(id="t")))
    assert statuses[-1].reason == "Signalled"
    assert "at most 150 MiB are allowed" in statuses[-1].error_message


def test_too_few_descriptors_are_refused(tmp_path: Path) -> None:
    server = Server(tmp_path, "python", options=("--open-files", "100"))
    assert server.process.wait(30) == 2
    assert "--open-files must be 0 or at least 256" in server.text()


@pytest.mark.parametrize(
    ("memory", "processes", "says"),
    [
        pytest.param(100 << 20, 3, "", id="at-the-limit"),
        pytest.param(101 << 20, 3, "used 101 MiB of memory, at most 100 MiB are allowed", id="memory"),
        pytest.param(0, 4, "had 4 processes, at most 3 are allowed", id="processes"),
    ],
)
def test_which_limit_is_passed(memory: int, processes: int, says: str) -> None:
    assert HostLimits(memory=100 << 20, processes=3).exceeded(memory=memory, processes=processes) == says
    assert HostLimits().exceeded(memory=memory, processes=processes) == ""
