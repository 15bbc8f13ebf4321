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


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One row: *writer* may move a Run from any of *sources* to *target* when *event* holds."""

    sources: frozenset[Phase]
    event: str
    writer: Writer
    target: Phase
    reasons: frozenset[Reason]


def _row(sources: tuple[Phase, ...], event: str, writer: Writer, target: Phase, *reasons: Reason) -> Transition:
    return Transition(sources=frozenset(sources), event=event, writer=writer, target=target, reasons=frozenset(reasons))


_HELD = (Phase.SCHEDULED, Phase.RUNNING, Phase.READY)
_LIVE = (Phase.RUNNING, Phase.READY)
_FENCES = (Reason.FENCED_POD_GONE, Reason.FENCED_OUT_OF_ENDPOINTS, Reason.FENCED_UNREGISTERED)
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
    _row((Phase.PENDING,), "cancel requested", Writer.SCHEDULER, Phase.CANCELLED, Reason.CANCELLED),
    _row(
        (Phase.PENDING,),
        "lifetime over while waiting for a retry",
        Writer.SCHEDULER,
        Phase.TIMEOUT,
        Reason.LIFETIME_TIMEOUT,
    ),
    _row((Phase.PENDING,), "a Pod has capacity", Writer.SCHEDULER, Phase.SCHEDULED, Reason.SCHEDULED),
    _row((Phase.SCHEDULED,), "not claimed in time", Writer.OPERATOR, Phase.PENDING, Reason.UNSCHEDULED),
    _row((Phase.SCHEDULED,), "claimed", Writer.RUNTIMED, Phase.RUNNING, Reason.PREPARING),
    _row((Phase.RUNNING,), "function registered", Writer.RUNTIMED, Phase.READY, Reason.FUNCTION_REGISTERED),
    _row(
        (Phase.RUNNING, Phase.READY),
        "Runtime Server forgot the registration",
        Writer.RUNTIMED,
        Phase.RUNNING,
        Reason.REGISTERING,
    ),
    _row(_LIVE, "registration failed, attempts left", Writer.RUNTIMED, Phase.PENDING, *_REGISTRATION),
    _row(_LIVE, "registration failed, attempts exhausted", Writer.RUNTIMED, Phase.FAILED, Reason.RETRIES_EXHAUSTED),
    _row(_HELD, "cancel requested", Writer.RUNTIMED, Phase.CANCELLED, Reason.CANCELLED),
    _row(_HELD, "own Pod is deleting, attempts left", Writer.RUNTIMED, Phase.PENDING, Reason.FENCED_UNREGISTERED),
    _row(_HELD, "own Pod is deleting, attempts exhausted", Writer.RUNTIMED, Phase.FAILED, Reason.RETRIES_EXHAUSTED),
    _row(_HELD, "lifetime over", Writer.RUNTIMED, Phase.TIMEOUT, Reason.LIFETIME_TIMEOUT),
    _row((Phase.READY,), "idle too long", Writer.RUNTIMED, Phase.TIMEOUT, Reason.IDLE_TIMEOUT),
    _row((Phase.RUNNING,), "task succeeded", Writer.RUNTIMED, Phase.SUCCEEDED, Reason.TASK_SUCCEEDED),
    _row((Phase.RUNNING,), "task failed, attempts left", Writer.RUNTIMED, Phase.PENDING, *_TASK),
    _row((Phase.RUNNING,), "task failed, attempts exhausted", Writer.RUNTIMED, Phase.FAILED, Reason.RETRIES_EXHAUSTED),
    _row(_HELD, "Runtime Pod lost and fenced, attempts left", Writer.OPERATOR, Phase.PENDING, *_FENCES),
    _row(
        _HELD,
        "Runtime Pod lost and fenced, attempts exhausted",
        Writer.OPERATOR,
        Phase.FAILED,
        Reason.RETRIES_EXHAUSTED,
    ),
    _row(_HELD, "Runtime Pod lost and fenced, cancelled meanwhile", Writer.OPERATOR, Phase.CANCELLED, Reason.CANCELLED),
    _row(
        _HELD,
        "Runtime Pod lost and fenced, lifetime over meanwhile",
        Writer.OPERATOR,
        Phase.TIMEOUT,
        Reason.LIFETIME_TIMEOUT,
    ),
)


class ForbiddenTransition(AssertionError):
    """A component was about to write a transition that design §5 does not give it."""


def check(source: Phase, target: Phase, writer: Writer) -> None:
    """Raises ForbiddenTransition unless *writer* may move a Run from *source* to *target*.

    Staying in a phase (a condition or a message changed) is allowed in every phase that is not terminal.
    """
    if source == target and source in (*_HELD, Phase.PENDING):
        return
    for row in TRANSITIONS:
        if row.writer is writer and row.target is target and source in row.sources:
            return
    raise ForbiddenTransition(f"{writer.value} may not move a Run from {source.value} to {target.value}")
