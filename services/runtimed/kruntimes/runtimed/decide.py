"""What runtimed does next about one Run: one observation in, one decision out (design §5).

The caller builds an `Observed`, carries out the one decision that comes back, and observes anew. First match
wins, and the order of the rules is their priority: an end (deletion, cancellation, lifetime, draining) goes
before any step that would bring the function nearer to Ready. Every effect may be repeated safely, so a
restart in the middle of any of them is nothing special.
"""

from dataclasses import dataclass

from kruntimes.common.api import times
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason, RunCondition
from kruntimes.common.api.retry import may_retry
from kruntimes.common.api.views import Run, condition
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


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now; look again after this many seconds, or (None) at the next event."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Write Running: startTime if there is none yet, attempt + 1, Backoff=False."""


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Hold the object before anything of it is registered; a refusal means that it is being deleted."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Materialise the source of this epoch."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Register:
    """Call RegisterFunction; an uncertain answer is repeated under the same attempt."""


@dataclass(frozen=True, slots=True)
class Poll:
    """Call FunctionStatus."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write Ready with the endpoint, or the endpoint anew where its CA bundle has changed."""


@dataclass(frozen=True, slots=True)
class Reopen:
    """Write Running again, Ready=False/Registering, under the same attempt: the server forgot the function."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Write Ready=False/Draining, so that the router withdraws the route."""


@dataclass(frozen=True, slots=True)
class Close:
    """Let no further invocation in; remember *ending* where only we know why."""

    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class CancelInFlight:
    """Cancel every call of this Run that is under way."""


@dataclass(frozen=True, slots=True)
class Unregister:
    """Unregister, clean the workspace of the epoch, release its slot."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the object go; always before Pending or a terminal phase is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The one write that ends the assignment. Pending clears it; backoff: condition Backoff becomes True."""

    phase: Phase
    reason: Reason
    message: str = ""
    backoff: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what is held locally; nothing of it is left in the Pod."""


Decision = (
    Wait
    | Claim
    | AddFinalizer
    | Prepare
    | Register
    | Poll
    | Publish
    | Reopen
    | Announce
    | Close
    | CancelInFlight
    | Unregister
    | RemoveFinalizer
    | Finish
    | Forget
)

_HELD = (Phase.SCHEDULED, Phase.RUNNING, Phase.READY)


def decide(observed: Observed, now: Moment) -> Decision:
    """Returns the next step for this Run. Total: every observation has an answer."""
    run, local = observed.run, observed.local
    if observed.fenced and local is not None and local.in_flight and local.cancelled_at is None:
        return CancelInFlight()
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
    if run.spec.mode.function is None:
        return Wait()
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
    return _bring_up(observed, run, now, left)


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
    """Release, then the finalizer; None once both are done and the final write may follow."""
    step = _release(local, now, drain=drain)
    if step is None and FINALIZER in run.metadata.finalizers:
        return RemoveFinalizer()
    return step


def _drain(observed: Observed, run: Run, now: Moment) -> Decision:
    held = condition(run.status.conditions, RunCondition.READY)
    if held is not None and held.status == "True":
        return Announce()
    if held is not None and held.reason == Reason.DRAINING and observed.local is not None and observed.local.open:
        left = times.parse(held.last_transition_time).timestamp() + WITHDRAW_SECONDS - now.wall
        if 0 < left <= WITHDRAW_SECONDS:
            return Wait(left)
    step = _let_go(run, observed.local, now, drain=observed.drain_seconds)
    ending = Ending(reason=Reason.FENCED_UNREGISTERED, message="the Runtime Pod is being deleted; unregistered")
    if step is None and run.status.phase == Phase.SCHEDULED:
        return Finish(phase=Phase.PENDING, reason=ending.reason, message=ending.message)  # no attempt was used
    return step or _ended(run, ending)


def _ended(run: Run, ending: Ending) -> Finish:
    """The final write for an ending of our own: a time-out, another attempt, or failure."""
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
        epoch = run.epoch
        assert epoch is not None, "a claimed Run has an epoch"
        return Prepare(epoch) if local is None or local.stage is Stage.NEW else Forget()
    if local.stage is Stage.PREPARED:
        return Register()
    if local.stage is Stage.REGISTERING:
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
            return _poll_every(INITIALISING_POLL_SECONDS, function, now, left)
        case FunctionState.DRAINING:
            return _poll_every(POLL_SECONDS, function, now, left)
    if run.status.phase == Phase.RUNNING or not run.ready or run.status.endpoint != observed.endpoint:
        # Published while stale, it would undo what the operator does about a lost Pod.
        return Wait(left) if observed.stale else Publish()
    return _watch(run, local, function, now, left)


def _watch(run: Run, local: Local, function: Function, now: Moment, left: float | None) -> Decision:
    """A Ready function: the idle clock, and the next question to the Runtime Server."""
    mode = run.spec.mode.function
    limit = mode.idle_timeout_seconds if mode is not None else None
    if limit is None or local.in_flight or function.in_flight:
        return _poll_every(POLL_SECONDS, function, now, left)
    idle_left = _idle_since(run, local, function) + limit - now.wall
    if idle_left > 0:
        return _poll_every(POLL_SECONDS, function, now, idle_left if left is None else min(left, idle_left))
    if now.mono - function.read_at > FRESH_SECONDS:
        return Poll()
    return Close(Ending(reason=Reason.IDLE_TIMEOUT, message=f"idle for {limit} s"))


def _poll_every(interval: float, function: Function, now: Moment, left: float | None) -> Decision:
    due = function.read_at + interval - now.mono
    if due <= 0:
        return Poll()
    return Wait(due if left is None else min(due, left))


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
