"""A Runtime Server for faults: real gRPC on a real unix socket, and switches for what may go wrong.

What an invocation does is its input: `echo`, `hang` (until released or cancelled), `raise`, `busy`, `crash` (the
connection is cut), `deadline`, `limit`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.pb import executor_v1_pb2_grpc as rpc
from kruntimes.runtimed.errorinfo import trailing
from kruntimes.runtimed.registration import OPTIONS

READY = pb.FUNCTION_REGISTRATION_STATE_READY


@dataclass
class Stub(rpc.FunctionRuntimeServicer, rpc.RuntimeServicer):
    """functions: registration id by Run UID. Counts what it is asked.

    linger: set, cancelled work goes on until `release` is set. register: what the next registrations meet, first to
    last: a status code, or `lose` (registered, but the answer is lost). answer: what its answers say otherwise.
    tasks: executions by id, which run until a test says otherwise (`finish`); execute: as register, for Execute.
    stubborn: a cancelled task goes on. faults: what the next calls of FunctionStatus and Cancel meet, by their name.
    warning: of every registration.
    """

    functions: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    linger: bool = False
    release: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    register: list[str] = field(default_factory=list)
    state: int = READY
    fatal_error: str = ""
    last_activity: float = 0.0
    answer: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, pb.StatusResponse] = field(default_factory=dict)
    execute: list[str] = field(default_factory=list)
    stubborn: bool = False
    faults: dict[str, list[str]] = field(default_factory=dict)
    warning: str = ""

    async def Health(self, request: Any, context: Any) -> pb.HealthResponse:
        return pb.HealthResponse(healthy=True)

    async def RegisterFunction(self, request: pb.RegisterFunctionRequest, context: Any) -> pb.RegisterFunctionResponse:
        self.calls.append(("register", request))
        fault = self.register.pop(0) if self.register else ""
        if fault and fault != "lose":
            await context.abort(grpc.StatusCode[fault], f"told to answer {fault}")
        known = self.functions.setdefault(request.run_uid, f"{request.run_uid}/{request.registration_attempt}")
        if fault == "lose":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        registration = pb.FunctionRegistration(run_uid=request.run_uid, registration_id=known)
        return pb.RegisterFunctionResponse(registration=registration, state=self.state, warning=self.warning)

    async def _known(self, registration: pb.FunctionRegistration, context: Any) -> None:
        if self.functions.get(registration.run_uid) != registration.registration_id:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown registration")

    async def FunctionStatus(self, request: pb.FunctionStatusRequest, context: Any) -> pb.FunctionStatusResponse:
        self.calls.append(("status", request))
        await self._fault("status", context)
        await self._known(request.registration, context)
        return pb.FunctionStatusResponse(
            registration=request.registration,
            state=self.state,
            in_flight=self.in_flight,
            fatal_error=self.fatal_error,
            last_activity_unix_nano=int(self.last_activity * 1e9),
        )

    async def InvokeFunction(self, request: pb.InvokeFunctionRequest, context: Any) -> pb.InvokeFunctionResponse:
        self.calls.append(("invoke", request))
        await self._known(request.registration, context)
        if self.in_flight:
            await _fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "InFlight", {})
        self.in_flight += 1
        self.started.set()
        work = asyncio.ensure_future(self._run(request, context))
        work.add_done_callback(lambda _: self._ended())
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if not self.linger:
                work.cancel()
            raise

    def _ended(self) -> None:
        self.in_flight -= 1

    async def _run(self, request: pb.InvokeFunctionRequest, context: Any) -> pb.InvokeFunctionResponse:
        match request.input:
            case b"hang":
                await self.release.wait()
            case b"raise":
                details = {"type": "ValueError", "message": "bad", "traceback": "t" * 9000}
                await _fail(context, grpc.StatusCode.UNKNOWN, "FunctionError", details)
            case b"busy":
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "a foreign server is busy")
            case b"deadline":
                await _fail(context, grpc.StatusCode.DEADLINE_EXCEEDED, "DeadlineExceeded", {})
            case b"input":
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not JSON")
        answer = {"output": request.input, "content_type": request.content_type, "outputs": {"k": "v"}} | self.answer
        return pb.InvokeFunctionResponse(
            registration=request.registration, invocation_id=request.invocation_id, **answer
        )

    async def UnregisterFunction(
        self, request: pb.UnregisterFunctionRequest, context: Any
    ) -> pb.UnregisterFunctionResponse:
        self.calls.append(("unregister", request))
        if self.functions.get(request.registration.run_uid) == request.registration.registration_id or (
            not request.registration.registration_id and request.registration.run_uid in self.functions
        ):
            del self.functions[request.registration.run_uid]
        return pb.UnregisterFunctionResponse(registration=request.registration)

    async def Execute(self, request: pb.ExecuteRequest, context: Any) -> pb.ExecuteResponse:
        self.calls.append(("execute", request))
        fault = self.execute.pop(0) if self.execute else ""
        if fault and fault != "lose":
            await context.abort(grpc.StatusCode[fault], f"told to answer {fault}")
        if request.id in self.tasks and request != self._first(request.id):
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "another task")
        self.tasks.setdefault(request.id, pb.StatusResponse(id=request.id, state=pb.EXECUTION_STATE_RUNNING))
        if fault == "lose":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        return pb.ExecuteResponse(id=request.id)

    def _first(self, id: str) -> Any:
        """The request that began what runs under *id*."""
        same = [request for name, request in self.calls[:-1] if name in ("execute", "forget") and request.id == id]
        after = max((n for n, request in enumerate(same) if isinstance(request, pb.ForgetRequest)), default=-1)
        return same[after + 1]

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        self.calls.append(("task status", request))
        if request.id not in self.tasks:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such execution")
        return self.tasks[request.id]

    async def List(self, request: pb.ListRequest, context: Any) -> pb.ListResponse:
        return pb.ListResponse(entries=self.tasks.values())

    async def Cancel(self, request: pb.CancelRequest, context: Any) -> pb.CancelResponse:
        self.calls.append(("cancel", request))
        await self._fault("cancel", context)
        if request.id not in self.tasks:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such execution")
        if self.tasks[request.id].state == pb.EXECUTION_STATE_RUNNING and not self.stubborn:
            self.finish(request.id, exit_code=143, message="the task was cancelled")
        return pb.CancelResponse()

    async def Forget(self, request: pb.ForgetRequest, context: Any) -> pb.ForgetResponse:
        self.calls.append(("forget", request))
        known = self.tasks.get(request.id)
        if known is not None and known.state == pb.EXECUTION_STATE_RUNNING:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "it runs")
        self.tasks.pop(request.id, None)
        return pb.ForgetResponse()

    async def _fault(self, name: str, context: Any) -> None:
        if left := self.faults.get(name):
            await context.abort(grpc.StatusCode[left.pop(0)], "told to fail")

    def finish(self, id: str, *, exit_code: int = 0, message: str = "") -> None:
        """Ends the task *id*."""
        state = pb.EXECUTION_STATE_FAILED if exit_code else pb.EXECUTION_STATE_SUCCEEDED
        self.tasks[id] = pb.StatusResponse(id=id, state=state, exit_code=exit_code, error_message=message)

    def count(self, kind: str) -> int:
        """How often it was asked that."""
        return sum(1 for name, _ in self.calls if name == kind)

    def last(self, kind: str) -> Any:
        """The latest request of that kind."""
        return next(request for name, request in reversed(self.calls) if name == kind)


async def _fail(context: Any, code: grpc.StatusCode, reason: str, metadata: dict[str, str]) -> None:
    await context.abort(code, reason, (trailing(code=code, message=reason, reason=reason, metadata=metadata),))


@asynccontextmanager
async def serving(stub: Stub, socket: Path) -> AsyncIterator[grpc.aio.Server]:
    """*stub* on *socket*; `await server.stop(0)` cuts every connection."""
    server = grpc.aio.server(options=OPTIONS)
    rpc.add_FunctionRuntimeServicer_to_server(stub, server)
    rpc.add_RuntimeServicer_to_server(stub, server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


async def until(condition: Any, *, seconds: float = 10.0, what: str = "") -> None:
    """Waits until *condition()* holds; fails after *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what or condition}") from None
