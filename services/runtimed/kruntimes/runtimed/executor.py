"""The client of the Runtime Server's one-shot half, service Runtime: tasks by Run UID (executor.v1).

Every call answers from memory and may be repeated: Execute with the same request starts nothing anew, Cancel and
Forget of what is not there succeed.
"""

from collections.abc import Awaitable

import grpc

from kruntimes.common import clock
from kruntimes.common.errors import NotReady
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.pb import executor_v1_pb2_grpc as rpc
from kruntimes.runtimed.codes import MESSAGE_CHARS, describe
from kruntimes.runtimed.errorinfo import info_of
from kruntimes.runtimed.observed import Execution, ExecutionState

CALL_SECONDS = 5.0
"""Any of these calls, which wait for nothing."""

_STATES = {
    pb.EXECUTION_STATE_PENDING: ExecutionState.RUNNING,
    pb.EXECUTION_STATE_RUNNING: ExecutionState.RUNNING,
    pb.EXECUTION_STATE_SUCCEEDED: ExecutionState.SUCCEEDED,
}


class Executor:
    """Tasks of one Runtime Server, over the channel of `RuntimeServer`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: rpc.RuntimeAsyncStub = rpc.RuntimeStub(channel)

    async def execute(self, request: pb.ExecuteRequest) -> None:
        """One Execute. Raises AioRpcError; an uncertain one may be repeated with the same request."""
        await self._stub.Execute(request, timeout=CALL_SECONDS)

    async def status(self, run_uid: str) -> Execution:
        """One Status, with the outputs that a server of ours has read. Raises NotReady where there was no answer."""
        try:
            answer: pb.StatusResponse = await self._stub.Status(pb.StatusRequest(id=run_uid), timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return Execution(state=ExecutionState.FORGOTTEN, read_at=clock.monotonic())
            raise _not_ready("gave no status of the task", error) from error
        return Execution(
            state=_STATES.get(answer.state, ExecutionState.FAILED),
            message=_message(answer),
            outputs=dict(answer.outputs),
            read_at=clock.monotonic(),
        )

    async def cancel(self, run_uid: str) -> None:
        """One Cancel; Status tells when it has taken effect. Raises NotReady where that is not known."""
        await self._settle(self._stub.Cancel(pb.CancelRequest(id=run_uid), timeout=CALL_SECONDS), "did not cancel")

    async def forget(self, run_uid: str) -> None:
        """One Forget. Raises NotReady where the server did not, as for a task that still runs."""
        await self._settle(self._stub.Forget(pb.ForgetRequest(id=run_uid), timeout=CALL_SECONDS), "did not forget")

    async def known(self) -> frozenset[str]:
        """The ids of all tasks that the server knows; none where it runs no tasks. Raises NotReady."""
        try:
            answer: pb.ListResponse = await self._stub.List(pb.ListRequest(), timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return frozenset()
            raise _not_ready("did not list its tasks", error) from error
        return frozenset(entry.id for entry in answer.entries)

    async def _settle(self, call: Awaitable[object], failed: str) -> None:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED):
                raise _not_ready(f"{failed} the task", error) from error


def _not_ready(what: str, error: grpc.aio.AioRpcError) -> NotReady:
    return NotReady(
        f"the Runtime Server {what}: {error.code().name}: {describe(info_of(error), error.details() or '')}"
    )


def _message(answer: pb.StatusResponse) -> str:
    """Why it failed, in the server's words or with its exit code; what it printed is no part of this."""
    text = answer.error_message or (f"the task ended with exit code {answer.exit_code}" if answer.exit_code else "")
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"
