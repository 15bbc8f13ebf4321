"""Registrations of functions at the Runtime Server: begun, repeated where uncertain, asked for, and given up.

No rule stands here; what may be repeated is said by the contract (executor.v1, "Semantics").
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from kruntimes.common import clock
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.views import Run
from kruntimes.common.errors import NotReady
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtimed.certainty import Uncertain, ask
from kruntimes.runtimed.codes import registration_ending
from kruntimes.runtimed.decide import REGISTRATION_SECONDS
from kruntimes.runtimed.digest import registration_digest
from kruntimes.runtimed.errorinfo import info_of
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.observed import Ending, Function, FunctionState, Stage
from kruntimes.runtimed.registration import RuntimeServer

MAX_WARNING_CHARS = 1000
"""An Event's message has 1,024 bytes at most, and a server of somebody else may say anything."""
_ISOLATION = {"Worker": pb.FUNCTION_ISOLATION_WORKER, "Fork": pb.FUNCTION_ISOLATION_FORK}


@dataclass(slots=True, kw_only=True)
class Registrations:
    """Registers at *server*. tasks: for registrations, which may take seconds. wake: look at that key again."""

    server: RuntimeServer
    tasks: asyncio.TaskGroup
    wake: Callable[[str], None]

    def begin(self, run: Run, held: Held) -> None:
        """Begins to register; `held.stage` tells when that has ended."""
        held.request = request_of(run, held)
        held.stage, held.since = Stage.REGISTERING, clock.monotonic()
        held.registration_id, held.function = "", None
        held.task = self.tasks.create_task(self._registering(held, held.request))

    async def _registering(self, held: Held, request: pb.RegisterFunctionRequest) -> None:
        """Registers under the same attempt until that is certain, or too late."""

        async def send(left: float) -> Stage:
            return await self._registered(held, await self.server.register(request, timeout=left))

        async def read(error: grpc.aio.AioRpcError, text: str) -> Ending | Uncertain:
            return registration_ending(error.code().name, info_of(error), error.details() or "") or Uncertain(text)

        await ask(held, self.server, send, read, what="registration", bug=Reason.REGISTRATION_FAILED, wake=self.wake)

    async def _registered(self, held: Held, response: pb.RegisterFunctionResponse) -> Stage:
        held.registration_id = response.registration.registration_id
        held.linked = self.server.offered(response.functions_socket)
        held.warning = response.warning[:MAX_WARNING_CHARS]
        if response.state == pb.FUNCTION_REGISTRATION_STATE_READY:
            held.function = Function(state=FunctionState.READY, read_at=clock.monotonic())
        return Stage.REGISTERED  # a function that is not ready yet is asked for, as often as that takes

    async def status(self, held: Held) -> Function:
        """What the server says of it. Raises NotReady."""
        return await self.server.status(run_uid=held.epoch.run_uid, registration_id=held.registration_id)

    async def end(self, held: Held) -> None:
        """Unregisters. Raises NotReady as long as the Runtime Server has not acknowledged it; it may be repeated."""
        if held.sent and not held.registration_id and held.request is not None:
            await self._learn_id(held, held.request)
        if held.registration_id:
            await self.server.unregister(run_uid=held.epoch.run_uid, registration_id=held.registration_id)

    async def _learn_id(self, held: Held, request: pb.RegisterFunctionRequest) -> None:
        """An uncertain registration has an id that we never heard: repeated, it says it."""
        try:
            response = await self.server.register(request, timeout=REGISTRATION_SECONDS)
        except grpc.aio.AioRpcError as error:
            if registration_ending(error.code().name, info_of(error), "") is None:
                raise NotReady(f"whether the function is registered is not known: {error.code().name}") from error
            held.sent = False
        else:
            held.registration_id = response.registration.registration_id


def request_of(run: Run, held: Held) -> pb.RegisterFunctionRequest:
    """What RegisterFunction is asked for *run*: the same for every repeat, in every process of ours."""
    function = run.spec.mode.function
    assert function is not None, "only functions are registered"
    return pb.RegisterFunctionRequest(
        run_uid=held.epoch.run_uid,
        registration_attempt=held.epoch.attempt,
        working_dir=str(held.working_dir),
        handler=function.handler,
        env={variable.name: variable.value for variable in run.spec.env},
        idle_timeout_seconds=function.idle_timeout_seconds or 0,
        registration_digest=registration_digest(run),
        isolation=_ISOLATION[function.isolation],
    )
