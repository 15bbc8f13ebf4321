"""executor.v1's `Runtime` over gRPC: task executions and Health (shell: messages in, messages out)."""

from collections.abc import Callable

from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.pb import executor_v1_pb2_grpc as rpc
from kruntimes.runtime import requests
from kruntimes.runtime.aborts import Context, refuse
from kruntimes.runtime.executions import Execution, State
from kruntimes.runtime.registry import Refused
from kruntimes.runtime.tasks import Tasks

_STATES = {
    State.RUNNING: pb.EXECUTION_STATE_RUNNING,
    State.SUCCEEDED: pb.EXECUTION_STATE_SUCCEEDED,
    State.FAILED: pb.EXECUTION_STATE_FAILED,
}


class Executor(rpc.RuntimeServicer):
    """Runtime. kind: of the hosts, `python` or `bash`. healthy: whether processes can be started."""

    def __init__(self, tasks: Tasks, kind: str, healthy: Callable[[], bool]) -> None:
        self._kind = kind
        self._tasks = tasks
        self._healthy = healthy

    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> pb.ExecuteResponse:
        """Starts a task and answers at once; the same id with the same task again is the same execution."""
        task = requests.check_task(
            kind=self._kind, task_id=request.id, entrypoint=request.entrypoint, args=request.args,
            working_dir=request.working_dir, env=request.env, handler=request.handler, timeout=request.timeout_seconds,
        )  # fmt: skip
        if isinstance(task, Refused):
            await refuse(context, task)
        found = self._tasks.execute(task)
        if isinstance(found, Refused):
            await refuse(context, found)
        return pb.ExecuteResponse(id=request.id)

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        """State and output; of each stream the last 64 KiB."""
        found = self._tasks.status(request.id)
        if isinstance(found, Refused):
            await refuse(context, found)
        return _status(found, stdout=found.stdout, stderr=found.stderr)

    async def List(self, request: pb.ListRequest, context: Context) -> pb.ListResponse:
        """Every execution that was not forgotten, without its output: all of that would pass a message's size."""
        return pb.ListResponse(entries=[_status(execution) for execution in self._tasks.list()])

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        """SIGTERM to all that belongs to the task, SIGKILL 5 s later; Status tells when it has ended."""
        if (refused := self._tasks.cancel(request.id)) is not None:
            await refuse(context, refused)
        return pb.CancelResponse()

    async def Forget(self, request: pb.ForgetRequest, context: Context) -> pb.ForgetResponse:
        """See the contract."""
        if (refused := self._tasks.forget(request.id)) is not None:
            await refuse(context, refused)
        return pb.ForgetResponse()

    async def Health(self, request: pb.HealthRequest, context: Context) -> pb.HealthResponse:
        """Whether tasks and functions can be started."""
        good = self._healthy()
        return pb.HealthResponse(healthy=good, message="" if good else "no host process can be started")


def _status(execution: Execution, *, stdout: str = "", stderr: str = "") -> pb.StatusResponse:
    return pb.StatusResponse(
        id=execution.task.id, state=_STATES[execution.state], exit_code=execution.exit_code, stdout=stdout,
        stderr=stderr, error_message=execution.message, reason=execution.reason.value, outputs=execution.outputs,
    )  # fmt: skip
