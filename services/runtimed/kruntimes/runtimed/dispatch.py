"""Invocations of our own functions: one slot, one call, and the slot freed when the work has ended (design §6).

The request handler awaits `Dispatcher.invoke`. If it is cancelled because the caller left, the call is cancelled at
once. On the functions socket the slot is free with the call's result, whoever is left to hear it. Over gRPC, and
where a connection was lost, a task of the service's own waits until the Runtime Server says that nothing is in flight.
"""

import asyncio
import functools
import itertools
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from kruntimes.common import clock
from kruntimes.common.api import outcomes
from kruntimes.common.api.outcomes import Failure, Kind
from kruntimes.common.errors import NotReady
from kruntimes.functions.wire.events import Progress, Result
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtimed.codes import MESSAGES, describe, details_of, lost, outcome_of, settled, violation
from kruntimes.runtimed.errorinfo import info_of
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.invocation import Answer, Invocation, failure
from kruntimes.runtimed.link import FunctionsLink, Lost
from kruntimes.runtimed.linkcodes import answer_of, frame_of, link_lost
from kruntimes.runtimed.observed import FunctionState, Stage
from kruntimes.runtimed.progress import Feed, Follower
from kruntimes.runtimed.registration import RuntimeServer
from kruntimes.runtimed.slots import Busy, Slot, Slots

log = logging.getLogger(__name__)

DEADLINE_GRACE_SECONDS = 1.0
"""The Runtime Server keeps the deadline and says what became of the work; after this we answer without it."""
LOOK_SECONDS = 0.1
"""Between two looks at the deadlines of what is under way: one timer for all, none is made for a call."""
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.005, 0.25
"""Between two looks whether cancelled work has ended: most ends at once, and a killed process within seconds."""
IDLE_LOOKS = 2
"""Looks in a row that must find nothing in flight."""


NEVER = float("inf")
OnAnswer = Callable[[Answer | Failure], None]


@dataclass(slots=True, eq=False)
class _Work:
    """A slot in use. cancelled: somebody asked for its end, by id or because the epoch ends.

    call: over gRPC. on_answer: on the functions socket, who is told, once; latest: when that must have been, monotonic.
    """

    slot: Slot
    invocation_id: str
    held: Held
    call: grpc.aio.UnaryUnaryCall[pb.InvokeFunctionRequest, pb.InvokeFunctionResponse] | None = None
    on_answer: OnAnswer | None = None
    latest: float = NEVER
    cancelled: bool = False
    feed: Feed | None = None


@dataclass(slots=True)
class Dispatcher:
    """Calls functions through *server*.

    tasks: the group in which abandoned work is waited for. on_ended: told when the last work of a closed epoch has
    ended. on_lost: told when a call found the registration or its server gone.
    """

    server: RuntimeServer
    slots: Slots
    tasks: asyncio.TaskGroup
    on_ended: Callable[[Held], None]
    on_lost: Callable[[Held], None]
    _work: dict[str, _Work] = field(default_factory=dict)
    _mine: str = field(default_factory=lambda: secrets.token_hex(6))
    _transactions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _watch: asyncio.TimerHandle | None = None

    def begin(self, held: Held, invocation: Invocation, on_answer: OnAnswer) -> Callable[[], None] | None:
        """As `invoke`, without a task, where the functions socket takes the call; None where it does not.

        *on_answer* is told once, perhaps before this returns. What is returned is to be called if the caller leaves.
        """
        link = self.server.link
        if not held.linked or link is None or not link.usable:
            return None
        work = self._take(held, invocation)
        if isinstance(work, Failure):
            on_answer(work)
            return _nothing
        self._send(link, work, invocation, on_answer)
        return functools.partial(self._left, link, work)

    async def invoke(self, held: Held, invocation: Invocation) -> Answer | Failure:
        """Runs one call on *held*, which the caller has found serving without an await in between.

        Cancelled from outside, it raises CancelledError at once and leaves the work to be waited for.
        """
        answered: asyncio.Future[Answer | Failure] = asyncio.get_running_loop().create_future()

        def on_answer(answer: Answer | Failure) -> None:
            if not answered.done():
                answered.set_result(answer)

        left = self.begin(held, invocation, on_answer)
        if left is not None:
            try:
                return await answered
            except asyncio.CancelledError:
                left()
                raise
        work = self._take(held, invocation)
        if isinstance(work, Failure):
            return work
        over = False
        try:
            result, over = await self._call(work, invocation)
            return result
        finally:
            if over or work.call is None:
                self._end(work)
            else:
                self._settle_later(work)

    def _take(self, held: Held, invocation: Invocation) -> _Work | Failure:
        """The Run's slot, taken for *invocation*."""
        taken = self.slots.take(held.epoch, f"{self._mine}-{next(self._transactions)}")
        if isinstance(taken, Busy):
            return failure(outcomes.IN_FLIGHT, "an invocation of this Run is in flight", invocation.id)
        work = self._work[held.epoch.run_uid] = _Work(taken, invocation.id, held)
        return work

    # --- on the functions socket

    def _send(self, link: FunctionsLink, work: _Work, invocation: Invocation, on_answer: OnAnswer) -> None:
        work.on_answer = on_answer
        try:
            frame = frame_of(work.held, invocation, tx=work.slot.tx)
        except ValueError:
            self._end(work)
            self._answer(work, failure(outcomes.BAD_REQUEST, "the content type cannot be passed on", invocation.id))
        else:
            link.call(work.slot.tx, frame, functools.partial(self._told, work))
            work.latest = clock.monotonic() + invocation.seconds + DEADLINE_GRACE_SECONDS
            if self._watch is None:  # no call otherwise asks for the loop, which costs a system call
                self._watch = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look, link)

    def _left(self, link: FunctionsLink, work: _Work) -> None:
        """The caller has gone; the slot waits for the work's end."""
        work.on_answer = None
        link.cancel(work.slot.tx)

    def _told(self, work: _Work, result: Result | Progress | Lost) -> None:
        """The call's result has come, or never will. The slot is free before its caller goes on."""
        if isinstance(result, Progress):
            _feed(work).tell(result)
            return
        if isinstance(result, Lost):
            work.latest = NEVER
            self._doubt(work.held)
            self._settle_later(work)
        else:
            if link_lost(result.code):
                self._doubt(work.held)
            self._end(work)
        if work.on_answer is not None:
            if isinstance(result, Lost):
                self._answer_kind(work, outcomes.OUTCOME_UNKNOWN)
            else:
                self._answer(work, answer_of(result, invocation_id=work.invocation_id))

    def _look(self, link: FunctionsLink) -> None:
        """Ends what is overdue, and looks again for as long as anything is under way."""
        self._watch = None
        now = clock.monotonic()
        for work in [work for work in self._work.values() if work.latest <= now]:
            self._overdue(link, work)
        if self._work:
            self._watch = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look, link)

    def _overdue(self, link: FunctionsLink, work: _Work) -> None:
        """The Runtime Server has not kept the deadline: the caller is answered, and the work is waited for."""
        work.latest = NEVER
        link.cancel(work.slot.tx)
        link.forget(work.slot.tx)
        self._settle_later(work)
        self._answer_kind(work, outcomes.DEADLINE_EXCEEDED)

    def _answer_kind(self, work: _Work, kind: Kind) -> None:
        self._answer(work, failure(kind, MESSAGES[kind], work.invocation_id))

    def _answer(self, work: _Work, answer: Answer | Failure) -> None:
        """Tells whoever still waits."""
        on_answer, work.on_answer = work.on_answer, None
        if on_answer is not None:
            on_answer(answer)

    # --- over gRPC

    async def _call(self, work: _Work, invocation: Invocation) -> tuple[Answer | Failure, bool]:
        """The outcome, and whether it proves that the work has ended."""
        held, started = work.held, clock.monotonic()
        connected = self.server.connected or await self.server.ready()
        if work.cancelled:
            return failure(outcomes.CANCELLED, "the invocation was cancelled", invocation.id), True
        if not connected:
            self._doubt(held)
            return failure(outcomes.NOT_READY, "the Runtime Server is away", invocation.id), True
        request = pb.InvokeFunctionRequest(
            registration=pb.FunctionRegistration(run_uid=held.epoch.run_uid, registration_id=held.registration_id),
            invocation_id=invocation.id,
            input=invocation.body,
            content_type=invocation.content_type,
            timeout_millis=max(1, round(invocation.seconds * 1000)),
        )
        metadata = (("traceparent", invocation.trace),) if invocation.trace else ()
        work.call = self.server.invoke(request, timeout=invocation.seconds + DEADLINE_GRACE_SECONDS, metadata=metadata)
        try:
            response = await work.call
        except grpc.aio.AioRpcError as error:
            info, code, text = info_of(error), error.code().name, error.details() or ""
            if lost(code, connected):
                self._doubt(held)
            kind = outcome_of(code, info, connected, text)
            message = MESSAGES.get(kind) or describe(info, text) or "the function failed"
            return failure(kind, message, invocation.id, details_of(info)), settled(code, info, connected)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if work.cancelled and task is not None and not task.cancelling():
                return failure(outcomes.CANCELLED, "the invocation was cancelled", invocation.id), False
            raise
        if (broken := violation(response.output, response.outputs)) is not None:
            return failure(outcomes.FUNCTION_ERROR, broken, invocation.id), True
        answer = Answer(
            output=response.output,
            content_type=response.content_type or "application/octet-stream",
            outputs=dict(response.outputs),
            seconds=clock.monotonic() - started,
        )
        return answer, True

    # --- either way

    def cancel(self, run_uid: str, invocation_id: str) -> bool:
        """Cancels the call of that id; False where it is not in flight. Its own caller is answered 499."""
        work = self._work.get(run_uid)
        if work is None or work.invocation_id != invocation_id:
            return False
        self._cancel(work)
        return True

    def follow(self, run_uid: str, invocation_id: str, follower: Follower) -> Callable[[], None] | None:
        """Has *follower* told of that call's progress until its work has ended; None where it is not in flight.

        What is returned ends that before. Raises TooManyFollowers.
        """
        work = self._work.get(run_uid)
        if work is None or work.invocation_id != invocation_id:
            return None
        return _feed(work).follow(follower)

    def cancel_all(self, run_uid: str) -> None:
        """Cancels whatever of the Run is in flight."""
        if work := self._work.get(run_uid):
            self._cancel(work)

    def _cancel(self, work: _Work) -> None:
        work.cancelled = True
        if work.call is not None:
            work.call.cancel()
        if work.call is None and self.server.link is not None:
            self.server.link.cancel(work.slot.tx)
            self._answer_kind(work, outcomes.CANCELLED)

    def _settle_later(self, work: _Work) -> None:
        settling = self._settle(work)
        try:
            self.tasks.create_task(settling)
        except RuntimeError:  # the group is ending, and the process with it
            settling.close()

    async def _settle(self, work: _Work) -> None:
        """Waits until the Runtime Server has ended the work, or the whole registration is gone.

        A call that was broken off early may reach its handler just after the first look, so it takes two looks in a
        row, the second sent after the first was answered.
        """
        held, wait, idle = work.held, FIRST_LOOK_SECONDS, 0
        while held.stage is Stage.REGISTERED:
            try:
                function = await self.server.status(run_uid=held.epoch.run_uid, registration_id=held.registration_id)
            except NotReady:
                idle = 0  # away: it either comes back and says, or its registration ends
            else:
                idle = idle + 1 if function.in_flight == 0 else 0
                if idle == IDLE_LOOKS or function.state is FunctionState.FORGOTTEN:
                    break
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_LOOK_SECONDS)
        self._end(work)

    def _end(self, work: _Work) -> None:
        held = work.held
        self.slots.ended(work.slot)
        if work.feed is not None:
            work.feed.end()
        if self._work.get(held.epoch.run_uid) is work:
            del self._work[held.epoch.run_uid]
        held.last_activity = clock.wall()
        if held.open:
            held.cancelled_at = None
        else:
            self.on_ended(held)

    def _doubt(self, held: Held) -> None:
        held.function = None
        self.on_lost(held)


def _feed(work: _Work) -> Feed:
    if work.feed is None:
        work.feed = Feed()
    return work.feed


def _nothing() -> None:
    """A caller that was answered leaves nothing behind."""
