"""One registered function: a handler of the functions manager whose calls run in a host process (shell).

The manager starts at most one call at a time. A warm call costs no task, future or timer: its frame goes to the host
as it starts, and what the host says is told by a callback. Work never outlives its answer: that is given once the
handler has answered, or once its processes are dead.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass

from kruntimes.common import clock
from kruntimes.functions.invocation import Invocation
from kruntimes.functions.invocation import Why as Told
from kruntimes.functions.wire.events import Call, Progress, Result
from kruntimes.functions.wire.invocations import forwarded_frame, invocation_id_of
from kruntimes.runtime import answers
from kruntimes.runtime.activity import Clock
from kruntimes.runtime.answers import Answer
from kruntimes.runtime.host.protocol import ErrorDocument
from kruntimes.runtime.hosts import Ended, HostProcess
from kruntimes.runtime.ladder import Why, leaves_host_usable
from kruntimes.runtime.logtail import LineForwarder, Lines, LogTail
from kruntimes.runtime.replies import of_answer
from kruntimes.runtime.starting import Spec, Starter, retire
from kruntimes.runtime.stopper import Stopper

log = logging.getLogger(__name__)
output = logging.getLogger("kruntimes.runtime.function.output")

_WHY = {Told.CANCELLED: Why.CANCELLED, Told.DEADLINE: Why.DEADLINE, Told.STOPPING: Why.UNREGISTERED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a function tells. failed: why, whenever a host could not be initialised, after which it takes no calls.

    ended: a call has ended, with its answer and how many seconds it had its slot.
    """

    failed: Callable[[ErrorDocument], None]
    ended: Callable[[Invocation, Answer, float], None]


class Function:
    """A function and its host.

    starter: starts hosts. tasks: where what must outlive one call runs. activity: its idle clock. warning: of the last
    initialisation, empty for none.
    """

    def __init__(self, spec: Spec, starter: Starter, tasks: asyncio.TaskGroup, hooks: Hooks, activity: Clock) -> None:
        self._spec = spec
        self._starter = starter
        self._tasks = tasks
        self._hooks = hooks
        self._host: HostProcess | None = None
        self._previous: HostProcess | None = None
        self._starting: asyncio.Task[HostProcess | ErrorDocument] | None = None
        self._invocation: Invocation | None = None
        self._last: Call | None = None
        self._waiting = False
        self._stopper = Stopper("")
        self._closed = False
        self.warning = ""
        self.activity = activity
        self._tail = LogTail()
        self._lines = LineForwarder(clock.monotonic())
        self._extra: dict[str, object] = {"run_uid": spec.run_uid, "attempt": spec.attempt}

    async def initialise(self) -> ErrorDocument | None:
        """Starts the first host; returns why the function cannot be used, or None."""
        outcome = await self._warm()
        return outcome if isinstance(outcome, ErrorDocument) else None

    async def close(self) -> None:
        """Ends the function, which has no call any more: an idle host may tidy up; returns when all is dead."""
        self._closed = True
        if self._starting is not None:
            if self._host is not None:
                self._host.kill()
            await asyncio.wait({self._starting})
        if self._host is not None:
            await retire(self._host)
            await self._host.ended
        if self._previous is not None:
            await self._previous.ended
        self._forward(self._lines.flush())

    def interrupt(self) -> None:
        """The function is ending: a running call is stopped, and no host is started for another."""
        self._closed = True
        if self._invocation is not None:
            self._stop(Why.UNREGISTERED)

    # --- Handler

    def start(self, invocation: Invocation) -> None:
        """Begins the call."""
        self._touch()
        self._invocation, self._stopper = invocation, Stopper(invocation.call.uid)
        host = self._host
        if host is not None and self._starting is None and host.alive:
            self._send(host, invocation)
        else:
            self._waiting = True
            self._tasks.create_task(self._send_when_warm(invocation))

    def stop(self, invocation: Invocation, why: Told) -> None:
        """Begins to stop it."""
        if self._invocation is invocation:
            self._stop(_WHY[why])

    def kill(self, invocation: Invocation) -> None:
        """Ends it by force."""
        if self._invocation is invocation and self._host is not None:
            self._host.kill()

    # --- one call

    def _send(self, host: HostProcess, invocation: Invocation) -> None:
        host.drain_log()
        self._tail.clear()
        self._stopper.begin(host)
        self._last = call = invocation.call
        frame = forwarded_frame(call, millis=max(1, int((invocation.deadline - clock.monotonic()) * 1000)))
        host.call(call.uid, frame, self._told)

    async def _send_when_warm(self, invocation: Invocation) -> None:
        outcome = await self._warm()
        if self._invocation is not invocation:
            return  # it was stopped meanwhile
        self._waiting = False
        if isinstance(outcome, ErrorDocument):
            self._complete(answers.not_dispatched(outcome.message))
        else:
            self._send(outcome, invocation)

    def _stop(self, why: Why) -> None:
        self._stopper.stop(why)
        if self._waiting:
            self._waiting = False
            self._complete(answers.not_started(why))

    def _told(self, event: Result | Progress | Ended) -> None:
        """What the host says of the running call, or of itself."""
        invocation, host, stopper = self._invocation, self._host, self._stopper
        assert invocation is not None, "a host speaks of a running call"
        assert host is not None
        if isinstance(event, Progress):
            invocation.progress(event.done, event.total)
            return
        stopper.end()
        host.drain_log()
        tail = self._tail.text()
        if isinstance(event, Ended):
            answer = answers.from_end(str(event), stopper.why, stopper.stage, log_tail=tail)
        else:
            answer = answers.from_result(event, stopper.why, stopper.stage, log_tail=tail)
        if leaves_host_usable(answer.stage):
            if answer.recycle and host.alive:
                log.info("recycling a host", extra={**self._extra, "reason": answer.recycle})
                self._previous, self._host = host, None
                self._tasks.create_task(retire(host))
            self._finish(answer)
        else:
            host.kill()
            host.ended.add_done_callback(functools.partial(self._dead, answer))

    def _dead(self, answer: Answer, ended: "asyncio.Future[Ended]") -> None:
        self._finish(answer)

    def _finish(self, answer: Answer) -> None:
        """The work has ended: its answer is given, and the next caller does not pay for this one's end."""
        self._complete(answer)
        if not self._closed and (self._host is None or not self._host.alive):
            self._tasks.create_task(self._warm())

    def _complete(self, answer: Answer) -> None:
        invocation, self._invocation = self._invocation, None
        assert invocation is not None, "a call is completed once"
        self._touch()
        seconds = clock.monotonic() - invocation.admitted
        self._hooks.ended(invocation, answer, seconds)
        invocation.complete(of_answer(invocation.call.uid, answer, seconds=seconds))

    def _touch(self) -> None:
        self.activity.touch(int(clock.wall() * 1_000_000_000))

    # --- the host's life

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
            self._hooks.failed(outcome)

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
        host = await self._starter.start(self._on_log)
        if isinstance(host, ErrorDocument):
            return host
        self._host = host
        outcome = await self._starter.initialise(host, self._tail)
        if isinstance(outcome, ErrorDocument):
            return outcome
        self.warning = outcome
        return host

    # --- the log

    def _on_log(self, data: bytes) -> None:
        self._tail.feed(data)
        self._forward(self._lines.feed(data, clock.monotonic()))

    def _forward(self, lines: Lines) -> None:
        if not lines.lines and not lines.suppressed:
            return
        extra = {**self._extra, "invocation_id": invocation_id_of(self._last)} if self._last else self._extra
        if lines.suppressed:
            output.warning("function log lines suppressed", extra={**extra, "lines": lines.suppressed})
        for line in lines.lines:
            output.info("function log", extra={**extra, "line": line})
