"""How work is stopped: ask, insist, kill; each step with its time (design §7; hosts may ignore all but the last).

Pure: a table from why to what and when.
"""

from dataclasses import dataclass
from enum import Enum


class Why(Enum):
    """Why an invocation is stopped before it ended."""

    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    UNREGISTERED = "unregistered"


class Action(Enum):
    """What is done to the host.

    ASK: the handler's context says cancelled, and a coroutine is cancelled. TERM: SIGTERM to the host and every
    descendant. KILL: SIGKILL to all of them, until none is left.
    """

    ASK = "ask"
    TERM = "term"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Step:
    """after: seconds from the decision to stop."""

    after: float
    action: Action


LADDERS: dict[Why, tuple[Step, ...]] = {
    # The caller's answer waits for the end of the work, so a passed deadline leaves only a moment for clean-up.
    Why.DEADLINE: (Step(0.0, Action.ASK), Step(0.25, Action.TERM), Step(0.5, Action.KILL)),
    # Nobody waits for the answer; the second source document gives a running handler five seconds.
    Why.CANCELLED: (Step(0.0, Action.ASK), Step(5.0, Action.TERM), Step(6.0, Action.KILL)),
    # Recovery and deletion wait for this; its drain, if there was one, is over.
    Why.UNREGISTERED: (Step(0.0, Action.ASK), Step(0.5, Action.TERM), Step(1.0, Action.KILL)),
}


def faster(first: Why | None, second: Why) -> Why:
    """The reason that stands after both were given: a passed deadline, since the call can have no other answer then."""
    return second if first is None or second is Why.DEADLINE else first


def leaves_host_usable(stage: Action | None) -> bool:
    """Whether a host that answered at *stage* may serve the next call; a signal may have cut anything in two."""
    return stage is None or stage is Action.ASK


TASK_LADDER = (Step(0.0, Action.TERM), Step(5.0, Action.KILL))
"""A task's program knows no other request than SIGTERM; the second source document's five seconds follow it."""
