"""The scheduling decision: which pending Runs go to which Pods, and what the others are told.

Oldest first; each goes to the least loaded Pod that has room; a Run that does not fit anywhere does not hold
up the Runs behind it. Everything is an argument, so the same input gives the same answer.

Source: design §5, the rows that the scheduler owns; §4 for capacity; first source document, "Capacity and
Concurrency".
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason, RunCondition
from kruntimes.common.api.retry import backoff_seconds
from kruntimes.common.api.views import Pod
from kruntimes.controller.views import ControlledRun, duration, instant, requests

ASSIGNED_TOTAL = "kruntimes_operator_runs_assigned_total"
"""Counts Assign decisions that were written."""
ENDED_TOTAL = "kruntimes_operator_runs_ended_before_assignment_total"
"""Counts Cancel and Expire decisions that were written, by reason."""
PENDING_RUNS = "kruntimes_operator_runs_pending"
"""Runs that wait for a Pod."""

UNCLAIMED_SECONDS = 60.0
"""How long a Run waits after a live runtimed left it unclaimed; as long as the longest back-off, since nothing that
the Run or its owner can do has changed meanwhile, and capacity that it held in vain is others' until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A Run that waits for a Pod.

    created: RFC 3339, which sorts by time. lifetime_ends, not_before: seconds since the epoch.
    explained: reason and message that its condition Ready gives now, both empty where it has none.
    """

    key: str
    created: str
    requests: Mapping[str, int]
    cancel: bool = False
    lifetime_ends: float | None = None
    not_before: float = 0.0
    explained: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A Pod that takes new Runs: what it holds at most, and what is taken.

    retiring: it belongs to an old template and is taken only where no other Pod has room.
    doubtful: its runtimed has lately left a Run unclaimed; it is the very last choice, or it would draw every Run.
    """

    name: str
    uid: str
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    retiring: bool = False
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Pending → Scheduled, on that Pod."""

    key: str
    pod: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Pending → Cancelled: it was never assigned, so there is nothing to clean up."""

    key: str


@dataclass(frozen=True, slots=True)
class Expire:
    """Pending → Timeout: its lifetime ended while it waited for a retry."""

    key: str


@dataclass(frozen=True, slots=True)
class Explain:
    """Stays Pending; its condition Ready says why. The message does not change while the reason for it does not."""

    key: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Nothing before that moment (seconds since the epoch, never in the past) changes the answer by itself."""

    at: float


Action = Assign | Cancel | Expire | Explain | Wake


def pending(run: ControlledRun) -> Pending | None:
    """The scheduler's view of a Run; None for one that is not its business: assigned, ended or being deleted."""
    if run.state.phase not in ("", Phase.PENDING) or run.state.assigned_pod_uid or run.metadata.deleting:
        return None
    ready = run.condition(RunCondition.READY)
    return Pending(
        key=run.metadata.key,
        created=run.metadata.creation_timestamp,
        requests=requests(run),
        cancel=run.spec.cancel_requested,
        lifetime_ends=run.lifetime_ends,
        not_before=_backoff_ends(run),
        explained=(ready.reason, ready.message) if ready is not None else ("", ""),
    )


def offer(
    pod: Pod, *, used: Mapping[str, int], alive: bool, retiring: bool = False, doubtful: bool = False
) -> Offer | None:
    """What a Pod offers to new Runs; None unless it is ready, not being deleted, and its heartbeat is *alive*.

    A Pod whose capacity cannot be read, since somebody has overwritten the annotation, offers nothing.
    """
    if not (pod.ready and alive):
        return None
    try:
        capacity = pod.capacity
    except ValueError:
        return None
    meta = pod.metadata
    return Offer(name=meta.name, uid=meta.uid, capacity=capacity, used=used, retiring=retiring, doubtful=doubtful)


def schedule(waiting: Iterable[Pending], offers: Iterable[Offer], now: float, *, missing: str = "") -> list[Action]:
    """Decides about every waiting Run of one Runtime; *now* is seconds since the epoch.

    missing: the name of the Runtime where there is none of that name.

    At most one action for each Run, in order of age, and at most one Wake, at the end.
    """
    actions: list[Action] = []
    wakes: list[float] = []
    pool = _Pool(() if missing else offers)
    for run in sorted(waiting, key=lambda run: (run.created, run.key)):
        if run.cancel:
            actions.append(Cancel(run.key))
            continue
        if run.lifetime_ends is not None:
            if run.lifetime_ends <= now:
                actions.append(Expire(run.key))
                continue
            wakes.append(run.lifetime_ends)
        if run.not_before > now:
            wakes.append(run.not_before)
            if not any(run.explained):
                message = "waits for its back-off before the next attempt"
                actions.append(Explain(run.key, Reason.UNSCHEDULED, message))
            continue
        taken = pool.take(run.requests)
        if taken is not None:
            actions.append(Assign(run.key, taken.name, taken.uid))
            continue
        explain = _why(run, pool, missing)
        if run.explained != (explain.reason, explain.message):
            actions.append(explain)
    if wakes:
        actions.append(Wake(min(wakes)))
    return actions


def _why(run: Pending, pool: "_Pool", missing: str) -> Explain:
    """Why nothing takes a Run that is due."""
    if missing:
        message = f"spec.runtime: there is no Runtime {missing!r} in this namespace"
        return Explain(run.key, Reason.RUNTIME_NOT_FOUND, message)
    if pool.empty:
        message = "no ready Pod of the Runtime has a live heartbeat; the conditions of the Runtime say more"
        return Explain(run.key, Reason.NO_READY_POD, message)
    asked = ", ".join(f"{name}={count}" for name, count in sorted(run.requests.items()))
    if pool.holds(run.requests):
        message = f"every ready Pod of the Runtime is full: there is no room for {asked}"
    else:
        most = ", ".join(f"{name}={pool.most(name)}" for name in sorted(run.requests))
        message = f"spec.resources.requests: {asked} is more than any ready Pod of the Runtime offers, at most {most}"
    return Explain(run.key, Reason.INSUFFICIENT_CAPACITY, message)


class _Pool:
    """The offers of one pass, least loaded first; what a Run takes is gone for the Runs behind it."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        self._used: dict[str, dict[str, int]] = {}
        self._heap: list[_Entry] = []
        self._refused: set[tuple[tuple[str, int], ...]] = set()
        self._offers = list(offers)
        for one in self._offers:
            self._used[one.uid] = dict(one.used)
            self._heap.append(self._entry(one))
        heapq.heapify(self._heap)
        self.empty = not self._heap

    def take(self, wanted: Mapping[str, int]) -> Offer | None:
        shape = tuple(sorted(wanted.items()))
        if shape in self._refused:
            return None
        passed: list[_Entry] = []
        found: Offer | None = None
        while self._heap and found is None:
            entry = heapq.heappop(self._heap)
            one = entry[-1]
            used = self._used[one.uid]
            if all(used.get(name, 0) + count <= one.capacity.get(name, 0) for name, count in wanted.items()):
                for name, count in wanted.items():
                    used[name] = used.get(name, 0) + count
                found = one
                passed.append(self._entry(one))
            else:
                passed.append(entry)
        for entry in passed:
            heapq.heappush(self._heap, entry)
        if found is None:
            self._refused.add(shape)
        return found

    def holds(self, wanted: Mapping[str, int]) -> bool:
        """Whether some Pod, were it empty, would have room for *wanted*."""
        return any(all(one.capacity.get(name, 0) >= count for name, count in wanted.items()) for one in self._offers)

    def most(self, name: str) -> int:
        """The largest capacity of *name* that a Pod offers."""
        return max((one.capacity.get(name, 0) for one in self._offers), default=0)

    def _entry(self, one: Offer) -> "_Entry":
        used = self._used[one.uid]
        load = max((used.get(name, 0) / count for name, count in one.capacity.items() if count > 0), default=0.0)
        return (one.doubtful, one.retiring, load, one.uid, one)


_Entry = tuple[bool, bool, float, str, Offer]
"""What comes first in the pool, and the offer itself."""


def usage(runs: Iterable[ControlledRun]) -> dict[str, int]:
    """The sum of what Runs take: of those assigned to one Pod, what the Pod has given away."""
    total: dict[str, int] = {}
    for name, count in chain.from_iterable(requests(run).items() for run in runs):
        total[name] = total.get(name, 0) + count
    return total


def _backoff_ends(run: ControlledRun) -> float:
    backoff = run.condition(RunCondition.BACKOFF)
    if backoff is None or backoff.status != "True" or not backoff.last_transition_time:
        return 0.0
    if backoff.reason == Reason.UNSCHEDULED:
        return instant(backoff.last_transition_time) + UNCLAIMED_SECONDS
    wait = backoff_seconds(attempt=run.state.attempt, base=duration(run.spec.retry_policy.backoff))
    return instant(backoff.last_transition_time) + wait
