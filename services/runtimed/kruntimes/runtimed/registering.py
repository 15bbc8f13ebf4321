"""Registrations of functions at the Runtime Server: begun, repeated where uncertain, asked for, and given up.

No rule stands here; what may be repeated is said by the contract (executor.v1, "Semantics").
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from kruntimes.common import clock
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.views import Run
from kruntimes.common.errors import NotReady
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtimed.codes import registration_ending
from kruntimes.runtimed.decide import REGISTRATION_SECONDS
from kruntimes.runtimed.digest import registration_digest
from kruntimes.runtimed.errorinfo import info_of
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.observed import Ending, Function, FunctionState, Stage
from kruntimes.runtimed.registration import RuntimeServer

log = logging.getLogger(__name__)

FIRST_REPEAT_SECONDS, LONGEST_REPEAT_SECONDS = 0.1, 1.0
"""Between two tries of an uncertain registration or execution."""
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
        """Repeats an uncertain registration under the same attempt until it is certain, or too late."""
        wait, text = FIRST_REPEAT_SECONDS, "it cannot be reached"
        stage, ending = Stage.PREPARED, None
        try:
            while (left := held.since + REGISTRATION_SECONDS - clock.monotonic()) > 0:
                if await self.server.ready(left):
                    held.sent = True
                    try:
                        response = await self.server.register(request, timeout=left)
                    except grpc.aio.AioRpcError as error:
                        text = f"{error.code().name}: {error.details()}"
                        ending = registration_ending(error.code().name, info_of(error), error.details() or "")
                    else:
                        stage = await self._registered(held, response)
                        return
                    if ending is not None:
                        held.sent = False
                        return
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_REPEAT_SECONDS)
            limit = f"{REGISTRATION_SECONDS:.0f} s"
            ending = Ending(
                reason=Reason.RUNTIME_SERVER_FAILED,
                message=f"no answer of the Runtime Server within {limit}; the last: {text}",
            )
        except Exception as error:  # a bug of ours must end this attempt, not this process
            log.exception("registration failed", extra={"run_uid": held.epoch.run_uid})
            ending = Ending(reason=Reason.REGISTRATION_FAILED, message=type(error).__name__)
        finally:
            held.task, held.stage, held.ending = None, stage, held.ending or ending
            self.wake(held.key)

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
