"""The phases of a Run, and what each of them means to everyone who asks.

Source: design §4 and §5; first source document, "Run Status API": generic helpers must classify
every phase explicitly. This table is the only place that does.
"""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Run.status.phase."""

    PENDING = "Pending"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    READY = "Ready"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMEOUT = "Timeout"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseClass:
    """What a phase implies.

    terminal: nothing follows. assigned: the Run names a Pod and takes its capacity.
    claimed: a runtimed has written startTime and holds local state for it.
    """

    terminal: bool = False
    assigned: bool = False
    claimed: bool = False


CLASSES: dict[Phase, PhaseClass] = {
    Phase.PENDING: PhaseClass(),
    Phase.SCHEDULED: PhaseClass(assigned=True),
    Phase.RUNNING: PhaseClass(assigned=True, claimed=True),
    Phase.READY: PhaseClass(assigned=True, claimed=True),
    Phase.SUCCEEDED: PhaseClass(terminal=True),
    Phase.FAILED: PhaseClass(terminal=True),
    Phase.TIMEOUT: PhaseClass(terminal=True),
    Phase.CANCELLED: PhaseClass(terminal=True),
}

TERMINAL = frozenset(phase for phase, c in CLASSES.items() if c.terminal)
ASSIGNED = frozenset(phase for phase, c in CLASSES.items() if c.assigned)


def classify(phase: str) -> PhaseClass:
    """Returns what *phase* implies; an empty phase is a Run that no one has touched: Pending.

    Raises ValueError for a phase that is not in the API.
    """
    return CLASSES[Phase(phase) if phase else Phase.PENDING]
