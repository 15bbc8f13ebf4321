"""Task executions over executor.v1, with real programs: every end, every bound, nothing left behind."""

import asyncio
import itertools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from tests.runtime_process import (
    PATIENCE_SECONDS,
    Client,
    Failure,
    Server,
    alive,
    connect,
    failure_of,
    until,
)

from kruntimes.pb import executor_v1_pb2 as pb

RUNNING, SUCCEEDED, FAILED = pb.EXECUTION_STATE_RUNNING, pb.EXECUTION_STATE_SUCCEEDED, pb.EXECUTION_STATE_FAILED
_ids = itertools.count(1)


class Tasks:
    """`Runtime` as runtimed would use it, with programs in *folder*."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.stub = client.runtime
        self.folder = folder

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(mode)

    async def execute(self, entrypoint: str, *args: str, task_id: str = "", **more: Any) -> str:
        task_id = task_id or f"task-{next(_ids)}"
        request = pb.ExecuteRequest(
            id=task_id, entrypoint=entrypoint, args=args, **{"working_dir": str(self.folder), **more}
        )
        return str((await self.stub.Execute(request)).id)

    async def status(self, task_id: str) -> pb.StatusResponse:
        return await self.stub.Status(pb.StatusRequest(id=task_id))  # type: ignore[no-any-return]

    async def when(self, task_id: str, condition: Callable[[pb.StatusResponse], bool]) -> pb.StatusResponse:
        give_up = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not condition(status := await self.status(task_id)):
            assert asyncio.get_running_loop().time() < give_up, status
            await asyncio.sleep(0.01)
        return status

    async def end(self, task_id: str) -> pb.StatusResponse:
        return await self.when(task_id, lambda status: status.state != RUNNING)

    async def run(self, entrypoint: str, *args: str, **more: Any) -> pb.StatusResponse:
        return await self.end(await self.execute(entrypoint, *args, **more))

    async def refusal(self, call: Any) -> Failure:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        return failure_of(error.value)


@pytest.fixture
async def tasks(python: Client, tmp_path: Path) -> Tasks:
    return Tasks(python, tmp_path)


async def test_a_python_task_with_arguments_environment_streams_and_outputs(tasks: Tasks) -> None:
    tasks.write("main.py", (
        "import os, sys\n"
        "print(sys.argv[1:], os.environ['NAME'], os.environ['FROM_THE_CONTAINER'], os.getcwd())\n"
        "print(sorted(k for k in os.environ if k.startswith('KRUNTIMES_')), file=sys.stderr)\n"
        "open(os.environ['KR_OUTPUTS'], 'a').write('rows=3\\nurl=a=b\\n')\n"
    ))  # fmt: skip
    status = await tasks.run("main.py", "one", "two words", "'\";$(x)", env={"NAME": "grüße"})
    assert (status.state, status.exit_code, status.reason, status.error_message) == (SUCCEEDED, 0, "Exited", "")
    assert status.stdout == f"['one', 'two words', '\\'\";$(x)'] grüße yes {tasks.folder}\n"
    assert status.stderr == "[]\n"
    assert dict(status.outputs) == {"rows": "3", "url": "a=b"}


async def test_outputs_are_one_file_under_either_name(tasks: Tasks, tmp_path: Path) -> None:
    tasks.write("main.sh", 'echo "a=1" >> "$KRUNTIME_OUTPUTS"; echo "b=2" >> "$KR_OUTPUTS"\n')
    assert dict((await tasks.run("main.sh")).outputs) == {"a": "1", "b": "2"}
    theirs = tmp_path / "theirs"
    status = await tasks.run("main.sh", env={"KRUNTIME_OUTPUTS": str(theirs)})
    assert dict(status.outputs) == {}, "whoever names the file reads it"
    assert theirs.read_text() == "a=1\nb=2\n"


async def test_every_form_of_command(tasks: Tasks) -> None:
    tasks.write("shell.sh", 'echo "shell $1 ${BASH_VERSION:+bash}"\n')
    tasks.write("source", "import sys\nprint('own language', sys.argv[1])\n")
    tasks.write("program", '#!/bin/sh\necho "program $1"\n', 0o755)
    (tasks.folder / "sub").mkdir()
    tasks.write("sub/own.py", "#!/bin/sh\necho as it says\n", 0o755)
    assert (await tasks.run("shell.sh", "x")).stdout == "shell x bash\n"
    assert (await tasks.run("source", "x")).stdout == "own language x\n"
    assert (await tasks.run("program", "y")).stdout == "program y\n"
    assert (await tasks.run("sub/own.py")).stdout == "as it says\n"
    assert (await tasks.run("", "printf", "%s|", "a", "b c")).stdout == "a|b c|"


@pytest.mark.parametrize(
    ("script", "code", "reason", "message"),
    [
        pytest.param("exit 3", 3, "Exited", "the task exited with status 3", id="status"),
        pytest.param("kill -9 $$", 137, "Signalled", "the task was killed by signal 9 (SIGKILL)", id="signal"),
        pytest.param("echo no >> $KR_OUTPUTS", 0, "OutputsInvalid", "not of the form name=value", id="outputs"),
        pytest.param("rm $KR_OUTPUTS; mkfifo $KR_OUTPUTS", 0, "OutputsInvalid", "not a file any more", id="fifo"),
        pytest.param("ln -sf /etc/passwd $KR_OUTPUTS", 0, "OutputsInvalid", "cannot be read", id="link"),
    ],
)
async def test_ends_that_are_no_success(tasks: Tasks, script: str, code: int, reason: str, message: str) -> None:
    tasks.write("main.sh", script)
    status = await tasks.run("main.sh")
    assert (status.state, status.exit_code, status.reason) == (FAILED, code, reason)
    assert message in status.error_message
    assert not status.outputs


async def test_a_program_that_is_not_there(tasks: Tasks) -> None:
    status = await tasks.run("", "no-such-program-anywhere", env={"PATH": "/usr/bin:/bin"})
    assert (status.exit_code, status.stderr) == (127, "no-such-program-anywhere: No such file or directory\n")
    tasks.write("bad", "#!/no/such/interpreter\n", 0o755)
    assert (await tasks.run("bad")).exit_code == 127


async def test_a_timeout_ends_every_descendant(tasks: Tasks, python_server: Server) -> None:
    before = set(python_server.processes())
    tasks.write("main.sh", "trap '' TERM; setsid sleep 300 & sleep 300 & echo started; while :; do sleep 1; done")
    status = await tasks.run("main.sh", timeout_seconds=1)
    assert (status.state, status.reason, status.exit_code, status.stdout) == (FAILED, "TimedOut", 137, "started\n")
    assert status.error_message == "the task ran longer than 1 s and was killed by signal 9 (SIGKILL)"
    await until(lambda: set(python_server.processes()) <= before, "a task left processes")


async def test_a_task_that_stops_its_warden_still_times_out(tasks: Tasks, python_server: Server) -> None:
    before = set(python_server.processes())
    tasks.write("main.sh", "kill -STOP $PPID; sleep 300")
    assert (await tasks.run("main.sh", timeout_seconds=1)).reason == "TimedOut"
    await until(lambda: set(python_server.processes()) <= before, "a task left processes")


async def test_cancel_lets_a_program_clean_up(tasks: Tasks) -> None:
    tasks.write("main.sh", "trap 'echo tidied; exit 5' TERM; echo started; while :; do sleep 0.05; done")
    task = await tasks.execute("main.sh")
    await tasks.when(task, lambda status: status.stdout == "started\n")
    await tasks.stub.Cancel(pb.CancelRequest(id=task))
    await tasks.stub.Cancel(pb.CancelRequest(id=task))
    status = await tasks.end(task)
    assert (status.state, status.reason, status.exit_code, status.stdout) == (
        FAILED, "Cancelled", 5, "started\ntidied\n",
    )  # fmt: skip
    await tasks.stub.Cancel(pb.CancelRequest(id=task))
    assert (await tasks.status(task)).reason == "Cancelled"


async def test_what_outlives_its_program_is_ended_with_it(tasks: Tasks, python_server: Server) -> None:
    before = set(python_server.processes())
    tasks.write("main.sh", "setsid sleep 300 >&2 & echo done")
    status = await tasks.run("main.sh")
    assert (status.state, status.stdout) == (SUCCEEDED, "done\n")
    await until(lambda: set(python_server.processes()) <= before, "a task left processes")


async def test_a_flood_keeps_its_tail(tasks: Tasks) -> None:
    tasks.write("main.py", "print('x' * 20_000_000)\nprint('the end')\n")
    status = await tasks.run("main.py")
    assert status.state == SUCCEEDED
    assert status.stdout.startswith("[")
    assert status.stdout.endswith("xxx\nthe end\n")
    assert len(status.stdout) < 66_000


async def test_the_same_id_again_and_forgetting(tasks: Tasks) -> None:
    tasks.write("main.sh", "echo once; [ -e go ] || { touch go; sleep 300; }")
    task = await tasks.execute("main.sh", "a", task_id="uid-9/1")
    await until((tasks.folder / "go").exists, "it never began")
    assert await tasks.execute("main.sh", "a", task_id="uid-9/1") == task
    other = await tasks.refusal(tasks.execute("main.sh", "b", task_id="uid-9/1"))
    assert (other.code, other.reason) == ("ALREADY_EXISTS", "TaskMismatch")
    running = await tasks.refusal(tasks.stub.Forget(pb.ForgetRequest(id=task)))
    assert (running.code, running.reason) == ("FAILED_PRECONDITION", "TaskRunning")
    await tasks.stub.Cancel(pb.CancelRequest(id=task))
    await tasks.end(task)
    entries = (await tasks.stub.List(pb.ListRequest())).entries
    assert [(entry.state, entry.stdout) for entry in entries if entry.id == task] == [(FAILED, "")]
    await tasks.stub.Forget(pb.ForgetRequest(id=task))
    await tasks.stub.Forget(pb.ForgetRequest(id=task))
    for call in (tasks.status(task), tasks.stub.Cancel(pb.CancelRequest(id=task))):
        assert (await tasks.refusal(call)).code == "NOT_FOUND"
    assert (await tasks.run("main.sh", "a", task_id="uid-9/1")).stdout == "once\n"


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        pytest.param({"task_id": "a b"}, "id", id="id"),
        pytest.param({"entrypoint": "", "args": ()}, "entrypoint", id="nothing"),
        pytest.param({"entrypoint": "/bin/true"}, "entrypoint", id="absolute"),
        pytest.param({"entrypoint": "../x.py"}, "entrypoint", id="above"),
        pytest.param({"entrypoint": "link.py"}, "link.py", id="link-out-of-the-folder"),
        pytest.param({"entrypoint": "absent.py"}, "absent.py", id="absent"),
        pytest.param({"entrypoint": "plain.txt"}, "plain.txt", id="not-executable"),
        pytest.param({"args": ("x" * 8193,)}, "args", id="long-argument"),
        pytest.param({"args": ("x",) * 257}, "args", id="many-arguments"),
        pytest.param({"args": ("a\0b",)}, "args", id="nul"),
        pytest.param({"handler": "main.handler"}, "handler", id="handler"),
        pytest.param({"timeout_seconds": -1}, "timeout_seconds", id="negative"),
        pytest.param({"working_dir": "relative"}, "working_dir", id="relative"),
        pytest.param({"working_dir": "/does/not/exist"}, "working_dir", id="no-folder"),
        pytest.param({"env": {"A=B": ""}}, "env", id="env"),
    ],
)
async def test_bad_requests_name_the_field(tasks: Tasks, request_: dict[str, Any], names: str) -> None:
    tasks.write("main.py", "")
    tasks.write("plain.txt", "")
    (tasks.folder / "link.py").symlink_to("/etc/hostname")
    entrypoint, args = request_.pop("entrypoint", "main.py"), request_.pop("args", ())
    failure = await tasks.refusal(tasks.execute(entrypoint, *args, **request_))
    assert (failure.code, failure.reason) == ("INVALID_ARGUMENT", "InvalidTask")
    assert names in failure.message


async def test_each_task_has_a_scratch_folder_that_goes_with_it(tasks: Tasks, python_server: Server) -> None:
    tasks.write("main.sh", 'mkdir "$TMPDIR/a"; touch "$TMPDIR/a/b"; chmod 0 "$TMPDIR/a"; echo "$TMPDIR"')
    where = Path((await tasks.run("main.sh")).stdout.strip())
    assert where.parent.parent == python_server.socket.parent / "scratch"
    await until(lambda: not where.parent.exists(), "a scratch folder stays")


async def test_the_end_of_the_server_ends_its_tasks(tmp_path: Path) -> None:
    server = Server(tmp_path, "bash")
    try:
        async with connect(server) as client:
            tasks = Tasks(client, tmp_path)
            tasks.write("main.sh", "echo started; sleep 300 & wait")
            task = await tasks.execute("main.sh")
            await tasks.when(task, lambda status: status.stdout == "started\n")
            below = server.processes()
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, PATIENCE_SECONDS) == 0
        await until(lambda: not any(map(alive, below)), "processes outlive their server")
        assert not (tmp_path / "scratch").exists()
    finally:
        server.process.kill()
