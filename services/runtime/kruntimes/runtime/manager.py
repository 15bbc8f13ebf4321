"""All functions of one Runtime Server: registrations, slots, and the work that belongs to them (shell).

Rules live in `registry` (who may), the functions manager (one at a time, deadlines, cancellation) and `ladder` (how
work is stopped); this carries them out. Between a check and the change that it allows there is no await.
"""

import asyncio
import contextlib
import functools
import logging
import os
import secrets
from dataclasses import dataclass

from kruntimes.common import clock
from kruntimes.functions.invocation import Invocation
from kruntimes.functions.wire.invocations import invocation_id_of
from kruntimes.runtime import answers, bounds, requests
from kruntimes.runtime.activity import Activity, Clock, key_of
from kruntimes.runtime.admission import Calls
from kruntimes.runtime.answers import Answer
from kruntimes.runtime.function import Function, Hooks
from kruntimes.runtime.host.protocol import Config, ErrorDocument
from kruntimes.runtime.hosts import Nursery
from kruntimes.runtime.metrics import Metrics
from kruntimes.runtime.registry import (
    Code,
    Existing,
    New,
    Refused,
    Registration,
    Registry,
    State,
    Wanted,
)  # fmt: skip
from kruntimes.runtime.scratch import Scratch
from kruntimes.runtime.starting import Spec, Starter

log = logging.getLogger(__name__)

DRAIN_SECONDS = 8.0
"""How long running calls may go on when the server ends, or when UnregisterFunction does not say (second source)."""
SCRATCH_NAME_CHARS = 12
"""Of a registration's id: sockets lie in that folder too, and their paths have 107 bytes at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in seconds. init: for importing or sourcing. default, maximum: an invocation's deadline.

    calls: after which a warm host is replaced, recycle_bytes: above which it is, 0 for never.
    """

    init: float = 30.0
    default: float = 60.0
    maximum: float = 900.0
    calls: int = 0
    recycle_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """What FunctionStatus tells beside the state. last_nanos: of the last start or end since the epoch, 0 for none."""

    in_flight: int
    last_nanos: int


class Manager:
    """See the module. tasks: runs everything that outlives a request; nursery: starts hosts.

    calls: where invocations go in.
    """

    def __init__(
        self,
        nursery: Nursery,
        tasks: asyncio.TaskGroup,
        folders: Scratch,
        activity: Activity,
        limits: Limits,
        metrics: Metrics,
    ) -> None:
        self._nursery = nursery
        self._folders = folders
        self._activity = activity
        self._tasks = tasks
        self._limits = limits
        self._metrics = metrics
        self._registry = Registry()
        self.calls = Calls(self._registry, default=limits.default, maximum=limits.maximum, on_refused=metrics.refused)
        self._functions: dict[str, Function] = {}
        self._initialising: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    # --- registration

    async def register(self, wanted: Wanted, *, wait: float) -> Registration | Refused:
        """Registers, and waits up to *wait* seconds for the initialisation to end."""
        if self._stopping:
            return Refused(Code.FAILED_PRECONDITION, "Stopping", "the Runtime Server is stopping")
        decision = self._registry.register(wanted, new_id=secrets.token_hex(16))
        if isinstance(decision, Refused):
            return decision
        registration = decision.registration
        if isinstance(decision, New):
            self._begin(decision)
        if (initialising := self._initialising.get(registration.id)) is not None:
            await asyncio.wait({initialising}, timeout=wait)
        found = self._registry.find(wanted.run_uid, registration.id)
        return registration if isinstance(decision, Existing) and isinstance(found, Refused) else found

    def status(self, run_uid: str, registration_id: str) -> tuple[Registration, Figures] | Refused:
        """The state of a registration, and its figures."""
        found = self._registry.find(run_uid, registration_id)
        if isinstance(found, Refused):
            return found
        return found, Figures(int(self.calls.occupied(found.id)), self._functions[found.id].activity.last_nanos)

    async def unregister(self, run_uid: str, registration_id: str, *, cancel: bool, drain: float) -> None:
        """Stops new work, lets a running call end for *drain* seconds or cancels it, and ends every process.

        Returns when that is done; an absent or stale registration is done already. Without an id it is whatever is
        registered for that Run: who asks so has lost the id, and the Run is gone.
        """
        registration_id = registration_id or self._registry.current_id(run_uid)
        found = self._registry.find(run_uid, registration_id)
        if isinstance(found, Registration) and found.id not in self._ending:
            self._registry.move(found, State.DRAINING)
            self._end_later(found, drain=0.0 if cancel else drain)
        if (ending := self._ending.get(registration_id)) is not None:
            await asyncio.shield(ending)

    @property
    def in_flight(self) -> int:
        """Running calls over all functions."""
        return self.calls.running

    def last_activity(self) -> dict[str, int]:
        """When each function that had any was last active, in nanoseconds since the epoch, for `Activity.follow`."""
        found: dict[str, int] = {}
        for registration in self._registry.all():
            if last := self._functions[registration.id].activity.last_nanos:
                found[key_of(registration.wanted)] = last
        return found

    async def drain(self, seconds: float) -> None:
        """Takes no more calls and registrations, and lets those calls that run end for *seconds*."""
        self._stopping = True
        self.calls.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*map(self.calls.idle, self._functions))

    async def stop(self) -> None:
        """Ends everything now: running calls are stopped, and every process of every function is dead on return."""
        await self.drain(0.0)
        if closing := [self._tasks.create_task(self._close(*item)) for item in self._functions.items()]:
            await asyncio.wait(closing)
        await self.calls.stop()

    # --- inside

    def _begin(self, new: New) -> None:
        registration = new.registration
        wanted = registration.wanted
        scratch = self._scratch_of(registration)
        config = Config(
            handler=wanted.handler, working_dir=wanted.working_dir, attempt=wanted.attempt,
            env=requests.environment_of(wanted, {**os.environ, **({"TMPDIR": scratch} if scratch else {})}),
            scratch=scratch, forked=wanted.forked, max_calls=self._limits.calls,
            recycle_bytes=self._limits.recycle_bytes,
        )  # fmt: skip
        spec = Spec(
            run_uid=wanted.run_uid, registration=registration.id, attempt=wanted.attempt, config=config,
            init_seconds=self._limits.init,
        )  # fmt: skip
        hooks = Hooks(
            failed=functools.partial(self._failed, registration), ended=functools.partial(self._called, registration)
        )
        activity = Clock(self._activity.take(wanted, now_nanos=_now_nanos()))
        function = Function(spec, Starter(spec, self._nursery), self._tasks, hooks, activity)
        self._functions[registration.id] = function
        self.calls.register(registration.id, function)
        if new.replaces is not None and new.replaces.id not in self._ending:
            self._end_later(new.replaces, drain=0.0)
        before = self._ending.get(new.replaces.id) if new.replaces is not None else None
        task = self._tasks.create_task(self._initialise(registration, function, before))
        self._initialising[registration.id] = task
        task.add_done_callback(lambda _: self._initialising.pop(registration.id, None))

    def _scratch_of(self, registration: Registration) -> str:
        try:
            return str(self._folders.make(registration.id[:SCRATCH_NAME_CHARS]))
        except OSError as error:
            log.warning("a function has no scratch folder", extra={"error": error.strerror})
            return ""

    async def _initialise(
        self, registration: Registration, function: Function, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})  # one Run never has two live generations
        began = clock.monotonic()
        error = await function.initialise()
        extra: dict[str, object] = {"run_uid": registration.wanted.run_uid, "attempt": registration.wanted.attempt}
        self._metrics.initialised(ok=error is None, seconds=clock.monotonic() - began)
        if error is None:
            self._registry.move(registration, State.READY, warning=function.warning)
            log.info("function ready", extra={**extra, "handler": registration.wanted.handler})
            if function.warning:
                log.warning("function warning", extra={**extra, "warning": function.warning})

    def _failed(self, registration: Registration, error: ErrorDocument) -> None:
        self._registry.move(registration, State.FAILED, fatal_error=fatal_error(error))
        log.warning(
            "function failed to start",
            extra={
                "run_uid": registration.wanted.run_uid, "attempt": registration.wanted.attempt, "error": error.message,
            },
        )  # fmt: skip

    def _called(self, registration: Registration, invocation: Invocation, answer: Answer, seconds: float) -> None:
        self._metrics.invoked(code=answer.code, stage=answer.stage, seconds=seconds)
        # Whoever called logs the outcome of each call; one that did not complete is told here too.
        level = logging.DEBUG if answer.code == answers.OK else logging.INFO
        if log.isEnabledFor(level):
            log.log(
                level,
                "invocation ended",
                extra={
                    "run_uid": registration.wanted.run_uid, "attempt": registration.wanted.attempt,
                    "invocation_id": invocation_id_of(invocation.call), "code": answer.code,
                    "seconds": round(seconds, 4),
                },
            )  # fmt: skip

    def _end_later(self, registration: Registration, *, drain: float) -> None:
        task = self._tasks.create_task(self._end(registration, drain))
        self._ending[registration.id] = task
        task.add_done_callback(lambda _: self._ending.pop(registration.id, None))

    async def _end(self, registration: Registration, drain: float) -> None:
        if drain > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(drain):
                    await self.calls.idle(registration.id)
        await self._close(registration.id, self._functions[registration.id])
        await asyncio.to_thread(self._folders.discard, registration.id[:SCRATCH_NAME_CHARS])
        # All at once: whoever finds a registration finds its function.
        self.calls.unregister(registration.id)
        self._functions.pop(registration.id, None)
        self._registry.remove(registration)
        log.info(
            "function unregistered",
            extra={"run_uid": registration.wanted.run_uid, "attempt": registration.wanted.attempt},
        )

    async def _close(self, name: str, function: Function) -> None:
        function.interrupt()
        await self.calls.idle(name)
        await function.close()


def fatal_error(error: ErrorDocument) -> str:
    """What FunctionStatus tells: type, message with file and line, traceback; at most 4 KiB."""
    head = f"{error.type}: {error.message}" if error.type else error.message
    return bounds.head(f"{head}\n{error.traceback}".rstrip(), bounds.MAX_FATAL_ERROR_BYTES)


def _now_nanos() -> int:
    return int(clock.wall() * 1_000_000_000)
