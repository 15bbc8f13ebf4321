"""Every decision of the functions manager: admission, order, cancellation, deadlines, the end. Pure.

Events come in as method calls with `now`; what has to be done comes out as effects, in order, to be carried out
by whoever owns the engine. An answer stands before the start of the call that it made room for.
Source: second source document, from "Admission checks" to "Shutdown behavior"; design §7.
"""

from collections import Counter, deque
from enum import Enum, auto
from typing import NamedTuple

from kruntimes.functions import failures
from kruntimes.functions.agenda import Agenda, Due
from kruntimes.functions.bounds import Bounds, Overlap
from kruntimes.functions.failures import Failure
from kruntimes.functions.invocation import Desk, Handler, Invocation, Sink, State, Why
from kruntimes.functions.ledger import Ledger
from kruntimes.functions.routes import Routes
from kruntimes.functions.scheduler import Scheduler
from kruntimes.functions.wire.events import Call, Progress, Rejected, Result

OVERRUN_CALLS = 4096
"""What one read of 64 KiB can hold beyond the moment at which reading stops; more than that is answered 503."""


class Admission(Enum):
    """What became of a call. ANSWERED: it was refused, and its sink has been told."""

    ADMITTED = auto()
    ANSWERED = auto()
    DUPLICATE = auto()


class Cancelled(Enum):
    """What a cancellation did. ANSWERED: 499 at once. ASKED: the work was told to stop. REPEATED, UNKNOWN: nothing."""

    ANSWERED = auto()
    ASKED = auto()
    REPEATED = auto()
    UNKNOWN = auto()


class Start(NamedTuple):
    """Start the call's handler."""

    invocation: Invocation


class Stop(NamedTuple):
    """Tell the work to stop."""

    invocation: Invocation
    why: Why


class Kill(NamedTuple):
    """End the work by force."""

    invocation: Invocation


class Emit(NamedTuple):
    """Give *event* to *sink*."""

    sink: Sink
    event: Result | Progress


class Warn(NamedTuple):
    """Log that the call awaits its result for long."""

    invocation: Invocation


Effect = Start | Stop | Kill | Emit | Warn


class Engine:
    """See the module. desk: what invocations talk to. form: how the engine's own answers look."""

    def __init__(self, bounds: Bounds, form: failures.Format, desk: Desk) -> None:
        self.routes: Routes[Handler] = Routes()
        self.ledger = Ledger(tombstone=bounds.tombstone, tombstones=bounds.tombstones)
        self.scheduler: Scheduler[Invocation] = Scheduler(workers=bounds.workers)
        self.effects: deque[Effect] = deque()
        self.stopping = False
        self.calls = 0
        self.cancel_fallback = 0
        self.duplicate_uid_ignored = 0
        self.answered: Counter[int] = Counter()
        self.rejected: Counter[str] = Counter()
        self._bounds = bounds
        self._form = form
        self._desk = desk
        self._agenda: Agenda[Invocation] = Agenda(_over)
        self._halted = False

    # --- functions

    def register(self, name: str, handler: Handler | None, *, timeout: float | None = None) -> None:
        """Registers or replaces a function. Raises ValueError."""
        self.scheduler.keep(self.routes.register(name, handler, timeout=timeout).key)

    def register_prefix(self, name: str, prefix: str, handler: Handler | None, *, timeout: float | None = None) -> None:
        """Registers or replaces one prefix of a function. Raises OverlappingPrefix, ValueError."""
        self.scheduler.keep(self.routes.register_prefix(name, prefix, handler, timeout=timeout).key)

    def unregister(self, name: str, prefix: str | None = None) -> None:
        """Withdraws a function, or one prefix of it. What was admitted goes on."""
        gone = self.routes.unregister(name) if prefix is None else self.routes.unregister_prefix(name, prefix)
        for route in gone:
            self.scheduler.forget(route.key)

    # --- input

    def admit(self, call: Call, sink: Sink, now: float, *, timeout: float | None = None) -> Admission:
        """Takes one call. timeout: seconds, where they are known better than the call's own whole ones.

        The id is looked at first, so that a duplicate can disturb nothing, whatever else is wrong with it.
        """
        self.calls += 1
        uid = call.uid
        if self.ledger.known(uid, now):
            self.duplicate_uid_ignored += 1
            return Admission.DUPLICATE
        if self.stopping:
            return self._refuse(uid, sink, failures.STOPPING, now)
        route = self.routes.resolve(call.function, call.args)
        if route is None:
            return self._refuse(uid, sink, failures.UNKNOWN_FUNCTION, now)
        if route.handler is None:
            return self._refuse(uid, sink, failures.NO_HANDLER, now)
        if timeout is None:
            timeout = call.timeout or route.timeout or self._bounds.default_timeout
        timeout = min(max(timeout, 0.0), self._bounds.max_timeout)
        invocation = Invocation(self._desk, call, route, sink, admitted=now, timeout=timeout)
        if self.scheduler.start(route.key, uid):
            self.ledger.add(invocation)
            self.ledger.run(invocation)
            self.effects.append(Start(invocation))
        elif self._bounds.overlap is Overlap.REFUSE:
            taken = self.scheduler.occupied(route.key)
            return self._refuse(uid, sink, failures.BUSY if taken else failures.NO_WORKER, now)
        elif self.scheduler.waiting >= self._bounds.queue_size + self._bounds.read_ahead_calls + OVERRUN_CALLS:
            return self._refuse(uid, sink, failures.QUEUE_FULL, now)
        else:
            self.ledger.add(invocation)
            self.scheduler.wait(route.key, uid, invocation, len(call.payload or b""))
            self._dispatch()
        self._agenda.add(invocation.deadline, Due.DEADLINE, invocation)
        return Admission.ADMITTED

    def reject(self, rejected: Rejected, sink: Sink, now: float) -> None:
        """Answers a frame that is no call, where it can be told whose it is and that id is not in use."""
        self.rejected[rejected.reason] += 1
        if rejected.uid is not None:
            self._answer_unadmitted(rejected.uid, sink, failures.of_rejected(rejected), now)

    def cancel_unadmitted(self, uid: str, sink: Sink, now: float) -> None:
        """A call was cancelled while its payload was read. Another one of that id is not touched."""
        self._answer_unadmitted(uid, sink, failures.CANCELLED_UNREAD, now)

    def cancel(self, uid: str, now: float) -> Cancelled:
        """Cancels a call: one that waits is answered 499 at once, one that runs is told and has its time to answer."""
        invocation = self.ledger.active.get(uid)
        if invocation is None:
            return Cancelled.UNKNOWN
        if invocation.cancel_requested:
            return Cancelled.REPEATED
        invocation.cancel_requested = True
        if invocation.state is State.QUEUED:
            self._tell(invocation, Why.CANCELLED)
            self._finalise(invocation, failures.CANCELLED, now)
            return Cancelled.ANSWERED
        self._tell(invocation, Why.CANCELLED)
        self._agenda.add(now + self._bounds.cancel_grace, Due.CANCEL_GRACE, invocation)
        return Cancelled.ASKED

    def ask_progress(self, uid: str) -> None:
        """The caller asks how far a call is; it gets what was reported last, or nothing."""
        invocation = self.ledger.active.get(uid)
        if invocation is not None and invocation.reported is not None:
            self.effects.append(Emit(invocation.sink, invocation.reported))

    # --- what handlers say

    def finish(self, invocation: Invocation, result: Result, now: float) -> bool:
        """An answer; False where the call has one, and this one is dropped."""
        if not self._take(invocation, self._fit(invocation, result), now):
            return False
        self._dispatch()
        return True

    def complete(self, invocation: Invocation, result: Result, now: float) -> bool:
        """An answer and the end of the work."""
        first = self._take(invocation, self._fit(invocation, result), now)
        if invocation.working:
            self.end(invocation, now)
        else:
            self._dispatch()
        return first

    def fail(self, invocation: Invocation, failure: Failure, now: float) -> bool:
        """As `complete`, for work that broke."""
        return self.complete(invocation, self._own(invocation.call.uid, failure), now)

    def end(self, invocation: Invocation, now: float) -> None:
        """The work has ended; saying it again changes nothing."""
        if not invocation.working:
            return
        invocation.working = False
        self.scheduler.worker_freed()
        if invocation.state is State.TERMINAL:
            self.scheduler.release(invocation.route.key, invocation.call.uid)
        else:
            self.ledger.await_result(invocation)
            if invocation.timed_out:
                self._finalise(invocation, failures.DEADLINE, now)
            else:
                delay = min(self._bounds.awaiting_warning, invocation.timeout)
                self._agenda.add(now + delay, Due.AWAITING_WARNING, invocation)
        self._dispatch()

    def report(self, invocation: Invocation, progress: Progress, now: float) -> None:
        """Progress of a call; forwarded at most once in an interval, but for the first that says all is done."""
        last = invocation.reported
        if invocation.state is State.TERMINAL or (last is not None and progress.done < last.done):
            return
        invocation.reported = progress
        complete = _complete(progress) and not (last is not None and _complete(last))
        if complete or now - invocation.reported_at >= self._bounds.progress_interval:
            invocation.reported_at = now
            self.effects.append(Emit(invocation.sink, progress))

    # --- time

    def next_due(self) -> float | None:
        """When `advance` should be called next."""
        return self._agenda.first()

    def advance(self, now: float) -> None:
        """Does everything that is due at *now*."""
        while (entry := self._agenda.pop(now)) is not None:
            due, invocation = entry
            match due:
                case Due.DEADLINE:
                    self._deadline(invocation, now)
                case Due.DEADLINE_GRACE:
                    self._give_up(invocation, failures.DEADLINE, now)
                case Due.CANCEL_GRACE:
                    if invocation.state is not State.TERMINAL:
                        self.cancel_fallback += 1
                    self._give_up(invocation, failures.CANCELLED, now)
                case Due.AWAITING_WARNING:
                    if invocation.state is State.AWAITING_RESULT:
                        self.effects.append(Warn(invocation))

    # --- the end

    def stop(self) -> None:
        """No call is admitted from now on; those that were go on."""
        self.stopping = True

    @property
    def drained(self) -> bool:
        """Whether nothing runs and nothing waits to run; calls may still await their result."""
        return self.scheduler.running == 0 and self.scheduler.waiting == 0

    def abandon(self, now: float) -> int:
        """Ends the drain: nothing starts any more, every call without an answer gets 499; how many those were."""
        self.stopping = self._halted = True
        left = list(self.ledger.active.values())
        for invocation in left:
            self._tell(invocation, Why.STOPPING)
            self._give_up(invocation, failures.CANCELLED_AT_STOP, now)
        return len(left)

    # --- inside

    def _refuse(self, uid: str, sink: Sink, failure: Failure, now: float) -> Admission:
        self.ledger.bury(uid, now)
        self._emit(sink, self._own(uid, failure))
        return Admission.ANSWERED

    def _answer_unadmitted(self, uid: str, sink: Sink, failure: Failure, now: float) -> None:
        if self.ledger.known(uid, now):
            self.duplicate_uid_ignored += 1
        else:
            self._refuse(uid, sink, failure, now)

    def _deadline(self, invocation: Invocation, now: float) -> None:
        invocation.timed_out = True
        self._tell(invocation, Why.DEADLINE)
        if invocation.working and self._bounds.deadline_grace > 0:
            self._agenda.add(now + self._bounds.deadline_grace, Due.DEADLINE_GRACE, invocation)
        else:
            self._give_up(invocation, failures.DEADLINE, now)

    def _tell(self, invocation: Invocation, why: Why) -> None:
        if invocation.why is None:
            invocation.why = why
        self.effects.append(Stop(invocation, why))

    def _give_up(self, invocation: Invocation, failure: Failure, now: float) -> None:
        """Answers for work that did not, and ends it by force."""
        if invocation.state is not State.TERMINAL:
            self._finalise(invocation, failure, now)
        if invocation.working:
            self.effects.append(Kill(invocation))

    def _finalise(self, invocation: Invocation, failure: Failure, now: float) -> None:
        self._take(invocation, self._own(invocation.call.uid, failure), now)
        self._dispatch()

    def _fit(self, invocation: Invocation, result: Result) -> Result:
        """What a handler's *result* counts for: no other call's, with a code that is one, and in time."""
        if result.uid != invocation.call.uid or not 100 <= result.code < 600:
            result = self._own(invocation.call.uid, failures.NOT_AN_ANSWER)
        if invocation.timed_out and result.code != failures.DEADLINE.code:
            result = self._own(invocation.call.uid, failures.DEADLINE)
        return result

    def _take(self, invocation: Invocation, result: Result, now: float) -> bool:
        waited = invocation.state is State.QUEUED
        if not self.ledger.finalise(invocation, now):
            return False
        self._emit(invocation.sink, result)
        if waited:
            self.scheduler.withdraw(invocation.route.key, invocation.call.uid)
        elif not invocation.working:
            self.scheduler.release(invocation.route.key, invocation.call.uid)
        return True

    def _dispatch(self) -> None:
        if self._halted:
            return
        while (invocation := self.scheduler.next()) is not None:
            self.ledger.run(invocation)
            self.effects.append(Start(invocation))

    def _own(self, uid: str, failure: Failure) -> Result:
        content_type, body = self._form(failure)
        return Result(uid=uid, code=failure.code, content_type=content_type, body=body)

    def _emit(self, sink: Sink, result: Result) -> None:
        self.answered[result.code] += 1
        self.effects.append(Emit(sink, result))


def _over(invocation: Invocation) -> bool:
    return invocation.state is State.TERMINAL and not invocation.working


def _complete(progress: Progress) -> bool:
    return progress.done >= progress.total > 0
