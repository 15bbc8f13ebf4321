"""One registered function: its host, started, called, stopped and replaced (shell around ladder and answers).

The owner admits at most one call at a time (`lanes`); everything here is then sequential. Work never outlives
`invoke`: it returns once the handler has answered, or once its processes are dead.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kruntimes.common import clock
from kruntimes.functions.wire.events import Call, Result
from kruntimes.functions.wire.invocations import invocation_call
from kruntimes.runtime import answers, bounds, scratch
from kruntimes.runtime.answers import Answer
from kruntimes.runtime.host.protocol import INITIALISE, Config, ErrorDocument, Meta
from kruntimes.runtime.hosts import Ended, HostProcess, Nursery
from kruntimes.runtime.ladder import LADDERS, Action, Why, leaves_host_usable
from kruntimes.runtime.logtail import LineForwarder, Lines, LogTail

log = logging.getLogger(__name__)
output = logging.getLogger("kruntimes.runtime.function.output")

QUIT_SECONDS = 1.0
"""What an idle host gets for its `atexit` before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a function is. init_seconds: how long importing or sourcing may take."""

    run_uid: str
    registration: str
    attempt: int
    config: Config
    init_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call. deadline: on the monotonic clock."""

    tx: str
    invocation_id: str
    payload: bytes
    content_type: str
    deadline: float


class Stopper:
    """Climbs the ladder against one call; may be told to stop for a second reason, and then takes the faster one."""

    def __init__(self, tx: str) -> None:
        self.why: Why | None = None
        self.stage: Action | None = None
        self._tx = tx
        self._stopped: asyncio.Future[Why] | None = None
        self._host: HostProcess | None = None
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def stopped(self) -> asyncio.Future[Why]:
        """Done once the call is to be stopped; made for whoever waits for it, which a warm call does not."""
        if self._stopped is None:
            self._stopped = asyncio.get_running_loop().create_future()
            if self.why is not None:
                self._stopped.set_result(self.why)
        return self._stopped

    def at(self, deadline: float) -> None:
        """Stops the call for its deadline at *deadline* (monotonic)."""
        delay = max(0.0, deadline - clock.monotonic())
        self._timers.append(asyncio.get_running_loop().call_later(delay, self.stop, Why.DEADLINE))

    def begin(self, host: HostProcess) -> None:
        """The call is on *host* from now on."""
        self._host = host

    def stop(self, why: Why) -> None:
        """Begins to stop the call; safe to repeat."""
        if self.why is None:
            self.why = why
            if self._stopped is not None:
                self._stopped.set_result(why)
        if self._host is not None:
            for step in LADDERS[why]:
                self._timers.append(asyncio.get_running_loop().call_later(step.after, self._act, step.action))

    def end(self) -> None:
        """The work has ended; no further step is taken."""
        for timer in self._timers:
            timer.cancel()

    def _act(self, action: Action) -> None:
        assert self._host is not None
        order = list(Action)
        if self.stage is None or order.index(action) > order.index(self.stage):
            self.stage = action
        self._host.act(action, self._tx)


class Function:
    """A function and its host.

    tasks: where what must outlive one call runs. on_failure: told why, whenever a host could not be initialised,
    after which the function takes no more calls. warning: of the last initialisation, empty for none.
    """

    def __init__(
        self, spec: Spec, nursery: Nursery, tasks: asyncio.TaskGroup, on_failure: Callable[[ErrorDocument], None]
    ) -> None:
        self._spec = spec
        self._nursery = nursery
        self._tasks = tasks
        self._on_failure = on_failure
        self._host: HostProcess | None = None
        self._previous: HostProcess | None = None
        self._starting: asyncio.Task[HostProcess | ErrorDocument] | None = None
        self._stopper: Stopper | None = None
        self.warning = ""
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._tail = LogTail()
        self._lines = LineForwarder(clock.monotonic())
        self._extra: dict[str, object] = {"run_uid": spec.run_uid, "attempt": spec.attempt}

    async def initialise(self) -> ErrorDocument | None:
        """Starts the first host; returns why the function cannot be used, or None."""
        outcome = await self._warm()
        return outcome if isinstance(outcome, ErrorDocument) else None

    async def invoke(self, request: Request, stopper: Stopper) -> Answer:
        """Runs one call to its end, whatever becomes of whoever waits for it."""
        self._stopper = stopper
        self._idle.clear()
        stopper.at(request.deadline)
        try:
            host = await self._warm_host(stopper)
            if isinstance(host, Answer):
                return host
            return await self._call(host, request, stopper)
        finally:
            self._stopper = None
            self._idle.set()
            stopper.end()

    async def close(self) -> None:
        """Ends the function: a running call is stopped, an idle host may tidy up; returns when all is dead."""
        self._closed = True
        if self._stopper is not None:
            self._stopper.stop(Why.UNREGISTERED)
            await self._idle.wait()
        if self._starting is not None:
            if self._host is not None:
                self._host.kill()
            await asyncio.wait({self._starting})
        if self._host is not None:
            await _retire(self._host)
            await self._host.ended
        if self._previous is not None:
            await self._previous.ended
        self._forward(self._lines.flush())

    # --- the host's life

    async def _warm_host(self, stopper: Stopper) -> HostProcess | Answer:
        if self._starting is None and self._host is not None and self._host.alive:
            return self._host
        warming = self._tasks.create_task(self._warm())
        either: set[asyncio.Future[Any]] = {warming, stopper.stopped}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stopper.why is not None:
            return answers.not_started(stopper.why)
        outcome = warming.result()
        return answers.not_dispatched(outcome.message) if isinstance(outcome, ErrorDocument) else outcome

    async def _warm(self) -> HostProcess | ErrorDocument:
        """A host that is initialised and idle; concurrent callers share one start."""
        if self._starting is None:
            if self._host is not None and self._host.alive:
                return self._host
            self._starting = self._tasks.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    def _started(self, task: asyncio.Task[HostProcess | ErrorDocument]) -> None:
        self._starting = None
        if not task.cancelled() and isinstance(outcome := task.result(), ErrorDocument) and not self._closed:
            self._on_failure(outcome)

    async def _start(self) -> HostProcess | ErrorDocument:
        if self._host is not None:
            self._previous, self._host = self._host, None
        if self._previous is not None:
            ended = await self._previous.ended
            self._previous = None
            if ended.left:
                return ErrorDocument(reason="ProcessesLeft", message=f"{ended.left} processes could not be ended")
        if self._closed:
            return ErrorDocument(reason="Closed", message="the function was unregistered")
        self._tail.clear()
        if self._spec.config.scratch:
            await asyncio.to_thread(scratch.empty, Path(self._spec.config.scratch))
        try:
            host = self._host = await self._nursery.start(self._on_log)
        except OSError as error:
            return ErrorDocument(reason="StartFailed", message=f"no process could be started: {error.strerror}")
        return await self._initialise(host)

    async def _initialise(self, host: HostProcess) -> HostProcess | ErrorDocument:
        stopper = Stopper(INITIALISE)
        stopper.begin(host)
        stopper.at(clock.monotonic() + self._spec.init_seconds)
        try:
            call = Call(
                uid=INITIALISE, timeout=max(1, round(self._spec.init_seconds)), function=INITIALISE,
                content_type="application/json", payload=self._spec.config.encode(),
            )  # fmt: skip
            result = await host.call(call)
        finally:
            stopper.end()
        host.drain_log()
        if isinstance(result, Result) and result.code == answers.OK and stopper.why is None:
            self.warning = _warning_of(result)
            return host
        host.kill()
        ended = await host.ended
        if stopper.why is not None:
            message = f"initialising did not end within {self._spec.init_seconds:g} s"
            return ErrorDocument(reason="InitialisationTimeout", message=message)
        if isinstance(result, Ended):
            return ErrorDocument(
                reason="InitialisationFailed", message=f"the function's process {ended} while it was initialised",
                traceback=bounds.tail(self._tail.text(), bounds.MAX_TRACEBACK_BYTES),
            )  # fmt: skip
        try:
            return ErrorDocument.decode(result.body)
        except (ValueError, RecursionError):
            return ErrorDocument(reason="InitialisationFailed", message="the host's answer is not readable")

    # --- one call

    async def _call(self, host: HostProcess, request: Request, stopper: Stopper) -> Answer:
        host.drain_log()
        self._tail.clear()
        self._extra["invocation_id"] = request.invocation_id
        stopper.begin(host)
        call = invocation_call(
            tx=request.tx, registration=self._spec.registration, invocation_id=request.invocation_id,
            attempt=self._spec.attempt, millis=max(1, int((request.deadline - clock.monotonic()) * 1000)),
            payload=request.payload, content_type=request.content_type,
        )  # fmt: skip
        result = await host.call(call)
        stopper.end()
        host.drain_log()
        tail = self._tail.text()
        if isinstance(result, Ended):
            answer = answers.from_end(str(result), stopper.why, stopper.stage, log_tail=tail)
        else:
            answer = answers.from_result(result, stopper.why, stopper.stage, log_tail=tail)
        await self._after(host, answer)
        return answer

    async def _after(self, host: HostProcess, answer: Answer) -> None:
        """Replaces a host that must not be used again; after a stop, the slot waits until it is dead."""
        if not leaves_host_usable(answer.stage):
            host.kill()
            await host.ended
        elif answer.recycle:
            log.info("recycling a host", extra={**self._extra, "reason": answer.recycle})
            self._previous, self._host = host, None
            self._tasks.create_task(_retire(host))
        if not self._closed and (self._host is None or not self._host.alive):
            # The next caller should not pay for this one's end.
            self._tasks.create_task(self._warm())

    def _on_log(self, data: bytes) -> None:
        self._tail.feed(data)
        self._forward(self._lines.feed(data, clock.monotonic()))

    def _forward(self, lines: Lines) -> None:
        if lines.suppressed:
            output.warning("function log lines suppressed", extra={**self._extra, "lines": lines.suppressed})
        for line in lines.lines:
            output.info("function log", extra={**self._extra, "line": line})


def _warning_of(result: Result) -> str:
    try:
        return bounds.head(Meta.decode(result.meta).warning, bounds.MAX_MESSAGE_BYTES)
    except (ValueError, RecursionError):
        return ""


async def _retire(host: HostProcess) -> None:
    """Ends an idle host, in order if it goes along."""
    host.quit()
    await asyncio.wait({host.ended}, timeout=QUIT_SECONDS)
    host.kill()
