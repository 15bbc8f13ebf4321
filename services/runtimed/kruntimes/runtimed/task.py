"""The steps of a task from its claim to its end (design §5, "A task Run goes …"; executor.v1, service Runtime).

Pure, a part of `decide`. Unlike a registration, an execution must not begin twice in one attempt. So condition
Ready says `TaskRunning` before Execute is called, and a task that began and that the Runtime Server does not know
any more has failed its attempt. What it came to is written before the server is told to forget it.
"""

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.reasons import Reason, RunCondition
from kruntimes.common.api.views import Run, condition
from kruntimes.runtimed.decisions import (
    Adopt,
    Begin,
    CancelInFlight,
    Close,
    Decision,
    Execute,
    Forget,
    Poll,
    Prepare,
    Wait,
    poll_every,
)
from kruntimes.runtimed.observed import Ending, ExecutionState, Local, Moment, Stage

FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.1, 2.0
"""How often a task is asked for: a tenth of the time that it has run, within these."""


def bring_up(run: Run, epoch: Epoch, local: Local | None, now: Moment, left: float | None) -> Decision:
    """Towards its execution, and watching over it. *left*: seconds of lifetime, None without a limit."""
    if local is None:
        return Adopt(epoch) if begun(run) else Prepare(epoch)
    match local.stage:
        case Stage.NEW:
            return Prepare(epoch)
        case Stage.PREPARED:
            return Execute() if begun(run) else Begin()
        case Stage.PREPARING | Stage.REGISTERING:
            return Wait(left)
        case Stage.RELEASED:
            return Forget()
    return watch(local, now, left)


def watch(local: Local, now: Moment, left: float | None) -> Decision:
    """What becomes of a task that was handed over."""
    execution = local.execution
    if execution is None:
        return Poll()
    match execution.state:
        case ExecutionState.RUNNING:
            interval = min(LONGEST_POLL_SECONDS, max(FIRST_POLL_SECONDS, (now.mono - local.since) / 10))
            return poll_every(interval, read_at=execution.read_at, now=now, left=left)
        case ExecutionState.SUCCEEDED:
            return Close(Ending(reason=Reason.TASK_SUCCEEDED))
        case ExecutionState.FORGOTTEN:
            text = "the Runtime Server was restarted and lost the task"
            return Close(Ending(reason=Reason.RUNTIME_SERVER_FAILED, message=text))
    if local.open and local.cancelled_at is not None:  # by the self-fence, the only one that cancels an open epoch
        text = "the heartbeat could not be renewed, so the task was stopped"
        return Close(Ending(reason=Reason.RUNTIME_POD_LOST, message=text))
    return Close(Ending(reason=Reason.TASK_FAILED, message=execution.message or "the Runtime Server gave no reason"))


def fence(local: Local) -> Decision | None:
    """What the self-fence does to a task: stops it, once."""
    if local.stage is Stage.REGISTERED and not local.over and local.cancelled_at is None:
        return CancelInFlight()
    return None


def drain(local: Local, now: Moment, seconds: float) -> Decision | None:
    """Lets a task go on for *seconds* after its Pod began to be deleted; None where there is nothing to wait for."""
    if local.stage is not Stage.REGISTERED:
        return None
    if local.open or local.closed_at is None:
        return Close()
    left = local.closed_at + seconds - now.mono
    return watch(local, now, left) if left > 0 or local.over else None


def begun(run: Run) -> bool:
    """Whether this attempt may have been executed; the claim has put another reason in this one's place."""
    held = condition(run.status.conditions, RunCondition.READY)
    return held is not None and held.reason == Reason.TASK_RUNNING
