"""What a lifecycle decision is made from: one Run, our side of it, and how this Pod fares, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.outcomes import MAX_DEADLINE_SECONDS
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.views import Endpoint, Run


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading of both clocks: *wall* for what the API wrote, *mono* for durations within this process."""

    wall: float
    mono: float


class Stage(Enum):
    """How far this runtimed has come with one epoch. For a task, REGISTERED means: handed over for execution."""

    NEW = "new"
    PREPARING = "preparing"
    PREPARED = "prepared"
    REGISTERING = "registering"
    REGISTERED = "registered"
    RELEASED = "released"


class FunctionState(Enum):
    """What the Runtime Server says of a registration; FORGOTTEN is its NOT_FOUND."""

    REGISTERING = "registering"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One answer of FunctionStatus. last_activity: wall seconds, 0 without any. read_at: monotonic."""

    state: FunctionState
    in_flight: int = 0
    last_activity: float = 0.0
    fatal_error: str = ""
    read_at: float


class ExecutionState(Enum):
    """What the Runtime Server says of a task; FORGOTTEN is its NOT_FOUND."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One answer of Status about a task. message: why it failed. outputs: within their bounds. read_at: monotonic."""

    state: ExecutionState
    message: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    read_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why an epoch ends for a reason that only this process knows (the Run says the others itself)."""

    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """What this runtimed holds of one epoch.

    open: invocations are let in. closed_at, cancelled_at, since: monotonic; since is when registration began.
    in_flight counts the slots taken. last_activity: wall seconds of the latest call that ended here. function,
    execution: what the Runtime Server last said of it; the one for a function, the other for a task.
    """

    epoch: Epoch
    stage: Stage
    since: float
    open: bool = True
    in_flight: int = 0
    closed_at: float | None = None
    cancelled_at: float | None = None
    last_activity: float = 0.0
    function: Function | None = None
    execution: Execution | None = None
    ending: Ending | None = None

    @property
    def over(self) -> bool:
        """Whether its task has come to an end by itself, so that nothing of it runs any more."""
        return self.execution is not None and self.execution.state is not ExecutionState.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision depends on, at one moment.

    run: as last seen or written; None once it is gone or no longer assigned to this Pod. pod_uid: our own.
    draining: our Pod is being deleted. stale: our heartbeat is so old that others may take us for lost. fenced: it
    is older than the self-fence. endpoint: what the Run's status should publish. drain_seconds: how long calls
    may go on while the Pod drains.
    """

    run: Run | None
    pod_uid: str
    endpoint: Endpoint
    local: Local | None = None
    draining: bool = False
    stale: bool = False
    fenced: bool = False
    drain_seconds: float = MAX_DEADLINE_SECONDS
