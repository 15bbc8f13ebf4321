"""What each decision does: an API write, a call to the Runtime Server, a file, or a mark on what is held.

No rule stands here. Every effect may be repeated: a write carries its precondition, a registration its attempt and
digest, and the rest leaves things as they are when they are so already.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, assert_never

import grpc

from kruntimes.common import clock
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.views import Endpoint, Run, RunStatus
from kruntimes.common.errors import NotReady, Terminal
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.events import Recorder, run_ref
from kruntimes.common.kube.transport import Kube
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtimed import decide as d
from kruntimes.runtimed import source, status
from kruntimes.runtimed.codes import registration_ending
from kruntimes.runtimed.digest import registration_digest
from kruntimes.runtimed.dispatch import Dispatcher
from kruntimes.runtimed.errorinfo import info_of
from kruntimes.runtimed.held import Held, Registry
from kruntimes.runtimed.observed import Ending, Function, FunctionState, Stage
from kruntimes.runtimed.registration import RuntimeServer

T = TypeVar("T")
log = logging.getLogger(__name__)

FIRST_REPEAT_SECONDS, LONGEST_REPEAT_SECONDS = 0.1, 1.0
"""Between two tries of an uncertain registration."""
WRITE_SECONDS = 10.0
"""One API write; the next try starts from what is there then."""

_ISOLATION = {"Worker": pb.FUNCTION_ISOLATION_WORKER, "Fork": pb.FUNCTION_ISOLATION_FORK}


@dataclass(slots=True, kw_only=True)
class Effects:
    """Carries out decisions. tasks: for registrations, which may take seconds. wake: look at that key again.

    fresh: the newest version of each Run that one of our writes returned, by key; the watch brings it a little later.
    """

    kube: Kube
    server: RuntimeServer
    registry: Registry
    dispatcher: Dispatcher
    recorder: Recorder
    workspace: Path
    endpoint: Callable[[Run], Endpoint]
    tasks: asyncio.TaskGroup
    wake: Callable[[str], None]
    fresh: dict[str, Run] = field(default_factory=dict)

    async def carry_out(self, decision: d.Decision, run: Run | None, held: Held | None) -> None:
        """Does what *decision* says, once."""
        match decision:
            case d.Wait():
                pass
            case d.Claim():
                run = _given(run)
                await self._write(run, status.claimed(run, now=clock.utcnow()))
                log.info("run claimed", extra=_extra(run) | {"attempt": run.status.attempt + 1})
            case d.AddFinalizer():
                await self._add_finalizer(_given(run))
            case d.Prepare(epoch):
                await self._prepare(_given(run), held, epoch)
            case d.Register():
                self._register(_given(run), _given(held))
            case d.Poll():
                held = _given(held)
                held.function = await self._status(held)
            case d.Publish():
                run = _given(run)
                await self._write(run, status.published(run, self.endpoint(run), now=clock.utcnow()))
                log.info("function ready", extra=_extra(run))
            case d.Reopen():
                run = _given(run)
                await self._write(run, status.reopened(run, now=clock.utcnow()))
                log.warning("registration forgotten by the runtime server", extra=_extra(run))
            case d.Announce():
                run = _given(run)
                await self._write(run, status.announced(run, now=clock.utcnow()))
            case d.Close(ending):
                held = _given(held)
                held.open, held.closed_at = False, clock.monotonic()
                held.ending = held.ending or ending
            case d.CancelInFlight():
                held = _given(held)
                held.cancelled_at = clock.monotonic()
                self.dispatcher.cancel_all(held.epoch.run_uid)
            case d.Unregister():
                await self._unregister(_given(held))
            case d.RemoveFinalizer():
                run = _given(run)
                self._keep(run, await self._patch(run, status.finalizer_removed(run)))
            case d.Finish():
                run = _given(run)
                await self._write(run, status.finished(run, decision, now=clock.utcnow()))
                self._say(run, decision)
            case d.Forget():
                self.registry.drop(_given(held))
            case _:
                assert_never(decision)

    async def _write(self, run: Run, new: RunStatus) -> None:
        self._keep(run, await self._patch(run, status.patch(run, new), sub="status"))

    async def _patch(self, run: Run, ops: list[status.Op], *, sub: str | None = None) -> Run | None:
        """The Run as it is after the write; None where it is gone. Raises Conflict where it was not as seen."""
        path = paths.runs(run.metadata.namespace, run.metadata.name, sub)
        try:
            return await self.kube.patch_json(path, ops, Run, timeout=WRITE_SECONDS)
        except errors.Missing:
            return None

    def _keep(self, run: Run, written: Run | None) -> None:
        if written is not None:
            self.fresh[run.metadata.key] = written
        else:
            self.fresh.pop(run.metadata.key, None)

    async def _add_finalizer(self, run: Run) -> None:
        try:
            written = await self._patch(run, status.finalizer_added(run))
        except (errors.Invalid, errors.Forbidden):
            # Refused on an object that is being deleted: never register it. Anything else is refused again.
            written = await self.kube.get(paths.runs(run.metadata.namespace, run.metadata.name), Run)
            if not written.metadata.deleting:
                raise
        self._keep(run, written)

    async def _prepare(self, run: Run, held: Held | None, epoch: Epoch) -> None:
        if held is None:
            held = Held(key=run.metadata.key, epoch=epoch, since=clock.monotonic())
            self.registry.put(held)
        try:
            held.working_dir = await asyncio.to_thread(
                source.materialise,
                self.workspace,
                uid=epoch.run_uid,
                attempt=epoch.attempt,
                source=run.spec.source,
            )
        except Terminal as error:
            held.ending = Ending(reason=Reason.SOURCE_FAILED, message=str(error))
            return
        except NotReady as error:
            if clock.monotonic() - held.since < d.REGISTRATION_SECONDS:
                raise
            held.ending = Ending(reason=Reason.SOURCE_FAILED, message=str(error))
            return
        held.stage = Stage.PREPARED

    def _register(self, run: Run, held: Held) -> None:
        function = run.spec.mode.function
        assert function is not None, "only functions are registered"
        held.request = pb.RegisterFunctionRequest(
            run_uid=held.epoch.run_uid,
            registration_attempt=held.epoch.attempt,
            working_dir=str(held.working_dir),
            handler=function.handler,
            env={variable.name: variable.value for variable in run.spec.env},
            idle_timeout_seconds=function.idle_timeout_seconds or 0,
            registration_digest=registration_digest(run),
            isolation=_ISOLATION[function.isolation],
        )
        held.stage, held.since = Stage.REGISTERING, clock.monotonic()
        held.registration_id, held.function = "", None
        held.task = self.tasks.create_task(self._registering(held, held.request))

    async def _registering(self, held: Held, request: pb.RegisterFunctionRequest) -> None:
        """Repeats an uncertain registration under the same attempt until it is certain, or too late."""
        wait, text = FIRST_REPEAT_SECONDS, "it cannot be reached"
        stage, ending = Stage.PREPARED, None
        try:
            while (left := held.since + d.REGISTRATION_SECONDS - clock.monotonic()) > 0:
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
            limit = f"{d.REGISTRATION_SECONDS:.0f} s"
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
        if response.state == pb.FUNCTION_REGISTRATION_STATE_READY:
            held.function = Function(state=FunctionState.READY, read_at=clock.monotonic())
        else:
            held.function = await self._status(held)
        return Stage.REGISTERED

    async def _status(self, held: Held) -> Function:
        return await self.server.status(run_uid=held.epoch.run_uid, registration_id=held.registration_id)

    async def _unregister(self, held: Held) -> None:
        """Raises NotReady as long as the Runtime Server has not acknowledged; then nothing of the epoch is left."""
        if held.task is not None:
            held.task.cancel()
            await asyncio.wait((held.task,))
        if held.sent and not held.registration_id and held.request is not None:
            await self._learn_id(held, held.request)
        if held.registration_id:
            await self.server.unregister(run_uid=held.epoch.run_uid, registration_id=held.registration_id)
        epoch = held.epoch
        await asyncio.to_thread(source.remove, self.workspace, uid=epoch.run_uid, attempt=epoch.attempt)
        held.stage = Stage.RELEASED
        log.info("function unregistered", extra={"run_uid": epoch.run_uid, "attempt": epoch.attempt})

    async def _learn_id(self, held: Held, request: pb.RegisterFunctionRequest) -> None:
        """An uncertain registration has an id that we never heard: repeated, it says it."""
        try:
            response = await self.server.register(request, timeout=d.REGISTRATION_SECONDS)
        except grpc.aio.AioRpcError as error:
            if registration_ending(error.code().name, info_of(error), "") is None:
                raise NotReady(f"whether the function is registered is not known: {error.code().name}") from error
            held.sent = False
        else:
            held.registration_id = response.registration.registration_id

    def _say(self, run: Run, end: d.Finish) -> None:
        extra = _extra(run) | {"phase": end.phase.value, "reason": end.reason.value}
        log.info("assignment ended", extra=extra)
        kind = "Normal" if end.reason in (Reason.CANCELLED, Reason.IDLE_TIMEOUT) else "Warning"
        self.tasks.create_task(
            self.recorder.event(run_ref(run.metadata), type=kind, reason=end.reason.value, message=end.message)
        )


def _given(value: T | None) -> T:
    assert value is not None, "the decision speaks of something that was observed"
    return value


def _extra(run: Run) -> dict[str, object]:
    return {
        "runtime": f"{run.metadata.namespace}/{run.spec.runtime}",
        "run_uid": run.metadata.uid,
        "attempt": run.status.attempt,
    }
