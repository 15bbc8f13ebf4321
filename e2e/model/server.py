"""A Runtime Server of the model: what executor.v1 says about registrations and tasks, and answers that get lost."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import grpc
from model.store import Trouble

from kruntimes.common import clock
from kruntimes.common.errors import NotReady
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtimed.observed import Execution, ExecutionState, Function, FunctionState

START_SECONDS = 1.0
"""After a restart."""


@dataclass
class Registration:
    """One generation of a function. ready_at: loop seconds."""

    attempt: int
    digest: str
    id: str
    ready_at: float
    last_activity: float
    failed: bool = False


@dataclass
class Task:
    """One execution. ends_at: loop seconds."""

    ends_at: float
    succeeds: bool


class Server:
    """The server of one Pod, and as `RuntimeServer` and `Executor` are to runtimed. on_change: something runs anew."""

    link = None

    def __init__(self, draw: Random, trouble: Trouble, on_change: Callable[[], None]) -> None:
        self.functions: dict[str, Registration] = {}
        self.tasks: dict[str, Task] = {}
        self.up_at, self.on_back = 0.0, _nobody
        self.executor = Tasks(self)
        self._draw, self._trouble, self._on_change, self._made = draw, trouble, on_change, 0

    # ------------------------------------------------------------ what is true

    def restart(self) -> None:
        """All is lost."""
        self.functions.clear()
        self.tasks.clear()
        loop = asyncio.get_running_loop()
        self.up_at = loop.time() + self._draw.random() * START_SECONDS
        loop.call_at(self.up_at, self.on_back)

    def has(self, uid: str, attempt: int) -> bool:
        """Whether that generation is registered and ready."""
        held = self.functions.get(uid)
        return held is not None and held.attempt == attempt and not held.failed and self._ready(held)

    def runs(self, uid: str) -> bool:
        """Whether that task runs."""
        task = self.tasks.get(uid)
        return task is not None and task.ends_at > asyncio.get_running_loop().time()

    # ------------------------------------------------------------ as RuntimeServer

    async def ready(self, seconds: float = 1.0) -> bool:
        left = self.up_at - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, min(left, seconds)))
        return left <= seconds

    def offered(self, functions_socket: str) -> bool:
        return False

    async def register(self, request: pb.RegisterFunctionRequest, *, timeout: float) -> pb.RegisterFunctionResponse:
        lost = await self._called()
        uid, attempt, known = request.run_uid, request.registration_attempt, self.functions.get(request.run_uid)
        if known is not None and known.attempt > attempt:
            raise _error(grpc.StatusCode.FAILED_PRECONDITION, "a higher attempt is registered")
        if known is not None and known.attempt == attempt:
            if known.digest != request.registration_digest:
                raise _error(grpc.StatusCode.ALREADY_EXISTS, "registered otherwise")
        elif not self._trouble.peace and self._draw.random() < 0.06:
            raise _error(grpc.StatusCode.INVALID_ARGUMENT, "the handler cannot be imported")
        else:
            self._made += 1
            slow = self._draw.uniform(0.0, 3.0) if self._draw.random() < 0.2 else 0.0
            known = self.functions[uid] = Registration(
                attempt, request.registration_digest, f"r{self._made}", asyncio.get_running_loop().time() + slow,
                clock.wall(), failed=not self._trouble.peace and self._draw.random() < 0.02,
            )  # fmt: skip
        if lost:
            raise _error(grpc.StatusCode.UNAVAILABLE, "reset")
        self._on_change()
        registration = pb.FunctionRegistration(run_uid=uid, registration_id=known.id)
        ready, registering = pb.FUNCTION_REGISTRATION_STATE_READY, pb.FUNCTION_REGISTRATION_STATE_REGISTERING
        return pb.RegisterFunctionResponse(
            registration=registration, state=ready if self._ready(known) else registering
        )

    async def status(self, *, run_uid: str, registration_id: str) -> Function:
        await self._answering()
        held, now = self.functions.get(run_uid), clock.monotonic()
        if held is None or held.id != registration_id:
            return Function(state=FunctionState.FORGOTTEN, read_at=now)
        if held.failed:
            return Function(state=FunctionState.FAILED, fatal_error="told to", read_at=now)
        state = FunctionState.READY if self._ready(held) else FunctionState.REGISTERING
        return Function(state=state, last_activity=held.last_activity, read_at=now)

    async def unregister(self, *, run_uid: str, registration_id: str) -> None:
        await self._answering()
        held = self.functions.get(run_uid)
        if held is not None and registration_id in ("", held.id):
            del self.functions[run_uid]
        await self._answering()

    # ------------------------------------------------------------ as Executor

    async def execute(self, request: pb.ExecuteRequest) -> None:
        lost = await self._called()
        if request.id in self.tasks:
            raise _error(grpc.StatusCode.ALREADY_EXISTS, "known")
        seconds = self._draw.choice([0.1, 3.0, 10.0, 40.0])
        ends = asyncio.get_running_loop().time() + seconds
        self.tasks[request.id] = Task(ends, succeeds=self._trouble.peace or self._draw.random() < 0.7)
        self._on_change()
        if lost:
            raise _error(grpc.StatusCode.UNAVAILABLE, "reset")

    async def task_status(self, uid: str) -> Execution:
        await self._answering()
        task, now = self.tasks.get(uid), clock.monotonic()
        if task is None:
            return Execution(state=ExecutionState.FORGOTTEN, read_at=now)
        if self.runs(uid):
            return Execution(state=ExecutionState.RUNNING, read_at=now)
        state = ExecutionState.SUCCEEDED if task.succeeds else ExecutionState.FAILED
        return Execution(state=state, message="" if task.succeeds else "exit code 1", read_at=now)

    async def cancel(self, uid: str) -> None:
        await self._answering()
        if self.runs(uid):
            soon = asyncio.get_running_loop().time() + self._draw.random() * 5.0
            self.tasks[uid] = Task(min(soon, self.tasks[uid].ends_at), succeeds=False)

    async def forget(self, uid: str) -> None:
        await self._answering()
        if self.runs(uid):
            raise NotReady("it runs")
        self.tasks.pop(uid, None)

    async def known(self) -> frozenset[str]:
        await self._answering()
        return frozenset(self.tasks)

    # ------------------------------------------------------------ how calls go

    async def _called(self) -> bool:
        """A call that has arrived; whether its answer gets lost. Raises AioRpcError where it did not arrive."""
        await asyncio.sleep(0.001 + self._draw.random() * 0.01)
        if asyncio.get_running_loop().time() < self.up_at:
            raise _error(grpc.StatusCode.UNAVAILABLE, "away")
        return not self._trouble.peace and self._draw.random() < 0.05

    async def _answering(self) -> None:
        """A call that is answered. Raises NotReady where it is not."""
        await asyncio.sleep(0.001)
        if asyncio.get_running_loop().time() < self.up_at or (not self._trouble.peace and self._draw.random() < 0.02):
            raise NotReady("the Runtime Server is away")

    def _ready(self, held: Registration) -> bool:
        return held.ready_at <= asyncio.get_running_loop().time()


class Tasks:
    """`RuntimeServer.executor`: the same server, asked about tasks."""

    def __init__(self, server: Server) -> None:
        self.execute, self.status, self.cancel = server.execute, server.task_status, server.cancel
        self.forget, self.known = server.forget, server.known


def _nobody() -> None:
    pass


def _error(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), text)
