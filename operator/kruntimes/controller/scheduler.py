"""The scheduler's shell: carries out what `schedule` decides, for one Runtime at a time.

An assignment is entered into the book before it is written, so that no later decision gives the same capacity
away again, whatever the watch still shows. A write that was refused is taken back; one whose outcome is not
known stays entered until the Run has been read again.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from kruntimes.common import clock
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.views import Pod
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import ApiError, Conflict, Forbidden, Invalid, Missing
from kruntimes.common.kube.queue import After, Done, WorkQueue, work
from kruntimes.common.kube.transport import Kube
from kruntimes.controller import writes
from kruntimes.controller.announce import Announcer, about
from kruntimes.controller.book import Book
from kruntimes.controller.metrics import Metrics
from kruntimes.controller.schedule import (
    Action,
    Assign,
    Cancel,
    Expire,
    Explain,
    Offer,
    Wake,
    offer,
    pending,
    schedule,
)
from kruntimes.controller.views import ControlledRun, ControlledStatus

log = logging.getLogger(__name__)

WORKERS = 4
"""Runtimes that are scheduled at once; a slow write of one must not hold up the others."""
PASS_WRITES = 128
"""Writes of one pass over one Runtime. A Runtime with more to write comes again after all others that have something to
do, so that ten thousand Runs in one namespace do not hold up the first one in another."""
WRITES = 32
"""Writes in flight for all Runtimes; API servers admit a client's writes in about this number at once."""
STALE_SECONDS = 0.05
"""After a refused write the watch is about to show why; it is never waited for longer than this before a new try."""

ENDS_WITH_ITS_POD = (
    "spec.retryPolicy.maxAttempts is 1: the function ends as Failed when its Pod goes; "
    "with more it is registered again on another one"
)


class Scheduler:
    """Assigns pending Runs.

    alive: whether a Pod's heartbeat lives. retiring: whether its template is an old one. doubtful: whether it left a
    Run unclaimed lately. exists: whether there is a Runtime of that key.
    """

    def __init__(
        self,
        kube: Kube,
        book: Book,
        *,
        alive: Callable[[Pod], bool],
        retiring: Callable[[Pod], bool],
        doubtful: Callable[[Pod], bool],
        exists: Callable[[str], bool],
        announcer: Announcer,
        metrics: Metrics,
    ) -> None:
        self._kube = kube
        self._book = book
        self._alive = alive
        self._retiring = retiring
        self._doubtful = doubtful
        self._exists = exists
        self._announcer = announcer
        self._metrics = metrics
        self._queue = WorkQueue()
        self._writes = asyncio.Semaphore(WRITES)
        self._unsure: dict[str, dict[str, ControlledRun]] = {}

    def wake(self, runtime: str) -> None:
        """Something changed for the Runtime *runtime* (`namespace/name`)."""
        self._queue.add(runtime)

    async def run(self) -> None:
        """Schedules until cancelled."""
        await work(self._queue, self._reconcile, workers=WORKERS)

    async def _reconcile(self, runtime: str) -> Done | After:
        await self._settle(runtime)
        waiting = {one.key: run for run in self._book.waiting(runtime) if (one := pending(run)) is not None}
        if not waiting:
            return Done()
        now = clock.wall()
        missing = "" if self._exists(runtime) else runtime.partition("/")[2]
        found = filter(None, map(pending, waiting.values()))
        actions = schedule(found, self._offers(runtime), now, missing=missing)
        due = [action for action in actions if not isinstance(action, Wake)]
        wakes = [max(0.0, action.at - now) for action in actions if isinstance(action, Wake)]
        due.sort(key=lambda action: isinstance(action, Explain))
        async with asyncio.TaskGroup() as group:
            tasks = []
            for action in due[:PASS_WRITES]:
                run = waiting[action.key]
                if isinstance(action, Assign):
                    self._book.put_run(action.key, _assumed(run, action))
                tasks.append(group.create_task(self._carry_out(runtime, run, action, now)))
        outcomes = [task.result() for task in tasks]
        for outcome in outcomes:
            if isinstance(outcome, ApiError):
                raise outcome
        if not all(outcomes):
            return After(STALE_SECONDS)
        if len(due) > PASS_WRITES:
            return After(0)
        return After(min(wakes)) if wakes else Done()

    def _offers(self, runtime: str) -> list[Offer]:
        offers = (
            offer(
                pod,
                used=self._book.used(pod.metadata.uid),
                alive=self._alive(pod),
                retiring=self._retiring(pod),
                doubtful=self._doubtful(pod),
            )
            for pod in self._book.pods(runtime)
        )
        return [one for one in offers if one is not None]

    async def _carry_out(self, runtime: str, run: ControlledRun, action: Action, now: float) -> bool | ApiError:
        """Writes one action. False: refused, because the Run has changed meanwhile.

        An error is returned and not raised, for it must not cut off the writes beside it.
        """
        assumed = self._book.run(run.metadata.key)
        path = paths.runs(run.metadata.namespace, run.metadata.name, "status")
        try:
            async with self._writes:
                written = await self._kube.patch_json(path, writes.of(run, action, now=now), ControlledRun)
        except (Conflict, Missing):
            self._take_back(run, assumed)
            return False
        except (Invalid, Forbidden) as error:
            self._take_back(run, assumed)
            return error
        except ApiError as error:
            self._unsure.setdefault(runtime, {})[run.metadata.key] = run
            return error
        if self._book.run(run.metadata.key) is assumed:
            self._book.put_run(run.metadata.key, written)
        self._tell(written, action)
        return True

    def _take_back(self, run: ControlledRun, assumed: ControlledRun | None) -> None:
        """Undoes an entry, unless the watch has already shown something newer."""
        if self._book.run(run.metadata.key) is assumed:
            self._book.put_run(run.metadata.key, run)

    async def _settle(self, runtime: str) -> None:
        """Reads again what writes of unknown outcome have left open."""
        for key, run in list(self._unsure.get(runtime, {}).items()):
            before = self._book.run(key)
            try:
                found: ControlledRun | None = await self._kube.get(
                    paths.runs(run.metadata.namespace, run.metadata.name), ControlledRun
                )
            except Missing:
                found = None
            if self._book.run(key) is before:
                self._book.put_run(key, found)
            del self._unsure[runtime][key]

    def _tell(self, run: ControlledRun, action: Action) -> None:
        extra = {"run_uid": run.metadata.uid, "runtime": run.runtime_key, "attempt": run.state.attempt}
        if isinstance(action, Assign):
            self._metrics.assigned.inc()
            log.info("run scheduled", extra=extra | {"pod": action.pod})
            self._announcer.say(about(run), reason="Scheduled", message=f"Assigned to Pod {action.pod}")
            if run.ends_with_its_pod and not run.state.attempt:
                self._announcer.say(about(run), reason="EndsWithItsPod", message=ENDS_WITH_ITS_POD)
        elif isinstance(action, Explain):
            self._announcer.say(about(run), reason=action.reason.value, message=action.message, warning=True)
        elif isinstance(action, Cancel | Expire):
            phase, reason = writes.ending(action)
            self._announcer.say(about(run), reason=reason.value, message=f"{phase.value} before it was assigned")
            self._metrics.ended.labels(reason=reason.value).inc()
            log.info("run ended before assignment", extra=extra | {"reason": reason.value})


def _assumed(run: ControlledRun, action: Assign) -> ControlledRun:
    state = run.state
    status = ControlledStatus(
        phase=Phase.SCHEDULED.value,
        assigned_pod=action.pod,
        assigned_pod_uid=action.pod_uid,
        start_time=state.start_time,
        attempt=state.attempt,
        conditions=state.conditions,
    )
    return msgspec.structs.replace(run, status=status)
