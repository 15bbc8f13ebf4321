"""All functions of one Runtime Server: registrations, slots, and the work that belongs to them (shell).

Rules live in `registry` (who may), `lanes` (one at a time) and `ladder` (how work is stopped); this carries them
out. Between a check and the change that it allows there is no await.
"""

import asyncio
import itertools
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from kruntimes.common import clock
from kruntimes.runtime import answers, bounds, requests
from kruntimes.runtime.activity import Activity, key_of
from kruntimes.runtime.answers import Answer
from kruntimes.runtime.function import Function, Request, Spec, Stopper
from kruntimes.runtime.host.protocol import Config, ErrorDocument
from kruntimes.runtime.hosts import Nursery
from kruntimes.runtime.ladder import Why
from kruntimes.runtime.lanes import Activity as Figures
from kruntimes.runtime.lanes import Busy, Lanes, Slot
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
    decide_invoke,
)  # fmt: skip
from kruntimes.runtime.scratch import Scratch

log = logging.getLogger(__name__)

DRAIN_SECONDS = 8.0
"""How long running calls may go on when the server ends, or when UnregisterFunction does not say (second source)."""
SCRATCH_NAME_CHARS = 12
"""Of a registration's id: sockets lie in that folder too, and their paths have 107 bytes at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in seconds. init: for importing or sourcing. default, maximum: an invocation's deadline.

    calls: after which a warm host is replaced, 0 for never.
    """

    init: float = 30.0
    default: float = 60.0
    maximum: float = 900.0
    calls: int = 0


class Invocation:
    """A call that has its slot. `answer` may be awaited and abandoned; only `cancel` stops the work.

    work: ends when the work has ended; not to be cancelled.
    """

    def __init__(self, work: asyncio.Task[Answer], stopper: Stopper) -> None:
        self.work = work
        self._stopper = stopper

    async def answer(self) -> Answer:
        """The answer, once the work has ended."""
        return await asyncio.shield(self.work)

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        self._stopper.stop(Why.CANCELLED)


class Manager:
    """See the module. tasks: runs everything that outlives a request; nursery: starts hosts."""

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
        self._lanes = Lanes()
        self._functions: dict[str, Function] = {}
        self._initialising: dict[str, asyncio.Task[None]] = {}
        self._work: dict[str, asyncio.Task[Answer]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
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
        return found if isinstance(found, Refused) else (found, self._lanes.activity(found.id))

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

    # --- invocation

    def invoke(
        self,
        registration_id: str,
        *,
        run_uid: str | None = None,
        invocation_id: str,
        payload: bytes,
        content_type: str,
        seconds: float,
    ) -> Invocation | Refused:
        """Takes the function's slot and starts the call; decides without waiting for anything.

        run_uid: where given, the registration must be that Run's.
        """
        if run_uid is None:
            found = self._registry.named(registration_id)
        else:
            found = self._registry.find(run_uid, registration_id)
        if isinstance(found, Refused):
            return found
        if (refused := decide_invoke(found)) is not None:
            return refused
        tx = f"c{next(self._numbers):x}"
        slot = self._lanes.take(found.id, tx, _now_nanos())
        if isinstance(slot, Busy):
            self._metrics.refused()
            return Refused(Code.RESOURCE_EXHAUSTED, "InvocationInFlight", "an invocation of this function is in flight")
        request = Request(
            tx=tx, invocation_id=invocation_id, payload=payload, content_type=content_type,
            deadline=clock.monotonic() + seconds,
        )  # fmt: skip
        stopper = Stopper(tx)
        work = self._tasks.create_task(self._run(found, slot, request, stopper))
        self._work[found.id] = work
        return Invocation(work, stopper)

    @property
    def in_flight(self) -> int:
        """Running calls over all functions."""
        return self._lanes.in_flight()

    def last_activity(self) -> dict[str, int]:
        """When each function that had any was last active, in nanoseconds since the epoch, for `Activity.follow`."""
        found: dict[str, int] = {}
        for registration in self._registry.all():
            if last := self._lanes.activity(registration.id).last_nanos:
                found[key_of(registration.wanted)] = last
        return found

    async def stop(self) -> None:
        """Ends everything now: running calls are stopped, and every process of every function is dead on return."""
        self._stopping = True
        if closing := [self._tasks.create_task(function.close()) for function in self._functions.values()]:
            await asyncio.wait(closing)
        if work := list(self._work.values()):
            await asyncio.wait(work)

    # --- inside

    def _begin(self, new: New) -> None:
        registration = new.registration
        wanted = registration.wanted
        scratch = self._scratch_of(registration)
        self._lanes.resume(registration.id, self._activity.take(wanted, now_nanos=_now_nanos()))
        config = Config(
            handler=wanted.handler, working_dir=wanted.working_dir, attempt=wanted.attempt,
            env=requests.environment_of(wanted, {**os.environ, **({"TMPDIR": scratch} if scratch else {})}),
            scratch=scratch, forked=wanted.forked, max_calls=self._limits.calls,
        )  # fmt: skip
        spec = Spec(
            run_uid=wanted.run_uid, registration=registration.id, attempt=wanted.attempt, config=config,
            init_seconds=self._limits.init,
        )  # fmt: skip
        function = self._functions[registration.id] = Function(
            spec, self._nursery, self._tasks, self._failed(registration)
        )
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

    def _failed(self, registration: Registration) -> Callable[[ErrorDocument], None]:
        def failed(error: ErrorDocument) -> None:
            self._registry.move(registration, State.FAILED, fatal_error=fatal_error(error))
            log.warning(
                "function failed to start",
                extra={
                    "run_uid": registration.wanted.run_uid, "attempt": registration.wanted.attempt,
                    "error": error.message,
                },
            )  # fmt: skip

        return failed

    async def _run(self, registration: Registration, slot: Slot, request: Request, stopper: Stopper) -> Answer:
        began = clock.monotonic()
        code = answers.FUNCTION_ERROR
        try:
            answer = await self._functions[registration.id].invoke(request, stopper)
            code = answer.code
            return answer
        finally:
            self._work.pop(registration.id, None)
            self._lanes.ended(slot, _now_nanos())
            seconds = clock.monotonic() - began
            self._metrics.invoked(code=code, stage=stopper.stage, seconds=seconds)
            # Whoever called logs the outcome of each call; one that did not complete is told here too.
            level = logging.DEBUG if code == answers.OK else logging.INFO
            if log.isEnabledFor(level):
                log.log(
                    level,
                    "invocation ended",
                    extra={
                        "run_uid": registration.wanted.run_uid, "attempt": registration.wanted.attempt,
                        "invocation_id": request.invocation_id, "code": code, "seconds": round(seconds, 4),
                    },
                )  # fmt: skip

    def _end_later(self, registration: Registration, *, drain: float) -> None:
        task = self._tasks.create_task(self._end(registration, drain))
        self._ending[registration.id] = task
        task.add_done_callback(lambda _: self._ending.pop(registration.id, None))

    async def _end(self, registration: Registration, drain: float) -> None:
        work = self._work.get(registration.id)
        if work is not None and drain > 0:
            await asyncio.wait({work}, timeout=drain)
        await self._functions[registration.id].close()
        if work is not None:
            await asyncio.wait({work})
        self._functions.pop(registration.id, None)
        await asyncio.to_thread(self._folders.discard, registration.id[:SCRATCH_NAME_CHARS])
        self._registry.remove(registration)
        self._lanes.forget(registration.id)
        log.info(
            "function unregistered",
            extra={"run_uid": registration.wanted.run_uid, "attempt": registration.wanted.attempt},
        )


def fatal_error(error: ErrorDocument) -> str:
    """What FunctionStatus tells: type, message with file and line, traceback; at most 4 KiB."""
    head = f"{error.type}: {error.message}" if error.type else error.message
    return bounds.head(f"{head}\n{error.traceback}".rstrip(), bounds.MAX_FATAL_ERROR_BYTES)


def _now_nanos() -> int:
    return int(clock.wall() * 1_000_000_000)
