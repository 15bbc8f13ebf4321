"""Task executions: programs started, watched, stopped and remembered (shell around `executions`)."""

import asyncio
import functools
import logging
import os
import stat
from pathlib import Path

from kruntimes.common import clock
from kruntimes.runtime import bounds, executions, programs, requests, scratch
from kruntimes.runtime.executions import Execution, Executions, Reason, Start, State, Task
from kruntimes.runtime.host.task import Program
from kruntimes.runtime.hosts import Nursery
from kruntimes.runtime.ladder import TASK_LADDER
from kruntimes.runtime.logtail import LineForwarder, Lines, LogTail
from kruntimes.runtime.metrics import Metrics
from kruntimes.runtime.programs import ProgramProcess
from kruntimes.runtime.registry import Code, Refused

log = logging.getLogger(__name__)
output = logging.getLogger("kruntimes.runtime.task.output")

_OUTPUTS = "outputs"
_TEMPORARY = "tmp"


class Tasks:
    """See the module. tasks: runs what outlives a request; nursery: starts programs."""

    def __init__(self, nursery: Nursery, tasks: asyncio.TaskGroup, folders: scratch.Scratch, metrics: Metrics) -> None:
        self._nursery = nursery
        self._tasks = tasks
        self._folders = folders
        self._metrics = metrics
        self._executions = Executions()
        self._running: dict[str, _Running] = {}
        self._stopping = False

    def execute(self, task: Task) -> Execution | Refused:
        """Starts *task*, unless it was before."""
        if self._stopping:
            return Refused(Code.FAILED_PRECONDITION, "Stopping", "the Runtime Server is stopping")
        found = self._executions.execute(task)
        if not isinstance(found, Start):
            return found
        running = self._running[task.id] = _Running(found.execution)
        running.work = self._tasks.create_task(self._run(running))
        return found.execution

    def status(self, task_id: str) -> Execution | Refused:
        """What is known of it; while it runs, with what it has printed so far."""
        running = self._running.get(task_id)
        return self._executions.find(task_id) if running is None else running.seen()

    def list(self) -> list[Execution]:
        """Every execution, without its output."""
        return self._executions.all()

    def cancel(self, task_id: str) -> Refused | None:
        """Begins to stop it; one that has ended stays as it is."""
        if (running := self._running.get(task_id)) is not None:
            running.stop(Reason.CANCELLED)
            return None
        found = self._executions.find(task_id)
        return found if isinstance(found, Refused) else None

    def forget(self, task_id: str) -> Refused | None:
        """Releases one that has ended."""
        return self._executions.forget(task_id)

    @property
    def running(self) -> int:
        """How many run now."""
        return len(self._running)

    async def stop(self) -> None:
        """Stops everything; every process is dead on return, or will not die."""
        self._stopping = True
        for running in self._running.values():
            running.stop(Reason.CANCELLED)
        if work := [running.work for running in self._running.values() if running.work is not None]:
            await asyncio.wait(work)

    async def _run(self, running: "_Running") -> None:
        task = running.execution.task
        began = clock.monotonic()
        try:
            folder = await asyncio.to_thread(_prepare, self._folders, running.number)
            running.start(self._nursery, _program(task, folder))
        except OSError as error:
            result = executions.not_started(running.execution, error.strerror or str(error))
        else:
            result = await running.end(folder / _OUTPUTS)
            await asyncio.to_thread(self._folders.discard, running.number)
        del self._running[task.id]
        self._executions.ended(result)
        self._metrics.task_ended(ok=result.state is State.SUCCEEDED, reason=result.reason.value)
        log.info(
            "task ended",
            extra={
                "run_uid": task.id, "reason": result.reason.value, "code": result.exit_code,
                "seconds": round(clock.monotonic() - began, 4),
            },
        )  # fmt: skip


class _Running:
    """A task that has not ended: its process, its output, why it is being stopped."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.number = os.urandom(6).hex()
        self.work: asyncio.Task[None] | None = None
        self._process: ProgramProcess | None = None
        self._why = Reason.NONE
        self._timers: list[asyncio.TimerHandle] = []
        now = clock.monotonic()
        self._stdout, self._stderr = (
            _Stream(execution.task.id, "stdout", now),
            _Stream(execution.task.id, "stderr", now),
        )

    def start(self, nursery: Nursery, program: Program) -> None:
        """Starts the process, and the clock of its time-out. Raises OSError."""
        self._process = programs.start(nursery, program, on_stdout=self._stdout.feed, on_stderr=self._stderr.feed)
        if timeout := self.execution.task.timeout:
            self._timers.append(asyncio.get_running_loop().call_later(timeout, self.stop, Reason.TIMED_OUT))
        if self._why is not Reason.NONE:
            self._climb()

    def seen(self) -> Execution:
        """It, with what it has printed so far."""
        return executions.with_output(self.execution, stdout=self._stdout.text(), stderr=self._stderr.text())

    def stop(self, why: Reason) -> None:
        """Begins to stop it; the first reason stands."""
        if self._why is Reason.NONE:
            self._why = why
            if self._process is not None:
                self._climb()

    async def end(self, outputs: Path) -> Execution:
        """How it ended, once nothing of it is left."""
        assert self._process is not None, "a task that was not started"
        ended = await self._process.ended
        for timer in self._timers:
            timer.cancel()
        self._stdout.flush()
        self._stderr.flush()
        return executions.conclude(
            self.execution, exit_code=_exit_code(ended.status), how=str(ended), stopped=self._why,
            signalled=ended.status is not None and os.WIFSIGNALED(ended.status), outputs=_read_outputs(outputs),
            stdout=self._stdout.text(), stderr=self._stderr.text(),
        )  # fmt: skip

    def _climb(self) -> None:
        assert self._process is not None
        for step in TASK_LADDER:
            act = functools.partial(self._process.act, step.action)
            self._timers.append(asyncio.get_running_loop().call_later(step.after, act))


class _Stream:
    """One of a task's two streams: its tail for Status, its lines for the server's own log."""

    def __init__(self, task_id: str, name: str, now: float) -> None:
        self._extra: dict[str, object] = {"run_uid": task_id, "stream": name}
        self._tail = LogTail()
        self._lines = LineForwarder(now)

    def feed(self, data: bytes) -> None:
        self._tail.feed(data)
        self._forward(self._lines.feed(data, clock.monotonic()))

    def flush(self) -> None:
        self._forward(self._lines.flush())

    def text(self) -> str:
        return self._tail.text()

    def _forward(self, lines: Lines) -> None:
        if lines.suppressed:
            output.warning("task log lines suppressed", extra={**self._extra, "lines": lines.suppressed})
        for line in lines.lines:
            output.info("task log", extra={**self._extra, "line": line})


def _prepare(folders: scratch.Scratch, name: str) -> Path:
    folder = folders.make(name)
    (folder / _TEMPORARY).mkdir()
    (folder / _OUTPUTS).touch()
    return folder


def _program(task: Task, folder: Path) -> Program:
    env = requests.environment_of(task, {**os.environ, "TMPDIR": str(folder / _TEMPORARY)})
    # Whoever names a file reads it; the second name, which functions know, is of the same file.
    env["KR_OUTPUTS"] = env.setdefault("KRUNTIME_OUTPUTS", str(folder / _OUTPUTS))
    return Program(command=task.command, working_dir=task.working_dir, env=env)


def _exit_code(status: int | None) -> int | None:
    if status is None:
        return None
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _read_outputs(path: Path) -> dict[str, str] | str:
    """What the task wrote, or why it cannot be used; what it made of the file is not trusted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        return f"$KR_OUTPUTS cannot be read: {error.strerror}"
    with open(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "$KR_OUTPUTS is not a file any more"
        try:
            return bounds.parse_outputs(file.read(bounds.MAX_OUTPUTS_BYTES * 2))
        except (bounds.OutputsError, OSError) as error:
            return bounds.head(str(error), bounds.MAX_MESSAGE_BYTES)
