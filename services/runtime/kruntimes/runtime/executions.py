"""Task executions by id: what may be started, what is known of it, when it may be forgotten (executor.v1, Runtime).

Pure: values in, decision out; `Executions` holds the current value of each execution and applies decisions.

    same id and same task      the same execution, nothing is started anew
    same id, another task      ALREADY_EXISTS
    unknown id                 NOT_FOUND; forgetting it succeeds, so that a repeated Forget does
    running                    cannot be forgotten: FAILED_PRECONDITION
    ended                      cancelling it changes nothing
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from kruntimes.runtime import bounds
from kruntimes.runtime.registry import Code, Refused

MAX_EXECUTIONS = 256
"""Running and remembered ones; each keeps up to 128 KiB of output. The oldest that ended makes room for a new one."""


class State(Enum):
    """As ExecutionState."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class Reason(Enum):
    """Why an execution ended. EXITED: with a status; SIGNALLED: by a signal that was not ours."""

    NONE = ""
    EXITED = "Exited"
    SIGNALLED = "Signalled"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"
    START_FAILED = "StartFailed"
    OUTPUTS_INVALID = "OutputsInvalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What Execute asks for, already checked. command: the program first. timeout: seconds, 0 for none."""

    id: str
    command: tuple[str, ...]
    working_dir: str
    env: tuple[tuple[str, str], ...] = ()
    timeout: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One task and what is known of it. exit_code: 128 + N where signal N ended it, as a shell tells it."""

    task: Task
    state: State = State.RUNNING
    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    reason: Reason = Reason.NONE
    message: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """The task is new and is to be started."""

    execution: Execution


class Executions:
    """Every execution that is running or not yet forgotten, oldest first."""

    def __init__(self) -> None:
        self._known: dict[str, Execution] = {}

    def execute(self, task: Task) -> Start | Execution | Refused:
        """Decides what becomes of *task*; a new one is known from now on."""
        known = self._known.get(task.id)
        if known is not None and known.task == task:
            return known
        if known is not None:
            return Refused(Code.ALREADY_EXISTS, "TaskMismatch", "the id belongs to another task")
        if len(self._known) >= MAX_EXECUTIONS and not self._make_room():
            return Refused(Code.RESOURCE_EXHAUSTED, "TooManyTasks", f"{MAX_EXECUTIONS} tasks are running")
        execution = self._known[task.id] = Execution(task=task)
        return Start(execution)

    def find(self, task_id: str) -> Execution | Refused:
        """What is known of the task *task_id*."""
        return self._known.get(task_id) or Refused(Code.NOT_FOUND, "UnknownTask", "there is no such execution")

    def all(self) -> list[Execution]:
        """Every one, oldest first."""
        return list(self._known.values())

    def forget(self, task_id: str) -> Refused | None:
        """Releases an execution that has ended."""
        known = self._known.get(task_id)
        if known is not None and known.state is State.RUNNING:
            return Refused(Code.FAILED_PRECONDITION, "TaskRunning", "the task is running; cancel it first")
        self._known.pop(task_id, None)
        return None

    def ended(self, execution: Execution) -> None:
        """Notes how it ended."""
        self._known[execution.task.id] = execution

    def _make_room(self) -> bool:
        for task_id, known in self._known.items():
            if known.state is not State.RUNNING:
                del self._known[task_id]
                return True
        return False


def conclude(
    execution: Execution,
    *,
    exit_code: int | None,
    signalled: bool,
    how: str,
    stopped: Reason,
    outputs: dict[str, str] | str,
    stdout: str,
    stderr: str,
) -> Execution:
    """The end of *execution*.

    exit_code: None where it is not known; how: in words, such as `exited with status 3`. stopped: TIMED_OUT or
    CANCELLED where we ended it. outputs: the task's, or why they cannot be used.
    """
    result = replace(
        execution, exit_code=-1 if exit_code is None else exit_code, stdout=stdout, stderr=stderr, state=State.FAILED
    )
    if stopped is Reason.TIMED_OUT:
        message = f"the task ran longer than {execution.task.timeout} s and {how}"
    elif stopped is Reason.CANCELLED:
        message = f"the task was cancelled and {how}"
    elif exit_code != 0:
        stopped, message = Reason.SIGNALLED if signalled or exit_code is None else Reason.EXITED, f"the task {how}"
    elif isinstance(outputs, str):
        stopped, message = Reason.OUTPUTS_INVALID, outputs
    else:
        return replace(result, state=State.SUCCEEDED, reason=Reason.EXITED, outputs=outputs)
    return replace(result, reason=stopped, message=bounds.head(message, bounds.MAX_MESSAGE_BYTES))


def with_output(execution: Execution, *, stdout: str, stderr: str) -> Execution:
    """*execution* with what it has printed."""
    return replace(execution, stdout=stdout, stderr=stderr)


def not_started(execution: Execution, why: str) -> Execution:
    """The end of an execution for which no process could be made."""
    message = bounds.head(f"no process could be started: {why}", bounds.MAX_MESSAGE_BYTES)
    return replace(execution, state=State.FAILED, exit_code=-1, reason=Reason.START_FAILED, message=message)
