"""The status that each decision writes, and the JSON patch that writes it (design §5, "every write carries a
precondition").

Pure: a Run as it was seen goes in, the new status comes out, and `patch` turns the difference into operations that
fail as a whole unless the Run is still the one that was seen. Fields that we do not know are left alone.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from kruntimes.common.api import times, transitions
from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import TERMINAL, Phase
from kruntimes.common.api.reasons import Reason, RunCondition
from kruntimes.common.api.views import Condition, Endpoint, Run, RunStatus, condition
from kruntimes.runtimed.decisions import Finish

MESSAGE_CHARS = 1024
"""Far below the API's 4,096 characters, since the same text stands in a condition too."""

Op = Mapping[str, object]


def claimed(run: Run, *, now: datetime) -> RunStatus:
    """Running, one attempt more, startTime once; the back-off is over."""
    conditions = set_condition(
        run, run.status.conditions, RunCondition.READY, "False", Reason.PREPARING, "preparing the source", now
    )
    if condition(conditions, RunCondition.BACKOFF) is not None:
        conditions = set_condition(run, conditions, RunCondition.BACKOFF, "False", "Claimed", "", now)
    return msgspec.structs.replace(
        run.status,
        phase=Phase.RUNNING.value,
        attempt=run.status.attempt + 1,
        start_time=run.status.start_time or times.rfc3339(now),
        conditions=conditions,
    )


def published(run: Run, endpoint: Endpoint, *, now: datetime) -> RunStatus:
    """Ready, with the endpoint under which it can be invoked."""
    conditions = set_condition(
        run,
        run.status.conditions,
        RunCondition.READY,
        "True",
        Reason.FUNCTION_REGISTERED,
        "the function is served",
        now,
    )
    return msgspec.structs.replace(
        run.status, phase=Phase.READY.value, endpoint=endpoint, message="", conditions=conditions
    )


def begun(run: Run, *, now: datetime) -> RunStatus:
    """Running still, and said to be executed: from now on this attempt may have had effects."""
    conditions = set_condition(
        run, run.status.conditions, RunCondition.READY, "False", Reason.TASK_RUNNING, "the task runs", now
    )
    return msgspec.structs.replace(run.status, conditions=conditions)


def reopened(run: Run, *, now: datetime) -> RunStatus:
    """Running again under the same attempt: the Runtime Server lost the registration."""
    text = "the Runtime Server was restarted; registering again"
    conditions = set_condition(run, run.status.conditions, RunCondition.READY, "False", Reason.REGISTERING, text, now)
    return msgspec.structs.replace(run.status, phase=Phase.RUNNING.value, conditions=conditions)


def announced(run: Run, *, now: datetime) -> RunStatus:
    """Not ready any more, in the same phase: the Pod is being deleted."""
    text = "the Runtime Pod is being deleted"
    conditions = set_condition(run, run.status.conditions, RunCondition.READY, "False", Reason.DRAINING, text, now)
    return msgspec.structs.replace(run.status, conditions=conditions)


def finished(run: Run, end: Finish, *, now: datetime) -> RunStatus:
    """The end of the assignment: Pending without one (the endpoint stays), or a terminal phase."""
    text = bounded(end.message)
    conditions = set_condition(run, run.status.conditions, RunCondition.READY, "False", end.reason, text, now)
    if end.backoff:
        conditions = set_condition(run, conditions, RunCondition.BACKOFF, "True", end.reason, text, now)
    status = msgspec.structs.replace(run.status, phase=end.phase.value, message=text, conditions=conditions)
    if end.phase in TERMINAL:
        return msgspec.structs.replace(status, completion_time=times.rfc3339(now), outputs=dict(end.outputs))
    return msgspec.structs.replace(status, assigned_pod="", assigned_pod_uid="")


def set_condition(
    run: Run,
    conditions: tuple[Condition, ...],
    kind: RunCondition,
    status: str,
    reason: str,
    message: str,
    now: datetime,
) -> tuple[Condition, ...]:
    """Puts the condition of type *kind* in its place; its transition time moves only with its status."""
    old = condition(conditions, kind)
    since = old.last_transition_time if old is not None and old.status == status else times.rfc3339(now)
    new = Condition(
        type=kind.value,
        status=status,
        reason=str(reason),
        message=message,
        last_transition_time=since,
        observed_generation=run.metadata.generation,
    )
    if old is None:
        return (*conditions, new)
    return tuple(new if c.type == kind else c for c in conditions)


def bounded(text: str) -> str:
    """*text*, cut where a status could not hold it."""
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"


def patch(run: Run, status: RunStatus) -> list[Op]:
    """The operations that turn *run*'s status into *status*, if the Run is still as it was seen.

    For the status subresource. Raises ForbiddenTransition for a step that design §5 does not give to runtimed.
    """
    transitions.check(Phase(run.status.phase or Phase.PENDING.value), Phase(status.phase), transitions.Writer.RUNTIMED)
    ops: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": run.metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": run.metadata.resource_version},
        {"op": "test", "path": "/status/phase", "value": run.status.phase},
        {"op": "test", "path": "/status/assignedPodUID", "value": run.status.assigned_pod_uid},
    ]
    old, new = _wire(run.status), _wire(status)
    ops += [{"op": "add", "path": f"/status/{key}", "value": new[key]} for key in new if new[key] != old.get(key)]
    ops += [{"op": "remove", "path": f"/status/{key}"} for key in old if key not in new]
    return ops


def finalizer_added(run: Run) -> list[Op]:
    """The operations that put our finalizer on the object; the API server refuses them on one that is being deleted."""
    tests: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": run.metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": run.metadata.resource_version},
    ]
    return [*tests, {"op": "add", "path": "/metadata/finalizers", "value": [*run.metadata.finalizers, FINALIZER]}]


def finalizer_removed(run: Run) -> list[Op]:
    """The operations that take it away. The index is tested, so that no other finalizer goes by mistake.

    The version is tested too: a request that comes into effect late must not free what a later attempt holds.
    """
    at = run.metadata.finalizers.index(FINALIZER)
    return [
        {"op": "test", "path": "/metadata/uid", "value": run.metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": run.metadata.resource_version},
        {"op": "test", "path": f"/metadata/finalizers/{at}", "value": FINALIZER},
        {"op": "remove", "path": f"/metadata/finalizers/{at}"},
    ]


def _wire(status: RunStatus) -> dict[str, object]:
    """The status as JSON has it: absent fields are absent, not null or empty."""
    plain: dict[str, object] = msgspec.to_builtins(status)
    if status.endpoint is not None and status.endpoint.ca_bundle is None:
        plain["endpoint"] = {"protocol": status.endpoint.protocol, "url": status.endpoint.url}
    plain["conditions"] = [_condition(c) for c in plain["conditions"]]  # type: ignore[attr-defined]
    return {key: value for key, value in plain.items() if value not in (None, "", 0, [], {}, ())}


def _condition(plain: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in plain.items() if not (key == "observedGeneration" and value == 0)}
