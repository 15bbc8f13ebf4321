"""What each decision does: an API write, a call to the Runtime Server, a file, or a mark on what is held.

No rule stands here. Every effect may be repeated: a write carries its precondition, a registration its attempt and
digest, and the rest leaves things as they are when they are so already.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, assert_never

from kruntimes.common import clock
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.views import Endpoint, Run, RunStatus
from kruntimes.common.errors import NotReady, Terminal
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.events import Recorder, run_ref
from kruntimes.common.kube.transport import Kube
from kruntimes.runtimed import decisions as d
from kruntimes.runtimed import repository, source, status
from kruntimes.runtimed.decide import REGISTRATION_SECONDS
from kruntimes.runtimed.dispatch import Dispatcher
from kruntimes.runtimed.executing import Executions
from kruntimes.runtimed.held import Held, Registry
from kruntimes.runtimed.observed import Ending, Stage
from kruntimes.runtimed.registering import Registrations, request_of
from kruntimes.runtimed.registration import RuntimeServer
from kruntimes.runtimed.source import Home

T = TypeVar("T")
log = logging.getLogger(__name__)

FETCH_REPEAT_SECONDS = 2.0
"""Between two fetches of a repository that cannot be reached now."""
WRITE_SECONDS = 10.0
"""One API write; the next try starts from what is there then."""

WARNING_REASON = "FunctionWarning"
"""Of the Event that tells what a registration warns of."""
_EXPECTED = (Reason.CANCELLED, Reason.IDLE_TIMEOUT, Reason.TASK_SUCCEEDED)
"""Ends that nobody needs to be warned of."""


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
    home: Home
    endpoint: Callable[[Run], Endpoint]
    tasks: asyncio.TaskGroup
    wake: Callable[[str], None]
    fresh: dict[str, Run] = field(default_factory=dict)
    registrations: Registrations = field(init=False)
    executions: Executions = field(init=False)

    def __post_init__(self) -> None:
        self.registrations = Registrations(server=self.server, tasks=self.tasks, wake=self.wake)
        self.executions = Executions(server=self.server, home=self.home, tasks=self.tasks, wake=self.wake)

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
            case d.Adopt(epoch):
                self._adopt(_given(run), epoch)
            case d.Prepare(epoch):
                await self._prepare(_given(run), held, epoch)
            case d.Register():
                self.registrations.begin(_given(run), _given(held))
            case d.Begin():
                run = _given(run)
                await self._write(run, status.begun(run, now=clock.utcnow()))
            case d.Execute():
                self.executions.begin(_given(run), _given(held))
                log.info("task handed over", extra=_extra(_given(run)))
            case d.Poll():
                held = _given(held)
                if held.is_task:
                    held.execution = await self.executions.status(held)
                else:
                    held.function = await self.registrations.status(held)
            case d.Publish():
                run = _given(run)
                await self._write(run, status.published(run, self.endpoint(run), now=clock.utcnow()))
                log.info("function ready", extra=_extra(run))
                self._warn(run, _given(held))
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
                if held.is_task:
                    await self.executions.cancel(held)
                held.cancelled_at = clock.monotonic()
                self.dispatcher.cancel_all(held.epoch.run_uid)
            case d.Unregister():
                await self._release(_given(held))
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
        """An inline source is there at once; a repository takes its time beside everything else."""
        held = held or self._hold(run, epoch)
        wanted = run.spec.source
        if wanted is not None and wanted.repo_url is not None:
            held.stage = Stage.PREPARING
            held.task = self.tasks.create_task(self._fetching(held, wanted.repo_url, wanted.commit_sha))
            return
        inline, task = (wanted.inline if wanted is not None else None), run.spec.mode.task
        path = source.task_path(task.entrypoint) if task is not None else (wanted and wanted.inline_path) or ""
        try:
            await asyncio.to_thread(
                source.materialise, self.home, uid=epoch.run_uid, attempt=epoch.attempt, inline=inline, path=path
            )
        except Terminal as error:
            held.ending = Ending(reason=Reason.SOURCE_FAILED, message=str(error))
        except NotReady as error:
            if clock.monotonic() - held.since < REGISTRATION_SECONDS:
                raise
            held.ending = Ending(reason=Reason.SOURCE_FAILED, message=str(error))
        else:
            held.stage = Stage.PREPARED

    async def _fetching(self, held: Held, url: str, commit: str | None) -> None:
        """Fetches the source of *held* until that has succeeded, cannot succeed, or has taken too long."""
        epoch, stage, reason = held.epoch, Stage.NEW, ""
        try:
            while not reason:
                try:
                    await repository.materialise(
                        self.home, uid=epoch.run_uid, attempt=epoch.attempt, url=url, commit=commit
                    )
                except Terminal as error:
                    reason = str(error)
                except NotReady as error:
                    if clock.monotonic() - held.since >= REGISTRATION_SECONDS:
                        reason = str(error)
                    await asyncio.sleep(FETCH_REPEAT_SECONDS)
                else:
                    stage = Stage.PREPARED
                    return
        except Exception as error:  # a bug of ours must end this attempt, not this process
            log.exception("source not fetched", extra={"run_uid": epoch.run_uid})
            reason = type(error).__name__
        finally:
            held.task, held.stage = None, stage
            if reason:
                held.ending = held.ending or Ending(reason=Reason.SOURCE_FAILED, message=reason)
            self.wake(held.key)

    def _hold(self, run: Run, epoch: Epoch) -> Held:
        held = Held(
            key=run.metadata.key,
            epoch=epoch,
            since=clock.monotonic(),
            is_task=run.spec.mode.task is not None,
            working_dir=self.home.working_dir(uid=epoch.run_uid, attempt=epoch.attempt),
        )
        self.registry.put(held)
        return held

    def _adopt(self, run: Run, epoch: Epoch) -> None:
        """Holds what an earlier process of ours may have begun: a task is asked for, a registration repeated."""
        held = self._hold(run, epoch)
        held.sent = True
        if held.is_task:
            held.stage = Stage.REGISTERED
        else:
            held.stage, held.request = Stage.PREPARED, request_of(run, held)
        log.info("run found again", extra=_extra(run))

    async def _release(self, held: Held) -> None:
        """Raises NotReady as long as the Runtime Server has not acknowledged; then nothing of the epoch is left."""
        if held.task is not None:
            held.task.cancel()
            await asyncio.wait((held.task,))
        await (self.executions.end(held) if held.is_task else self.registrations.end(held))
        epoch = held.epoch
        await asyncio.to_thread(source.remove, self.home, uid=epoch.run_uid, attempt=epoch.attempt)
        held.stage = Stage.RELEASED
        message = "task forgotten" if held.is_task else "function unregistered"
        log.info(message, extra={"run_uid": epoch.run_uid, "attempt": epoch.attempt})

    def _say(self, run: Run, end: d.Finish) -> None:
        extra = _extra(run) | {"phase": end.phase.value, "reason": end.reason.value}
        log.info("assignment ended", extra=extra)
        kind = "Normal" if end.reason in _EXPECTED else "Warning"
        self.tasks.create_task(
            self.recorder.event(run_ref(run.metadata), type=kind, reason=end.reason.value, message=end.message)
        )

    def _warn(self, run: Run, held: Held) -> None:
        """Tells the user, once for each registration, what works otherwise than its author may think."""
        warning, held.warning = held.warning, ""
        if warning:
            log.warning("function warning", extra=_extra(run) | {"warning": warning})
            self.tasks.create_task(
                self.recorder.event(run_ref(run.metadata), type="Warning", reason=WARNING_REASON, message=warning)
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
