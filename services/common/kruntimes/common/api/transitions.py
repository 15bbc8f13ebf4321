"""The transition table of a Run: who may move it from where to where, and why (design §5).

Both `decide` functions choose among these rows, and every write is checked against them before it
leaves the process: a transition that is not here is a bug, not a state.
"""

from dataclasses import dataclass
from enum import StrEnum

from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason


class Writer(StrEnum):
    """The one component that owns a transition."""

    SCHEDULER = "scheduler"
    OPERATOR = "operator"
    RUNTIMED = "runtimed"


class Event(StrEnum):
    """What happens to a Run, or is found out about it. The value is what people read in the documentation."""

    CANCEL_REQUESTED_WAITING = "cancel requested before it is assigned"
    LIFETIME_OVER_WAITING = "lifetime over while it waits for a retry"
    POD_HAS_ROOM = "a ready Pod with a live heartbeat has room, and the back-off has passed"
    UNCLAIMED = "not claimed in 30 s though the heartbeat lives"
    CLAIMED = "its runtimed claims it"
    REGISTERED = "the function is registered"
    FORGOTTEN = "the Runtime Server was restarted and knows nothing of it"
    REGISTRATION_FAILED = "registration or Runtime Server failed, attempts left"
    REGISTRATION_EXHAUSTED = "registration or Runtime Server failed, no attempt left"
    CANCEL_REQUESTED = "cancel requested"
    DRAINED = "its Pod is deleting and has unregistered it, attempts left"
    DRAINED_EXHAUSTED = "its Pod is deleting and has unregistered it, no attempt left"
    LIFETIME_OVER = "startTime + spec.timeout has passed"
    IDLE = "idle for longer than idleTimeoutSeconds"
    TASK_SUCCEEDED = "the task succeeded"
    TASK_FAILED = "the task failed, attempts left"
    TASK_EXHAUSTED = "the task failed, no attempt left"
    POD_LOST = "its Pod is lost and fenced, attempts left"
    POD_LOST_EXHAUSTED = "its Pod is lost and fenced, no attempt left"
    POD_LOST_CANCELLED = "its Pod is lost and fenced, cancelled meanwhile"
    POD_LOST_LIFETIME = "its Pod is lost and fenced, lifetime over meanwhile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One row: *writer* may move a Run from any of *sources* to *target* when *event* holds."""

    sources: frozenset[Phase]
    event: Event
    writer: Writer
    target: Phase
    reasons: frozenset[Reason]


def _row(sources: tuple[Phase, ...], event: Event, writer: Writer, target: Phase, *reasons: Reason) -> Transition:
    return Transition(sources=frozenset(sources), event=event, writer=writer, target=target, reasons=frozenset(reasons))


_HELD = (Phase.SCHEDULED, Phase.RUNNING, Phase.READY)
_LIVE = (Phase.RUNNING, Phase.READY)
_FENCES = (Reason.FENCED_POD_GONE, Reason.FENCED_OUT_OF_ENDPOINTS)
_REGISTRATION = (
    Reason.SOURCE_FAILED,
    Reason.REGISTRATION_FAILED,
    Reason.RUNTIME_SERVER_FAILED,
    Reason.FUNCTION_UNSUPPORTED,
)
_TASK = (
    Reason.SOURCE_FAILED,
    Reason.TASK_FAILED,
    Reason.TASK_UNSUPPORTED,
    Reason.RUNTIME_SERVER_FAILED,
    Reason.RUNTIME_POD_LOST,
)

TRANSITIONS: tuple[Transition, ...] = (
    _row((Phase.PENDING,), Event.CANCEL_REQUESTED_WAITING, Writer.SCHEDULER, Phase.CANCELLED, Reason.CANCELLED),
    _row(
        (Phase.PENDING,),
        Event.LIFETIME_OVER_WAITING,
        Writer.SCHEDULER,
        Phase.TIMEOUT,
        Reason.LIFETIME_TIMEOUT,
    ),
    _row((Phase.PENDING,), Event.POD_HAS_ROOM, Writer.SCHEDULER, Phase.SCHEDULED, Reason.SCHEDULED),
    _row((Phase.SCHEDULED,), Event.UNCLAIMED, Writer.OPERATOR, Phase.PENDING, Reason.UNSCHEDULED),
    _row((Phase.SCHEDULED,), Event.CLAIMED, Writer.RUNTIMED, Phase.RUNNING, Reason.PREPARING),
    _row((Phase.RUNNING,), Event.REGISTERED, Writer.RUNTIMED, Phase.READY, Reason.FUNCTION_REGISTERED),
    _row(
        (Phase.RUNNING, Phase.READY),
        Event.FORGOTTEN,
        Writer.RUNTIMED,
        Phase.RUNNING,
        Reason.REGISTERING,
    ),
    _row(_LIVE, Event.REGISTRATION_FAILED, Writer.RUNTIMED, Phase.PENDING, *_REGISTRATION),
    _row(_LIVE, Event.REGISTRATION_EXHAUSTED, Writer.RUNTIMED, Phase.FAILED, Reason.RETRIES_EXHAUSTED),
    _row(_HELD, Event.CANCEL_REQUESTED, Writer.RUNTIMED, Phase.CANCELLED, Reason.CANCELLED),
    _row(_HELD, Event.DRAINED, Writer.RUNTIMED, Phase.PENDING, Reason.FENCED_UNREGISTERED),
    _row(_HELD, Event.DRAINED_EXHAUSTED, Writer.RUNTIMED, Phase.FAILED, Reason.RETRIES_EXHAUSTED),
    _row(_HELD, Event.LIFETIME_OVER, Writer.RUNTIMED, Phase.TIMEOUT, Reason.LIFETIME_TIMEOUT),
    _row((Phase.READY,), Event.IDLE, Writer.RUNTIMED, Phase.TIMEOUT, Reason.IDLE_TIMEOUT),
    _row((Phase.RUNNING,), Event.TASK_SUCCEEDED, Writer.RUNTIMED, Phase.SUCCEEDED, Reason.TASK_SUCCEEDED),
    _row((Phase.RUNNING,), Event.TASK_FAILED, Writer.RUNTIMED, Phase.PENDING, *_TASK),
    _row((Phase.RUNNING,), Event.TASK_EXHAUSTED, Writer.RUNTIMED, Phase.FAILED, Reason.RETRIES_EXHAUSTED),
    _row(_HELD, Event.POD_LOST, Writer.OPERATOR, Phase.PENDING, *_FENCES),
    _row(
        _HELD,
        Event.POD_LOST_EXHAUSTED,
        Writer.OPERATOR,
        Phase.FAILED,
        Reason.RETRIES_EXHAUSTED,
    ),
    _row(_HELD, Event.POD_LOST_CANCELLED, Writer.OPERATOR, Phase.CANCELLED, Reason.CANCELLED),
    _row(
        _HELD,
        Event.POD_LOST_LIFETIME,
        Writer.OPERATOR,
        Phase.TIMEOUT,
        Reason.LIFETIME_TIMEOUT,
    ),
)


class ForbiddenTransition(AssertionError):
    """A component was about to write a transition that design §5 does not give it."""


def row(source: Phase, event: Event) -> Transition | None:
    """The row by which *event* moves a Run out of *source*; None where it cannot happen there or moves nothing."""
    return next((one for one in TRANSITIONS if one.event is event and source in one.sources), None)


def check(source: Phase, target: Phase, writer: Writer) -> None:
    """Raises ForbiddenTransition unless *writer* may move a Run from *source* to *target*.

    Staying in a phase (a condition or a message changed) is allowed in every phase that is not terminal.
    """
    if source == target and source in (*_HELD, Phase.PENDING):
        return
    if any(one.writer is writer and one.target is target and source in one.sources for one in TRANSITIONS):
        return
    raise ForbiddenTransition(f"{writer.value} may not move a Run from {source.value} to {target.value}")
