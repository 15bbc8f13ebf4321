"""The writes on a Run's status, as JSON patches with their precondition.

Every patch tests the resourceVersion that the decision was made on, and every change of phase is checked against
the transition table before it can leave the process.

Source: design §5 ("One writer owns each transition, every write carries a precondition").
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import TERMINAL, Phase
from kruntimes.common.api.reasons import Reason, RunCondition
from kruntimes.common.api.retry import backoff_seconds
from kruntimes.common.api.transitions import Writer, check
from kruntimes.common.api.views import Condition
from kruntimes.controller.lifecycle import Move
from kruntimes.controller.schedule import UNCLAIMED_SECONDS, Action, Assign, Cancel, Expire, Explain
from kruntimes.controller.views import ControlledRun, duration, timestamp

Patch = list[dict[str, Any]]

_ENDS: Mapping[Reason, str] = {
    Reason.CANCELLED: "cancelled as asked",
    Reason.LIFETIME_TIMEOUT: "its lifetime, spec.timeout from startTime, is over",
    Reason.RETRIES_EXHAUSTED: "its Runtime Pod was lost and no attempt is left",
    Reason.UNSCHEDULED: "the Pod's runtimed lives and did not claim it in time; scheduled anew after a minute",
    Reason.FENCED_POD_GONE: "its Runtime Pod no longer exists, or all of its containers have ended",
    Reason.FENCED_OUT_OF_ENDPOINTS: "its Runtime Pod is deleting, out of its Service, and has stopped by itself",
}
"""Why a Run moved, for its condition Ready and, at its end, for status.message."""


def of(run: ControlledRun, action: Action, *, now: float) -> Patch:
    """The write that carries out what the scheduler decided; TypeError for what is not written."""
    if isinstance(action, Assign):
        return assign(run, action, now=now)
    if isinstance(action, Explain):
        return explain(run, action, now=now)
    if isinstance(action, Cancel | Expire):
        phase, reason = ending(action)
        return end(run, phase, reason, now=now)
    raise TypeError(f"nothing to write for {type(action).__name__}")


def ending(action: Cancel | Expire) -> tuple[Phase, Reason]:
    """The phase and the reason of a Run that ends before it is assigned."""
    if isinstance(action, Cancel):
        return Phase.CANCELLED, Reason.CANCELLED
    return Phase.TIMEOUT, Reason.LIFETIME_TIMEOUT


def assign(run: ControlledRun, action: Assign, *, now: float) -> Patch:
    """Pending → Scheduled on the action's Pod."""
    ready = (Reason.SCHEDULED, f"assigned to Pod {action.pod}")
    fields = {"assignedPod": action.pod, "assignedPodUID": action.pod_uid}
    return _patch(run, Writer.SCHEDULER, Phase.SCHEDULED, ready=ready, fields=fields, now=now)


def explain(run: ControlledRun, action: Explain, *, now: float) -> Patch:
    """Stays Pending; says why."""
    return _patch(run, Writer.SCHEDULER, Phase.PENDING, ready=(action.reason, action.message), fields={}, now=now)


def end(run: ControlledRun, phase: Phase, reason: Reason, *, now: float) -> Patch:
    """Pending → Cancelled or Timeout: nothing was assigned, so nothing is cleaned up."""
    return _patch(run, Writer.SCHEDULER, phase, ready=(reason, _ENDS[reason]), fields={}, now=now)


def withdraw(run: ControlledRun, *, now: float) -> Patch:
    """Ready=False/RuntimePodLost; phase and assignment stay until a fence is proved."""
    ready = (Reason.RUNTIME_POD_LOST, f"Runtime Pod {run.state.assigned_pod} is lost; waits for proof that it stopped")
    return _patch(run, Writer.OPERATOR, Phase(run.state.phase), ready=ready, fields={}, now=now)


def move(run: ControlledRun, decision: Move, *, now: float) -> Patch:
    """The decision's phase, with the assignment cleared where it says so.

    A return to Pending starts the back-off: of an attempt that was used, or the one of a Run that a live runtimed
    left unclaimed. A Run whose Pod went before the claim does not wait.
    """
    fields: dict[str, str | None] = {"assignedPod": None, "assignedPodUID": None} if decision.release else {}
    message = why(run, decision)
    waits = run.state.phase != Phase.SCHEDULED or decision.fence is None
    backoff = True if decision.target is Phase.PENDING and waits else None
    return _patch(
        run,
        Writer.OPERATOR,
        decision.target,
        ready=(decision.reason, message),
        fields=fields,
        backoff=backoff,
        now=now,
    )


def why(run: ControlledRun, decision: Move) -> str:
    """What moved the Run, for a person: the reason, the fence that was proved, and the epoch that it was proved of."""
    message = _ENDS[decision.reason]
    if decision.fence is None:
        return f"{message} (Pod {run.state.assigned_pod})"
    proof = "" if decision.fence is decision.reason else f"{decision.fence.value}: {_ENDS[decision.fence]}; "
    epoch = f"{run.metadata.uid}/{run.state.attempt}/{run.state.assigned_pod_uid}"
    return f"{message} ({proof}Pod {run.state.assigned_pod}, epoch {epoch})"


def _waits(run: ControlledRun) -> str:
    """How long a Run that returns to Pending waits, for a person."""
    if run.state.phase == Phase.SCHEDULED:
        return f"may be assigned anew after {UNCLAIMED_SECONDS:g} s"
    policy = run.spec.retry_policy
    wait = backoff_seconds(attempt=run.state.attempt, base=duration(policy.backoff))
    return f"attempt {run.state.attempt} of {policy.max_attempts} is over; the next may begin after {wait:g} s"


def remove_finalizer(run: ControlledRun) -> Patch:
    """Takes our finalizer off metadata and leaves those of others."""
    left = [name for name in run.metadata.finalizers if name != FINALIZER]
    return [_precondition(run), {"op": "replace", "path": "/metadata/finalizers", "value": left}]


def _patch(
    run: ControlledRun,
    writer: Writer,
    phase: Phase,
    *,
    ready: tuple[Reason, str],
    fields: Mapping[str, str | None],
    now: float,
    backoff: bool | None = None,
) -> Patch:
    check(Phase(run.state.phase or Phase.PENDING), phase, writer)
    reason, message = ready
    conditions = _with(run, RunCondition.READY, status=False, reason=reason.value, message=message, now=now)
    if backoff is not None:
        conditions = _with(
            run,
            RunCondition.BACKOFF,
            status=backoff,
            reason=reason.value,
            message=_waits(run),
            now=now,
            among=conditions,
        )
    values: dict[str, Any] = {"phase": phase.value, "conditions": [_encode(one) for one in conditions], **fields}
    if phase in TERMINAL:
        values |= {"completionTime": timestamp(now), "message": message}
    if run.status is None:
        whole = {name: value for name, value in values.items() if value is not None}
        return [_precondition(run), {"op": "add", "path": "/status", "value": whole}]
    held = {"assignedPod": run.state.assigned_pod, "assignedPodUID": run.state.assigned_pod_uid}
    ops: Patch = [_precondition(run)]
    for name, value in values.items():
        if value is not None:
            ops.append({"op": "add", "path": f"/status/{name}", "value": value})
        elif held.get(name):
            ops.append({"op": "remove", "path": f"/status/{name}"})
    return ops


def _precondition(run: ControlledRun) -> dict[str, Any]:
    return {"op": "test", "path": "/metadata/resourceVersion", "value": run.metadata.resource_version}


def _with(
    run: ControlledRun,
    kind: RunCondition,
    *,
    status: bool,
    reason: str,
    message: str,
    now: float,
    among: Sequence[Condition] | None = None,
) -> list[Condition]:
    """The Run's conditions with *kind* set; its lastTransitionTime moves only when its status does.

    Condition Backoff is the exception: its time is what the back-off counts from, so each return sets it.
    """
    conditions = list(run.state.conditions if among is None else among)
    known = next((one for one in conditions if one.type == kind), None)
    text = "True" if status else "False"
    same = known is not None and known.status == text and known.last_transition_time and kind is RunCondition.READY
    new = Condition(
        type=kind.value,
        status=text,
        reason=reason,
        message=message,
        last_transition_time=known.last_transition_time if known is not None and same else timestamp(now),
        observed_generation=run.metadata.generation,
    )
    if known is None:
        return [*conditions, new]
    return [new if one is known else one for one in conditions]


def _encode(one: Condition) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
        "lastTransitionTime": one.last_transition_time,
    }
    if one.observed_generation:
        encoded["observedGeneration"] = one.observed_generation
    return encoded
