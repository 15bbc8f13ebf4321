"""executor.v1's `FunctionRuntime` over gRPC, and the server of both services (shell: messages in, messages out)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc.aio

from kruntimes.functions.wire.events import Progress, Result
from kruntimes.functions.wire.invocations import invocation_call
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.pb import executor_v1_pb2_grpc as rpc
from kruntimes.runtime import answers, faults, gate, replies, requests, sockets
from kruntimes.runtime.aborts import Context, abort, refuse
from kruntimes.runtime.executor import Executor
from kruntimes.runtime.manager import DRAIN_SECONDS, Limits, Manager
from kruntimes.runtime.registry import Refused, State
from kruntimes.runtime.tasks import Tasks

REGISTER_WAIT_SECONDS = 10.0
"""RegisterFunction answers REGISTERING after this; FunctionStatus tells the rest."""
ANSWER_MARGIN_SECONDS = 0.25
"""Before the caller's own deadline passes, so that it hears the answer."""
MAX_METADATA_BYTES = 32 * 1024

_STATES = {
    State.REGISTERING: pb.FUNCTION_REGISTRATION_STATE_REGISTERING,
    State.READY: pb.FUNCTION_REGISTRATION_STATE_READY,
    State.DRAINING: pb.FUNCTION_REGISTRATION_STATE_DRAINING,
    State.FAILED: pb.FUNCTION_REGISTRATION_STATE_FAILED,
}


class Functions(rpc.FunctionRuntimeServicer):
    """FunctionRuntime. kind: of the hosts, `python` or `bash`. functions_socket: offered for calls; empty for none."""

    def __init__(self, manager: Manager, kind: str, limits: Limits, functions_socket: str) -> None:
        self._manager = manager
        self._kind = kind
        self._limits = limits
        self._functions_socket = functions_socket

    async def RegisterFunction(
        self, request: pb.RegisterFunctionRequest, context: Context
    ) -> pb.RegisterFunctionResponse:
        """See the contract."""
        wanted = requests.check_registration(
            kind=self._kind, run_uid=request.run_uid, attempt=request.registration_attempt,
            digest=request.registration_digest, handler=request.handler, working_dir=request.working_dir,
            env=request.env, idle_timeout=request.idle_timeout_seconds,
            forked=request.isolation == pb.FUNCTION_ISOLATION_FORK,
        )  # fmt: skip
        if isinstance(wanted, Refused):
            await refuse(context, wanted)
        found = await self._manager.register(wanted, wait=_wait(context, REGISTER_WAIT_SECONDS))
        if isinstance(found, Refused):
            await refuse(context, found)
        return pb.RegisterFunctionResponse(
            registration=pb.FunctionRegistration(run_uid=request.run_uid, registration_id=found.id),
            state=_STATES[found.state],
            functions_socket=self._functions_socket,
            warning=found.warning,
        )

    async def FunctionStatus(self, request: pb.FunctionStatusRequest, context: Context) -> pb.FunctionStatusResponse:
        """See the contract."""
        found = self._manager.status(request.registration.run_uid, request.registration.registration_id)
        if isinstance(found, Refused):
            await refuse(context, found)
        registration, activity = found
        return pb.FunctionStatusResponse(
            registration=request.registration, state=_STATES[registration.state], in_flight=activity.in_flight,
            last_activity_unix_nano=activity.last_nanos, fatal_error=registration.fatal_error,
        )  # fmt: skip

    async def InvokeFunction(self, request: pb.InvokeFunctionRequest, context: Context) -> pb.InvokeFunctionResponse:
        """See the contract. When the caller leaves, the invocation is cancelled; its slot waits for its end."""
        calls, uid = self._manager.calls, self._manager.calls.own_id()
        call = invocation_call(
            tx=uid, registration=request.registration.registration_id, invocation_id=request.invocation_id,
            attempt=0, millis=max(0, request.timeout_millis), payload=request.input, content_type=request.content_type,
        )  # fmt: skip
        answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def told(event: Result | Progress) -> None:
            if isinstance(event, Result) and not answered.done():
                answered.set_result(event)

        refused = calls.invoke(
            call, told, invocation_id=request.invocation_id, millis=request.timeout_millis,
            run_uid=request.registration.run_uid,
        )  # fmt: skip
        if refused is not None:
            await refuse(context, refused)
        try:
            answer = replies.of_result(await answered)
        except BaseException:
            calls.cancel(uid)
            raise
        if answer.code != answers.OK:
            await abort(context, *faults.of_answer(answer))
        return pb.InvokeFunctionResponse(
            registration=request.registration, invocation_id=request.invocation_id, output=answer.body,
            content_type=answer.content_type, outputs=answer.outputs,
        )  # fmt: skip

    async def UnregisterFunction(
        self, request: pb.UnregisterFunctionRequest, context: Context
    ) -> pb.UnregisterFunctionResponse:
        """See the contract. Answers when every process of the registration is dead."""
        drain = request.drain_timeout_millis / 1000 if request.drain_timeout_millis > 0 else DRAIN_SECONDS
        await self._manager.unregister(
            request.registration.run_uid, request.registration.registration_id, cancel=request.cancel_in_flight,
            drain=min(drain, self._limits.maximum),
        )  # fmt: skip
        return pb.UnregisterFunctionResponse(registration=request.registration)


@contextlib.asynccontextmanager
async def serving(
    path: Path,
    manager: Manager,
    tasks: Tasks,
    *,
    kind: str,
    limits: Limits,
    healthy: Callable[[], bool],
    runtimed_pid: int,
    on_stranger: Callable[[], None],
    functions_socket: Path | None = None,
) -> AsyncIterator[None]:
    """Listens on the unix socket *path* while the context lasts; a socket that nobody listens on is replaced.

    functions_socket: where the functions protocol is spoken, offered to whoever registers. runtimed_pid: the only
    process that is served, 0 for those of other containers. At the end, calls that run get DRAIN_SECONDS. Raises
    OSError where the path cannot be used.
    """
    server = grpc.aio.server(
        options=[("grpc.max_metadata_size", MAX_METADATA_BYTES), ("grpc.so_reuseport", 0)],
    )
    functions = Functions(manager, kind, limits, str(functions_socket or ""))
    rpc.add_FunctionRuntimeServicer_to_server(functions, server)
    rpc.add_RuntimeServicer_to_server(Executor(tasks, kind, healthy), server)
    door = sockets.Door("executor", runtimed_pid=runtimed_pid, most=gate.MAX_CONNECTIONS, on_stranger=on_stranger)
    with gate.unnamed(path, server.add_insecure_port) as behind:
        await server.start()
        async with gate.guarding(path, door, behind) as close:
            try:
                yield
            finally:
                close()
                await server.stop(grace=DRAIN_SECONDS)


def _wait(context: Context, most: float) -> float:
    remaining = context.time_remaining()
    return most if remaining is None else max(0.0, min(most, remaining - ANSWER_MARGIN_SECONDS))
