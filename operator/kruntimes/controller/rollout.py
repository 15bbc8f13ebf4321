"""How the Pods of a Runtime move to a new template, and what its status says about it. Pure.

The current ReplicaSet gets all that is wanted at once. An old one keeps its busy Pods, and as many free ones as
the new one still lacks; the rest go. A ReplicaSet's controller chooses which Pods go, so the busy ones are
protected by their deletion cost first, and the number is lowered only when all of them carry it.

Source: design §4 (one ReplicaSet per template hash, scaled down as its Pods fall free).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kruntimes.common.api.reasons import RuntimeCondition
from kruntimes.common.api.views import Condition, condition

BUSY_COST = "1000"
"""Above the cost 0 of a Pod without the annotation; a Pod that holds Runs is deleted last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFact:
    """A Pod of a ReplicaSet. busy: it holds Runs. cost: its deletion cost as annotated, None without."""

    key: str
    uid: str
    ready: bool
    busy: bool
    cost: str | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why no Pods can be made. reason: one CamelCase word; message: a sentence, the API server's where it has one."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A ReplicaSet of a Runtime with its Pods, those aside that are being deleted or have ended.

    created: RFC 3339. failure: what its controller says stops it, None while nothing does.
    """

    name: str
    uid: str
    replicas: int
    pods: tuple[PodFact, ...] = ()
    created: str = ""
    failure: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """Make the current ReplicaSet."""

    replicas: int


@dataclass(frozen=True, slots=True)
class Scale:
    """Set a ReplicaSet's number of Pods."""

    name: str
    uid: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Protect:
    """Set a Pod's deletion cost; None takes it off."""

    pod: str
    uid: str
    cost: str | None


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete an old ReplicaSet that has no Pods left."""

    name: str
    uid: str


Step = Create | Scale | Protect | Remove


def plan(*, wanted: int, current: Generation | None, old: Sequence[Generation], refused: bool = False) -> list[Step]:
    """The steps that can be taken now; a step that another must precede comes with a later plan.

    refused: no ReplicaSet can be made of the current template. What serves meanwhile is what served before, and
    follows the number that is wanted, both ways.
    """
    steps: list[Step] = []
    if refused and current is None:
        if not old:
            return steps
        current = max(old, key=lambda one: (one.replicas, one.created, one.name))
        old = [one for one in old if one is not current]
    if current is None:
        steps.append(Create(wanted))
    elif current.replicas < wanted:
        steps.append(Scale(current.name, current.uid, wanted))
    elif current.replicas > wanted:
        steps += _lower(current, wanted)
    lacking = max(0, wanted - (0 if current is None else sum(pod.ready for pod in current.pods)))
    for generation in old:
        if generation.replicas == 0 and not generation.pods:
            steps.append(Remove(generation.name, generation.uid))
            continue
        busy = sum(pod.busy for pod in generation.pods)
        spare = min(lacking, max(0, generation.replicas - busy))
        lacking -= spare
        if busy + spare < generation.replicas:
            steps += _lower(generation, busy + spare)
    return steps


def _lower(generation: Generation, replicas: int) -> list[Step]:
    missing: list[Step] = [
        Protect(pod.key, pod.uid, BUSY_COST if pod.busy else None)
        for pod in generation.pods
        if pod.cost != (BUSY_COST if pod.busy else None)
    ]
    return missing or [Scale(generation.name, generation.uid, replicas)]


def complete(*, wanted: int, current: Generation | None, old: Sequence[Generation]) -> bool:
    """Whether every Pod that is wanted is ready and of the current template, and no other is left."""
    return current is not None and sum(pod.ready for pod in current.pods) == wanted == current.replicas and not old


def hindrance(*, wanted: int, current: Generation | None, old: Sequence[Generation]) -> Trouble | None:
    """What the ReplicaSets' controller says stops it, the current ReplicaSet's first; None where it does not matter.

    A ServiceAccount that is missing, a quota that is used up, Pod security admission: a Deployment tells these in
    the same way, by the ReplicaSet's own condition.
    """
    if complete(wanted=wanted, current=current, old=old):
        return None
    every = [*(() if current is None else (current,)), *old]
    return next((one.failure for one in every if one.failure is not None), None)


def conditions(
    held: tuple[Condition, ...],
    *,
    ready: int,
    wanted: int,
    done: bool,
    trouble: Trouble | None,
    generation: int,
    now: str,
) -> tuple[Condition, ...]:
    """Available (a Run can be placed) and Progressing (Pods are being made or replaced).

    trouble: what stands in the way, None where nothing does. now: RFC 3339.
    """
    available = (ready > 0, "PodsReady" if ready else "NoReadyPod", f"{ready} of {wanted} Pods are ready")
    if trouble is not None:
        progressing = (False, trouble.reason, trouble.message)
    elif done:
        progressing = (False, "Complete", "every Pod is ready and of the current template")
    else:
        progressing = (True, "RollingOut", "Pods of the current template are being made")
    kept = tuple(one for one in held if one.type not in (RuntimeCondition.AVAILABLE, RuntimeCondition.PROGRESSING))
    return (
        *kept,
        _condition(held, RuntimeCondition.AVAILABLE, available, generation=generation, now=now),
        _condition(held, RuntimeCondition.PROGRESSING, progressing, generation=generation, now=now),
    )


def _condition(
    held: tuple[Condition, ...],
    kind: RuntimeCondition,
    value: tuple[bool, str, str],
    *,
    generation: int,
    now: str,
) -> Condition:
    status, reason, message = value
    known = condition(held, kind)
    text = "True" if status else "False"
    return Condition(
        type=kind.value,
        status=text,
        reason=reason,
        message=message,
        last_transition_time=known.last_transition_time if known is not None and known.status == text else now,
        observed_generation=generation,
    )
