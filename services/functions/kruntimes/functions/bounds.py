"""What one functions manager holds and waits for at most, each with its reason (second source document)."""

from dataclasses import dataclass
from enum import Enum

MIB = 1024 * 1024


class Overlap(Enum):
    """What becomes of a call whose lane is taken, or for which no worker is free.

    WAIT: it waits its turn, as the second source document has it. REFUSE: it is answered 429 and nothing waits
    (design §13, between our own processes).
    """

    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one manager. Times are seconds; the defaults are the second source document's numbers.

    workers: calls that run at once. queue_size: calls that wait before the caller is held back.
    read_ahead_calls, read_ahead_bytes: what may wait beyond that before its input is no longer read, so that a
    cancellation or QUIT behind a full queue is still seen. default_timeout: of a call that names none.
    max_timeout: a longer one is cut to this; also what a handler can hold its lane for.
    cancel_grace: from a cancellation until the manager answers 499 by itself. deadline_grace: from the deadline
    until it answers 504; 0 answers at the deadline. awaiting_warning: until a call that was left unanswered is
    logged. tombstone: how long an id is remembered. tombstones: how many are; the oldest goes first, so that a
    fast caller cannot fill the memory. drain: what running calls get at the end. reap: what work that was told to
    stop then gets before it is given up.
    progress_interval: reports of one call come no closer than this, since people look at them.
    """

    workers: int = 1
    queue_size: int = 64
    read_ahead_calls: int = 1024
    read_ahead_bytes: int = 32 * MIB
    overlap: Overlap = Overlap.WAIT
    default_timeout: float = 60.0
    max_timeout: float = 900.0
    cancel_grace: float = 5.0
    deadline_grace: float = 0.0
    awaiting_warning: float = 30.0
    tombstone: float = 60.0
    tombstones: int = 262_144
    drain: float = 8.0
    reap: float = 2.0
    progress_interval: float = 0.25

    def __post_init__(self) -> None:
        """Raises ValueError that names the bound which makes no sense."""
        for name in ("workers", "default_timeout", "max_timeout", "tombstones"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
        for name in (
            "queue_size", "read_ahead_calls", "read_ahead_bytes", "cancel_grace", "deadline_grace",
            "awaiting_warning", "tombstone", "drain", "reap", "progress_interval",
        ):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if self.queue_size + self.read_ahead_calls == 0 and self.overlap is Overlap.WAIT:
            raise ValueError("queue_size and read_ahead_calls must not both be 0 where calls wait: none would be read")
