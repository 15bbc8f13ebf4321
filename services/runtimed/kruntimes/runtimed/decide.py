"""What runtimed does next about one Run: one observation in, one decision out (design §5).

The caller builds an `Observed`, carries out the one decision that comes back, and observes anew. First match
wins, and the order of the rules is their priority: an end (deletion, cancellation, lifetime, draining) goes
before any step that would bring the function nearer to Ready. Every effect may be repeated safely, so a
restart in the middle of any of them is nothing special.
"""

from kruntimes.common.api import times
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason, RunCondition
from kruntimes.common.api.retry import may_retry
from kruntimes.common.api.views import Run, condition
from kruntimes.runtimed import task
from kruntimes.runtimed.decisions import (
    AddFinalizer,
    Adopt,
    Announce,
    CancelInFlight,
    Claim,
    Close,
    Decision,
    Finish,
    Forget,
    Poll,
    Prepare,
    Publish,
    Register,
    RemoveFinalizer,
    Reopen,
    Unregister,
    Wait,
    poll_every,
)
from kruntimes.runtimed.observed import Ending, Function, FunctionState, Local, Moment, Observed, Stage

DELETE_DRAIN_SECONDS = 8.0
"""How long a call may go on once its Run is being deleted; the drain of the second source document."""
WITHDRAW_SECONDS = 2.0
"""After the route of a draining Pod was withdrawn, calls still under way to it are served for this long."""
CANCEL_SECONDS = 10.0
"""Within this a cancelled call has ended, its processes killed if need be (design §5, "Self-fence")."""
POLL_SECONDS = 5.0
"""How often a registration is asked whether it is still alive; a call that finds it gone asks at once."""
INITIALISING_POLL_SECONDS = 0.1
"""How often a server that answered REGISTERING is asked whether it is done."""
REGISTRATION_SECONDS = 60.0
"""A function that is not ready after this long has failed to register: imports take seconds, not minutes."""
WHOLE_SECONDS = 1.0
"""The API writes times without their fraction; nothing is taken for older than it is."""
FRESH_SECONDS = 1.0
"""An idle function is ended only on a status not older than this."""

_HELD = (Phase.SCHEDULED, Phase.RUNNING, Phase.READY)


def decide(observed: Observed, now: Moment) -> Decision:
    """Returns the next step for this Run. Total: every observation has an answer."""
    run, local = observed.run, observed.local
    if observed.fenced and local is not None and (silenced := _silence(run, local)) is not None:
        return silenced
    if run is None or run.status.assigned_pod_uid != observed.pod_uid:
        return _abandon(local, now)
    if local is not None and local.epoch.attempt > run.status.attempt:
        return Wait()  # what is seen is older than what was written
    if local is not None and local.epoch != _claimed(run):
        return _abandon(local, now)
    if run.metadata.deleting:
        return _let_go(run, local, now, drain=DELETE_DRAIN_SECONDS) or Wait()
    if run.status.phase not in _HELD:
        return _let_go(run, local, now, drain=0.0) or (Wait() if local is None else Forget())
    if local is not None and local.ending is not None and local.over:
        # What the task came to is known and stands, whatever is asked for now.
        return RemoveFinalizer() if FINALIZER in run.metadata.finalizers else _ended(run, local.ending, local)
    if run.spec.cancel_requested:
        end = Finish(phase=Phase.CANCELLED, reason=Reason.CANCELLED, message="cancelled on request")
        return _let_go(run, local, now, drain=0.0) or end
    left = _lifetime_left(run, now)
    if left is not None and left <= 0:
        end = Finish(phase=Phase.TIMEOUT, reason=Reason.LIFETIME_TIMEOUT, message=f"lived for {run.spec.timeout}")
        return _let_go(run, local, now, drain=0.0) or end
    if local is not None and local.ending is not None:
        return _let_go(run, local, now, drain=0.0) or _ended(run, local.ending)
    if observed.draining:
        return _drain(observed, run, now)
    if observed.fenced:
        return Wait()
    if run.status.phase == Phase.SCHEDULED:
        return Claim()
    if FINALIZER not in run.metadata.finalizers:
        return AddFinalizer()
    if run.spec.mode.task is not None:
        return task.bring_up(run, _epoch(run), local, now, left)
    return _bring_up(observed, run, now, left)


def _silence(run: Run | None, local: Local) -> Decision | None:
    """The self-fence: whatever is under way is cancelled, once."""
    if run is not None and run.spec.mode.task is not None:
        return task.fence(local)
    return CancelInFlight() if local.in_flight and local.cancelled_at is None else None


def _epoch(run: Run) -> Epoch:
    epoch = run.epoch
    assert epoch is not None, "a claimed Run has an epoch"
    return epoch


def _claimed(run: Run) -> Epoch | None:
    """The epoch that we hold by our own claim; a Scheduled Run still carries the attempt before it."""
    return run.epoch if run.status.phase != Phase.SCHEDULED else None


def _release(local: Local | None, now: Moment, *, drain: float) -> Decision | None:
    """The steps from serving to released; None once nothing of the epoch is left in this Pod.

    drain: for how many seconds after the close the calls under way may go on before they are cancelled.
    """
    if local is None or local.stage is Stage.RELEASED:
        return None
    if local.open or local.closed_at is None:
        return Close()
    if local.in_flight:
        if local.cancelled_at is None:
            left = local.closed_at + drain - now.mono
            return Wait(left) if left > 0 else CancelInFlight()
        left = local.cancelled_at + CANCEL_SECONDS - now.mono
        if left > 0:
            return Wait(left)
    return Unregister()


def _abandon(local: Local | None, now: Moment) -> Decision:
    """The epoch is void (the Run is gone, or assigned anew): no write is ours any more."""
    return _release(local, now, drain=0.0) or (Wait() if local is None else Forget())


def _let_go(run: Run, local: Local | None, now: Moment, *, drain: float) -> Decision | None:
    """Release, then the finalizer; None once both are done and the final write may follow.

    With the finalizer there and nothing held, an earlier process of ours may have left something at the server. So may
    it of a task that had come to its end, whose finalizer goes before what it came to is written.
    """
    held = FINALIZER in run.metadata.finalizers
    left = held or (run.spec.mode.task is not None and run.status.phase == Phase.RUNNING and task.begun(run))
    if left and local is None and run.status.phase != Phase.SCHEDULED and (epoch := run.epoch) is not None:
        return Adopt(epoch)
    step = _release(local, now, drain=drain)
    return RemoveFinalizer() if step is None and held else step


def _drain(observed: Observed, run: Run, now: Moment) -> Decision:
    held = condition(run.status.conditions, RunCondition.READY)
    if held is not None and held.status == "True":
        return Announce()
    if held is not None and held.reason == Reason.DRAINING and observed.local is not None and observed.local.open:
        left = times.parse(held.last_transition_time).timestamp() + WITHDRAW_SECONDS - now.wall
        if 0 < left <= WITHDRAW_SECONDS:
            return Wait(left)
    if run.spec.mode.task is not None and observed.local is not None and observed.local.cancelled_at is None:
        waiting = task.drain(observed.local, now, observed.drain_seconds)
        if waiting is not None:
            return waiting
    step = _let_go(run, observed.local, now, drain=observed.drain_seconds)
    ending = Ending(reason=Reason.FENCED_UNREGISTERED, message="the Runtime Pod is being deleted; unregistered")
    if step is None and run.status.phase == Phase.SCHEDULED:
        return Finish(phase=Phase.PENDING, reason=ending.reason, message=ending.message)  # no attempt was used
    return step or _ended(run, ending)


def _ended(run: Run, ending: Ending, local: Local | None = None) -> Finish:
    """The final write for an ending of our own: success, a time-out, another attempt, or failure."""
    if ending.reason is Reason.TASK_SUCCEEDED:
        execution = local.execution if local is not None else None
        outputs = execution.outputs if execution is not None else {}
        return Finish(phase=Phase.SUCCEEDED, reason=ending.reason, message=ending.message, outputs=outputs)
    if ending.reason is Reason.IDLE_TIMEOUT:
        return Finish(phase=Phase.TIMEOUT, reason=ending.reason, message=ending.message)
    policy = run.spec.retry_policy
    if may_retry(
        attempt=run.status.attempt,
        max_attempts=policy.max_attempts,
        reason=ending.reason,
        retryable=policy.retryable_reasons,
    ):
        return Finish(phase=Phase.PENDING, reason=ending.reason, message=ending.message, backoff=True)
    message = f"attempt {run.status.attempt} of {policy.max_attempts}: {ending.reason.value}: {ending.message}"
    return Finish(phase=Phase.FAILED, reason=Reason.RETRIES_EXHAUSTED, message=message)


def _bring_up(observed: Observed, run: Run, now: Moment, left: float | None) -> Decision:
    """Towards Ready, and watching over it there. *left*: seconds of lifetime, None without a limit."""
    local = observed.local
    if local is None or local.stage in (Stage.NEW, Stage.RELEASED):
        return Prepare(_epoch(run)) if local is None or local.stage is Stage.NEW else Forget()
    if local.stage is Stage.PREPARED:
        return Register()
    if local.stage in (Stage.PREPARING, Stage.REGISTERING):
        return Wait(left)
    function = local.function
    if function is None:
        return Poll()
    match function.state:
        case FunctionState.FORGOTTEN:
            return Reopen() if run.status.phase == Phase.READY else Register()
        case FunctionState.FAILED:
            reason = Reason.RUNTIME_SERVER_FAILED if run.status.phase == Phase.READY else Reason.REGISTRATION_FAILED
            return Close(Ending(reason=reason, message=function.fatal_error or "the Runtime Server gave no reason"))
        case FunctionState.REGISTERING:
            if now.mono >= local.since + REGISTRATION_SECONDS:
                message = f"not ready within {REGISTRATION_SECONDS:.0f} s"
                return Close(Ending(reason=Reason.REGISTRATION_FAILED, message=message))
            return poll_every(INITIALISING_POLL_SECONDS, read_at=function.read_at, now=now, left=left)
        case FunctionState.DRAINING:
            return poll_every(POLL_SECONDS, read_at=function.read_at, now=now, left=left)
    if run.status.phase == Phase.RUNNING or not run.ready or run.status.endpoint != observed.endpoint:
        # Published while stale, it would undo what the operator does about a lost Pod.
        return Wait(left) if observed.stale else Publish()
    return _watch(run, local, function, now, left)


def _watch(run: Run, local: Local, function: Function, now: Moment, left: float | None) -> Decision:
    """A Ready function: the idle clock, and the next question to the Runtime Server."""
    mode = run.spec.mode.function
    limit = mode.idle_timeout_seconds if mode is not None else None
    if limit is None or local.in_flight or function.in_flight:
        return poll_every(POLL_SECONDS, read_at=function.read_at, now=now, left=left)
    idle_left = _idle_since(run, local, function) + limit - now.wall
    if idle_left > 0:
        return poll_every(
            POLL_SECONDS, read_at=function.read_at, now=now, left=idle_left if left is None else min(left, idle_left)
        )
    if now.mono - function.read_at > FRESH_SECONDS:
        return Poll()
    return Close(Ending(reason=Reason.IDLE_TIMEOUT, message=f"idle for {limit} s"))


def _idle_since(run: Run, local: Local, function: Function) -> float:
    """Wall seconds of the last activity: the server's clock, our own calls, or when it became Ready."""
    ready = condition(run.status.conditions, RunCondition.READY)
    if ready is None or not ready.last_transition_time:
        return max(function.last_activity, local.last_activity)
    published = times.parse(ready.last_transition_time).timestamp() + WHOLE_SECONDS
    return max(function.last_activity, local.last_activity, published)


def _lifetime_left(run: Run, now: Moment) -> float | None:
    limit = run.spec.timeout_seconds
    if limit is None or run.status.start_time is None:
        return None
    return times.parse(run.status.start_time).timestamp() + limit - now.wall
