"""The functions manager: calls in, answers out, handlers between (second source document; shell around `engine`).

    manager = Manager(Bounds(workers=4))
    manager.register("hello", Asynchronous(hello, tasks))
    manager.admit(call, sink)          # the answer comes to sink(result), once
    await manager.stop()

Everything but `finish`, `complete`, `end` and `progress` of an Invocation is called on the thread of its event loop.
There is one timer for all calls, and no task for any.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kruntimes.common import clock
from kruntimes.functions import handlers
from kruntimes.functions.bounds import Bounds
from kruntimes.functions.engine import Admission, Cancelled, Effect, Emit, Engine, Kill, Start, Stop
from kruntimes.functions.failures import Failure, Format, for_agents
from kruntimes.functions.invocation import Handler, Invocation, Sink, Why
from kruntimes.functions.routes import OverlappingPrefix
from kruntimes.functions.wire.events import Call, Progress, Rejected, Result

log = logging.getLogger(__name__)

TIMER_SLACK = 0.001
"""Event loops round times to milliseconds; a timer that comes this early counts as being on time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The figures of a manager at one moment; `metrics` gives them their names."""

    active: int
    awaiting_result: int
    pending: int
    running: int
    tombstones: int
    calls: int
    cancel_fallback: int
    late_terminal_dropped: int
    duplicate_uid_ignored: int
    answered: dict[int, int]
    rejected: dict[str, int]


class Manager:
    """See the module. Made inside a running event loop.

    form: how answers of its own look, for agents or for the functions socket. now: the clock, in seconds; it must
    never go back. on_room: called when `saturated` has become false again.
    """

    def __init__(
        self,
        bounds: Bounds | None = None,
        *,
        form: Format = for_agents,
        now: Callable[[], float] = clock.monotonic,
        on_room: Callable[[], None] | None = None,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.on_room = on_room
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._engine = Engine(self.bounds, form, self)
        self._effects = self._engine.effects
        self._busy = False
        self._was_saturated = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._drained: asyncio.Event | None = None
        self._ended: asyncio.Event | None = None
        self._hurry = False
        self._idle: dict[str, asyncio.Event] = {}

    # --- functions

    def register(self, name: str, handler: Handler | None, *, timeout: float | None = None) -> None:
        """Registers *name*, or replaces it; None announces a function whose calls are answered 501.

        timeout: seconds for a call that names none. Raises ValueError for a name that no call can carry.
        """
        self._engine.register(name, handler, timeout=timeout)

    def register_prefix(self, name: str, prefix: str, handler: Handler | None, *, timeout: float | None = None) -> None:
        """Registers *handler* for calls of *name* whose first argument starts with *prefix*.

        Raises OverlappingPrefix, logs it as an error and changes nothing where one prefix would shadow another.
        """
        try:
            self._engine.register_prefix(name, prefix, handler, timeout=timeout)
        except OverlappingPrefix as error:
            log.error("overlapping prefix refused", extra={"function": name, "error": str(error)})
            raise

    def unregister(self, name: str) -> None:
        """Withdraws *name* and its prefixes. What was admitted goes on; new calls are answered 501."""
        self._engine.unregister(name)

    def unregister_prefix(self, name: str, prefix: str) -> None:
        """Withdraws one prefix of *name*."""
        self._engine.unregister(name, prefix)

    # --- calls

    def admit(self, call: Call, sink: Sink, *, timeout: float | None = None) -> Admission:
        """Takes *call*; its one answer, and any progress, goes to *sink*, perhaps before this returns.

        timeout: seconds, in place of the call's own. A duplicate of an id in use or of the last minute is ignored.
        """
        admission = self._engine.admit(call, sink, self._now(), timeout=timeout)
        if admission is Admission.DUPLICATE:
            log.warning("duplicate transaction id ignored", extra={"transaction": call.uid})
        self._carry_out()
        return admission

    def reject(self, rejected: Rejected, sink: Sink) -> None:
        """Answers a frame that the decoder refused, where that can be done."""
        log.warning("input refused", extra={"reason": rejected.reason, "error": rejected.message})
        self._engine.reject(rejected, sink, self._now())
        self._carry_out()

    def cancel_unadmitted(self, uid: str, sink: Sink) -> None:
        """Answers 499 to a call whose payload was still being read."""
        self._engine.cancel_unadmitted(uid, sink, self._now())
        self._carry_out()

    def cancel(self, uid: str) -> Cancelled:
        """Cancels a call in whatever state it is; an unknown or answered one is left alone."""
        cancelled = self._engine.cancel(uid, self._now())
        if cancelled is Cancelled.UNKNOWN:
            log.debug("cancellation of a call that is not active", extra={"transaction": uid})
        self._carry_out()
        return cancelled

    def active(self, *, key: str | None = None, sink: Sink | None = None) -> list[Invocation]:
        """Calls without an answer: all, or those of one schedule key, or those whose answers go to *sink*."""
        return [
            invocation
            for invocation in self._engine.ledger.active.values()
            if (key is None or invocation.route.key == key) and (sink is None or invocation.sink == sink)
        ]

    def ask_progress(self, uid: str) -> None:
        """Gives the last progress of a call to its sink again, if there is any."""
        self._engine.ask_progress(uid)
        self._carry_out()

    def answer(self, result: Result) -> bool:
        """Answers an active call from anywhere; False where there is none of that id (any more)."""
        invocation = self._engine.ledger.active.get(result.uid)
        if invocation is None:
            self._engine.ledger.late_terminal_dropped += 1
            log.debug("late answer dropped", extra={"transaction": result.uid})
            return False
        return self.finish(invocation, result)

    def occupied(self, key: str) -> bool:
        """Whether a call of the schedule key *key* runs or waits, its work included."""
        return self._engine.scheduler.occupied(key)

    @property
    def running(self) -> int:
        """How many calls run, over all functions."""
        return self._engine.scheduler.running

    @property
    def saturated(self) -> bool:
        """Whether so much waits that no more input should be read; `on_room` tells when that has changed."""
        waiting, bounds = self._engine.scheduler, self.bounds
        return (
            waiting.waiting >= bounds.queue_size + bounds.read_ahead_calls
            or waiting.waiting_weight > bounds.read_ahead_bytes
        )

    @property
    def stats(self) -> Stats:
        """The figures as they are now."""
        engine = self._engine
        return Stats(
            active=len(engine.ledger.active),
            awaiting_result=engine.ledger.awaiting,
            pending=engine.scheduler.waiting,
            running=engine.scheduler.running,
            tombstones=engine.ledger.tombstones,
            calls=engine.calls,
            cancel_fallback=engine.cancel_fallback,
            late_terminal_dropped=engine.ledger.late_terminal_dropped,
            duplicate_uid_ignored=engine.duplicate_uid_ignored,
            answered=dict(engine.answered),
            rejected=dict(engine.rejected),
        )

    async def idle(self, key: str) -> None:
        """Returns once no call of the schedule key *key* runs or waits, its work included."""
        while self._engine.scheduler.occupied(key):
            event = self._idle.setdefault(key, asyncio.Event())
            await event.wait()

    # --- the end

    def close(self) -> None:
        """Admits no more calls; those that were admitted go on. The first step of `stop`, which takes no time."""
        self._engine.stop()

    async def stop(self) -> bool:
        """Ends the manager: no new calls, `drain` seconds for those that were admitted, 499 for the rest.

        Returns once all work has ended, or `reap` seconds later: then False, as work goes on that cannot be ended.
        Asked again, it waits for the same end.
        """
        if self._ended is not None:
            await self._ended.wait()
            return self._engine.drained
        self._ended = asyncio.Event()
        try:
            return await self._stop()
        finally:
            self._ended.set()

    def cut_short(self) -> None:
        """Ends the drain at once, now or as soon as it begins, for whoever cannot wait."""
        self._hurry = True
        if self._drained is not None:
            self._drained.set()

    async def _stop(self) -> bool:
        self._engine.stop()
        self._drained = asyncio.Event()
        await self._until_drained(0.0 if self._hurry else self.bounds.drain)
        if (left := self._engine.abandon(self._now())) > 0:
            log.warning("calls were cancelled because the manager stops", extra={"calls": left})
        self._carry_out()
        self._drained.clear()
        await self._until_drained(self.bounds.reap)
        if self._timer is not None:
            self._timer.cancel()
        if not self._engine.drained:
            log.error("work goes on that could not be ended", extra={"calls": self._engine.scheduler.running})
        return self._engine.drained

    async def _until_drained(self, seconds: float) -> None:
        assert self._drained is not None
        if not self._engine.drained:
            try:
                async with asyncio.timeout(seconds):
                    await self._drained.wait()
            except TimeoutError:
                return

    # --- what handlers say (Desk)

    def finish(self, invocation: Invocation, result: Result) -> bool:
        """See Invocation.finish."""
        if threading.get_ident() != self._thread:
            self._hand_over(self.finish, invocation, result)
            return True
        first = self._engine.finish(invocation, result, self._now())
        self._note_late(first, invocation)
        return first

    def complete(self, invocation: Invocation, result: Result) -> bool:
        """See Invocation.complete."""
        if threading.get_ident() != self._thread:
            self._hand_over(self.complete, invocation, result)
            return True
        first = self._engine.complete(invocation, result, self._now())
        self._note_late(first, invocation)
        return first

    def fail(self, invocation: Invocation, failure: Failure) -> bool:
        """See Invocation.fail."""
        if threading.get_ident() != self._thread:
            self._hand_over(self.fail, invocation, failure)
            return True
        first = self._engine.fail(invocation, failure, self._now())
        self._note_late(first, invocation)
        return first

    def end(self, invocation: Invocation) -> None:
        """See Invocation.end."""
        if threading.get_ident() != self._thread:
            self._hand_over(self.end, invocation)
            return
        self._engine.end(invocation, self._now())
        self._carry_out()

    def report(self, invocation: Invocation, progress: Progress) -> None:
        """See Invocation.progress."""
        if threading.get_ident() != self._thread:
            self._hand_over(self.report, invocation, progress)
            return
        self._engine.report(invocation, progress, self._now())
        self._carry_out()

    def _hand_over(self, say: Callable[..., object], *what: object) -> None:
        """Has *say* called on the manager's thread; once its loop has ended nobody waits for it any more."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(say, *what)

    def _note_late(self, first: bool, invocation: Invocation) -> None:
        if not first:
            log.debug("late answer dropped", extra={"transaction": invocation.call.uid})
        self._carry_out()

    # --- inside

    def _carry_out(self) -> None:
        """Does what the engine decided. Whoever is called here may come back in; the outermost does the work."""
        if self._busy:
            return
        effects = self._effects
        self._busy = True
        try:
            while effects:
                try:
                    self._do(effects.popleft())
                except Exception:
                    log.exception("a sink or a handler failed")
        finally:
            self._busy = False
        if self._drained is not None and self._engine.drained:
            self._drained.set()
        if self._was_saturated and not self.saturated:
            self._was_saturated = False
            if self.on_room is not None:
                self.on_room()
        elif self._engine.scheduler.waiting:
            self._was_saturated = self.saturated
        if self._idle:
            self._tell_idle()
        self._set_timer()

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Emit):
            effect.sink(effect.event)
        elif isinstance(effect, Start):
            self._start(effect.invocation)
        elif isinstance(effect, Stop):
            self._stop_one(effect.invocation, effect.why)
        elif isinstance(effect, Kill):
            if (handler := effect.invocation.route.handler) is not None:
                handler.kill(effect.invocation)
        else:
            call = effect.invocation.call
            log.warning("call awaits its result", extra={"transaction": call.uid, "function": call.function})

    def _start(self, invocation: Invocation) -> None:
        handler = invocation.route.handler
        assert handler is not None
        try:
            handler.start(invocation)
        except Exception:
            handlers.panic(invocation)

    def _stop_one(self, invocation: Invocation, why: Why) -> None:
        handler = invocation.route.handler
        if invocation.working and handler is not None:
            handler.stop(invocation, why)
        if invocation.on_stop is not None:
            invocation.on_stop(why)

    def _tell_idle(self) -> None:
        for key in [key for key in self._idle if not self._engine.scheduler.occupied(key)]:
            self._idle.pop(key).set()

    def _set_timer(self) -> None:
        first = self._engine.next_due()
        if first is not None and first < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = first
            self._timer = self._loop.call_later(max(0.0, first - self._now()), self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._engine.advance(self._now() + TIMER_SLACK)
        self._carry_out()
