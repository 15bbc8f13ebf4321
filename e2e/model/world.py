"""One schedule: a few Runs, two Pods and their successors, an operator, everything that may go wrong, then peace.

What decides, reconciles and writes is the product's own code; API server, watches, Runtime Servers, nodes and time
are the model's. Every write and every change of what is served is held against the invariants at once.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from model.control import OperatorWorld
from model.node import PodWorld, epoch_of
from model.store import Raw, Store, Trouble
from model.virtual import START, VirtualLoop, clocks

from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import ASSIGNED, TERMINAL
from kruntimes.common.api.reasons import RunCondition
from kruntimes.common.api.times import rfc3339
from kruntimes.controller.lifecycle import FENCE_SECONDS
from kruntimes.controller.views import ControlledRun, requests
from kruntimes.runtimed import heartbeat, source

CAPACITY = 2
"""Runs of one Pod."""
PODS = 2
"""That are not being deleted; each that goes has a successor."""
MOST_PODS = 5
SETTLING_SECONDS = 900.0
"""In peace everything has come to rest by then: fences, claim deadlines and back-offs together take less."""
LOG_LINES = 40


class Broken(AssertionError):
    """An invariant does not hold."""


class World:
    """Everything of one schedule; what happens in it follows from *seed* alone."""

    def __init__(self, seed: int) -> None:
        self.seed, self.draw = seed, Random(seed)
        self.trouble = Trouble()
        self.store = Store(self._written)
        self.workspaces: set[tuple[str, str, int]] = set()
        self.pods: list[PodWorld] = []
        self.log: list[str] = []
        self.attempts: dict[str, int] = {}
        self.executed: dict[str, int] = {}
        self.beats: dict[str, float] = {}
        self.runs_made = self.pods_made = 0
        self.broken: list[str] = []
        self.operator: OperatorWorld

    # ------------------------------------------------------------ what must hold

    def look(self) -> None:
        """No Run is served, or executed, in two places."""
        for uid in self.attempts:
            serving = [pod.uid for pod in self.pods if pod.serves(uid)]
            working = [pod.uid for pod in self.pods if pod.working(uid)]
            if len(serving) > 1 or len(working) > 1:
                self._wrong("in two places", uid, serving, working)

    def _written(self, kind: str, key: str, before: Raw | None, after: Raw | None) -> None:
        if kind == "leases":
            self.beats[key] = asyncio.get_running_loop().time()
            return
        if kind != "runs":
            self.tell(f"{kind} {key} {'gone' if after is None else after['metadata'].get('deletionTimestamp', '')}")
            return
        if after is None:
            self.tell(f"run {key} gone")
            if before is not None:
                self._cleaned(before)
            return
        uid, old, new = after["metadata"]["uid"], (before or {}).get("status", {}), after.get("status", {})
        phase, was = new.get("phase") or "Pending", old.get("phase") or "Pending"
        reasons = [one["reason"] for one in new.get("conditions", ()) if one["type"] == "Ready"]
        held = FINALIZER in after["metadata"].get("finalizers", ())
        self.tell(f"run {key} {phase} {new.get('attempt', 0)} {new.get('assignedPodUID', '')} {reasons} {held}")
        if before is not None and before["metadata"]["uid"] != uid:
            old, was = {}, "Pending"
        if was in TERMINAL and phase != was:
            self._wrong("an end was left", uid, was, phase)
        attempt = new.get("attempt", 0)
        if attempt < old.get("attempt", 0) or attempt > after["spec"]["retryPolicy"]["maxAttempts"]:
            self._wrong("attempts", uid, old.get("attempt"), attempt)
        self.attempts[uid] = attempt
        if bool(new.get("assignedPod")) != bool(new.get("assignedPodUID")):
            self._wrong("half an assignment", uid, new)
        if phase not in ASSIGNED and (phase != "Pending" or was != "Pending"):
            busy = [pod.uid for pod in self.pods if pod.serves(uid) or pod.working(uid)]
            if busy:
                self._wrong("given up while it is served", uid, phase, busy)
            if held and phase != "Pending" and not after["metadata"].get("deletionTimestamp"):
                self._wrong("ended with the finalizer", uid, phase)
        if phase == "Pending" and new.get("assignedPodUID"):
            self._wrong("pending and assigned", uid)
        if before is not None and FINALIZER in before["metadata"].get("finalizers", ()) and not held:
            self._cleaned(before)
        self._capacity()
        self.look()

    def _cleaned(self, before: Raw) -> None:
        """A finalizer leaves when nothing is left that it guards, or the Pod is gone, or has long been silent."""
        epoch = epoch_of(before) if before.get("status") else None
        pod = next((pod for pod in self.pods if epoch is not None and pod.uid == epoch.pod_uid), None)
        if epoch is None or pod is None or pod.over or not before.get("status", {}).get("assignedPodUID"):
            return
        if pod.serves(epoch.run_uid) or pod.working(epoch.run_uid):
            self._wrong("let go while it is served", epoch)
        silent = asyncio.get_running_loop().time() - self.beats.get(pod.key, 0.0) >= FENCE_SECONDS - 1.0
        registered = pod.server.functions.get(epoch.run_uid)
        left = registered is not None and registered.attempt == epoch.attempt
        if "task" in before["spec"]["mode"]:
            return  # what it came to is written before the server may forget it, and its folder goes after that
        if not silent and (left or (pod.uid, epoch.run_uid, epoch.attempt) in self.workspaces):
            self._wrong("let go before the clean-up", epoch, left)

    def _capacity(self) -> None:
        """No Pod ever holds more than it has: of what is assigned to it, by the API server's own word."""
        used: dict[str, int] = {}
        for one in self.store.all("runs").values():
            run: ControlledRun = one.view(ControlledRun)
            if run.occupies:
                used[run.occupies] = used.get(run.occupies, 0) + requests(run).get("runs", 0)
        for uid, count in used.items():
            if count > CAPACITY:
                self._wrong("more than its capacity", uid, count)

    def _wrong(self, *what: object) -> None:
        """Kept until the schedule looks, since whoever writes may survive an exception."""
        self.broken.append(" ".join(map(str, what)))
        self.tell(f"BROKEN {what}")

    def tell(self, line: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():8.2f} {line}")

    # ------------------------------------------------------------ what goes on

    async def play(self) -> None:
        """The schedule. Raises Broken."""
        for _ in range(PODS):
            self._pod()
        self._lead()
        for _ in range(self.draw.choice([1, 1, 2, 3])):
            self._create(f"f{self.runs_made}")
        loop = asyncio.get_running_loop()
        until = loop.time() + self.draw.choice([15.0, 40.0, 90.0, 200.0])
        while loop.time() < until:
            await asyncio.sleep(self.draw.expovariate(1 / 6.0))
            self._fault()
            self._replace()
            self.look()
            self._raise()
        self._peace()
        begun = loop.time()
        while (left := self._unrest()) and loop.time() - begun < SETTLING_SECONDS:
            await asyncio.sleep(5.0)
            self._replace()
            self._raise()
        if left:
            self._wrong("does not come to rest", left)
        self._raise()
        for process in [pod.process for pod in self.pods] + [self.operator.process]:
            process.kill()

    def _raise(self) -> None:
        if self.broken:
            raise Broken(f"seed {self.seed}: {self.broken}\n" + "\n".join(self.log[-LOG_LINES:]))

    def _pod(self, name: str = "") -> None:
        self.pods_made += 1
        uid = f"u{self.pods_made}"
        self.pods.append(PodWorld(self, name or f"p{self.pods_made}", uid, CAPACITY))

    def _replace(self) -> None:
        """Every Pod that goes has a successor, at times with its very name."""
        there = [pod for pod in self.pods if not (pod.over or pod.deleting)]
        if len(there) < PODS and sum(not pod.over for pod in self.pods) < MOST_PODS:
            free = [pod.name for pod in self.pods if pod.over and pod.key not in self.store.all("pods")]
            self._pod(self.draw.choice(free) if free and self.draw.random() < 0.5 else "")

    def _lead(self) -> None:
        self.operator = OperatorWorld(self.store, self.draw, self.trouble, skew=self.draw.choice([0.0, -5.0, 10.0]))

    def _create(self, name: str) -> None:
        draw = self.draw
        self.runs_made += 1
        uid = f"r{self.runs_made}"
        mode: Raw = {"function": {"handler": "h.m"}} if draw.random() < 0.6 else {"task": {"entrypoint": "t"}}
        policy = {"maxAttempts": draw.choice([1, 2, 4]), "backoff": draw.choice(["1s", "10s"])}
        spec: Raw = {"runtime": "python", "mode": mode, "retryPolicy": policy, "source": {"inline": "x"}}
        if "function" in mode and draw.random() < 0.2:
            mode["function"]["idleTimeoutSeconds"] = 30
        if draw.random() < 0.2:
            spec["timeout"] = draw.choice(["40s", "200s"])
        if draw.random() < 0.2:
            spec["ttlSecondsAfterFinished"] = 20
        if draw.random() < 0.1:
            spec["resources"] = {"requests": {"runs": "2"}}
        now = datetime.fromtimestamp(START + asyncio.get_running_loop().time(), UTC)
        meta = {"name": name, "namespace": "n", "uid": uid, "creationTimestamp": rfc3339(now), "finalizers": []}
        self.attempts[uid] = 0
        self.store.put("runs", f"n/{name}", {"metadata": meta, "spec": spec})

    def _fault(self) -> None:
        """One thing that goes wrong, or that a user asks for."""
        draw, loop = self.draw, asyncio.get_running_loop()
        pod = draw.choice([pod for pod in self.pods if not pod.over] or self.pods)
        runs = list(self.store.all("runs"))
        what = draw.choice(_FAULTS)
        self.tell(f"- {what} {pod.uid}")
        match what:
            case "runtimed killed":
                pod.restart()
            case "server killed" if not pod.over:
                pod.server.restart()
            case "node cut off":
                pod.reach(True)
                for other in self.pods:
                    if draw.random() < 0.2:
                        other.reach(True)
            case "node lost":  # as far as anybody can see: its Pod is deleted, and runs on
                pod.reach(True)
                pod.delete()
            case "node back":
                for other in self.pods:
                    other.reach(False)
            case "pod deleted":
                pod.delete()
            case "pod gone":
                pod.end(told=draw.choice([0.0, 0.5, 30.0]))
            case "pod failed" if not pod.over:
                pod.end(told=60.0)
                pod._change(lambda raw: raw["status"].update(phase="Failed"))
            case "operator killed":
                self.operator.process.kill()
                loop.call_later(draw.uniform(0.0, 20.0), self._lead_again)
            case "operator cut off":
                self.operator.reach(True)
            case "operator back":
                self.operator.reach(False)
            case "watches slow" | "watches fast":
                for feed in [*self.operator.feeds, *pod.feeds_now]:
                    feed.slow = draw.choice([2.0, 15.0]) if what == "watches slow" else 0.05
            case "watches listed":
                for feed in [*self.operator.feeds, *pod.feeds_now]:
                    feed.relist()
            case "called":
                for held in pod.registry if pod.fence is not None else ():
                    if pod.calls is not None and pod.serves(held.epoch.run_uid):
                        pod.calls.begin(held, draw.choice([0.1, 5.0, 40.0]))
                        self.look()
            case "cancelled" if runs:
                self.store.change("runs", draw.choice(runs), lambda raw: raw["spec"].update(cancelRequested=True))
            case "deleted" if runs:
                self.store.delete("runs", draw.choice(runs))
            case "created" if self.runs_made < 4:
                names = [f"f{number}" for number in range(4)]
                free = [name for name in names if f"n/{name}" not in self.store.all("runs")]
                self._create(draw.choice(free))

    def _lead_again(self) -> None:
        if self.operator.process.dead:
            self._lead()

    def _peace(self) -> None:
        """Everything works again, and nothing else goes wrong."""
        self.tell("- peace")
        self.trouble.peace = True
        self._lead_again()
        self.operator.reach(False)
        for pod in self.pods:
            pod.reach(False)
            if not (pod.over or pod.alive):
                pod.start()
            for feed in pod.feeds_now:
                feed.slow = 0.05
        for feed in self.operator.feeds:
            feed.slow = 0.05

    # ------------------------------------------------------------ what rest is

    def _unrest(self) -> list[str]:
        """What has not come to rest: every Run is served, has ended, or says why it waits; nothing is held for
        nothing; and what the operator believes to be given away is what is.
        """
        left: list[str] = []
        used: dict[str, int] = {}
        mine: set[tuple[str, str]] = set()
        for key, one in self.store.all("runs").items():
            run: ControlledRun = one.view(ControlledRun)
            state, uid = run.state, run.metadata.uid
            if run.occupies:
                used[run.occupies] = used.get(run.occupies, 0) + requests(run).get("runs", 0)
                mine.add((run.occupies, uid))
            if run.metadata.deleting:
                left.append(f"{key} is not gone")
            elif state.phase in TERMINAL:
                if run.holds_finalizer or run.spec.ttl_seconds_after_finished:
                    left.append(f"{key} is kept")
            elif state.phase == "Ready":
                if not any(pod.serves(uid) and pod.uid == state.assigned_pod_uid for pod in self.pods):
                    left.append(f"{key} is Ready and not served")
                if run.spec.timeout or one.raw["spec"]["mode"].get("function", {}).get("idleTimeoutSeconds"):
                    left.append(f"{key} will end")
            elif not self._waits_for_room(run):
                left.append(f"{key} is {state.phase or 'Pending'}")
        for pod in self.pods:
            if pod.deleting and not pod.over:
                left.append(f"{pod.uid} is being deleted")
            held = {held.epoch.run_uid for held in pod.registry} if pod.alive else set()
            known = {*held, *pod.server.functions, *pod.server.tasks} if not pod.over else set()
            left += [f"{pod.uid} holds {uid}" for uid in known if (pod.uid, uid) not in mine]
            for place, uid, attempt in self.workspaces:
                if place == pod.uid and not pod.over and (pod.uid, uid) not in mine:
                    left.append(f"{pod.uid} keeps the folder of {uid}/{attempt}")
            if self.operator.book.used(pod.uid).get("runs", 0) != used.get(pod.uid, 0):
                left.append(f"{pod.uid} is booked otherwise")
        return left

    @staticmethod
    def _waits_for_room(run: ControlledRun) -> bool:
        ready = run.condition(RunCondition.READY)
        return ready is not None and ready.reason == "InsufficientCapacity"


_FAULTS = (
    "runtimed killed", "server killed", "node cut off", "node lost", "node back", "pod deleted", "pod gone",
    "pod failed", "operator killed", "operator cut off", "operator back", "watches slow", "watches fast",
    "watches listed", "called", "called", "cancelled", "deleted", "created", "nothing",
)  # fmt: skip


class _Listener(logging.Handler):
    """Whatever the product reports as an error of its own breaks the schedule."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.world: World | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None and self.world is not None:
            self.world.broken.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def models() -> Iterator[_Listener]:
    """What every schedule needs in place of files, and of waits that only make it long."""
    listener = _Listener()

    def materialise(home: source.Home, *, uid: str, attempt: int, inline: str | None, path: str) -> Path:
        assert listener.world is not None
        listener.world.workspaces.add((home.pod_uid, uid, attempt))
        return home.working_dir(uid=uid, attempt=attempt)

    def remove(home: source.Home, *, uid: str, attempt: int) -> None:
        assert listener.world is not None
        listener.world.workspaces.discard((home.pod_uid, uid, attempt))

    def found(home: source.Home) -> frozenset[str]:
        assert listener.world is not None
        return frozenset(uid for pod, uid, _ in listener.world.workspaces if pod == home.pod_uid)

    def remove_all(home: source.Home, *, uid: str) -> None:
        assert listener.world is not None
        listener.world.workspaces -= {one for one in listener.world.workspaces if one[:2] == (home.pod_uid, uid)}

    logger = logging.getLogger("kruntimes")
    level, propagates = logger.level, logger.propagate
    logger.addHandler(listener)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        with pytest.MonkeyPatch.context() as patched:
            for name, function in {
                "materialise": materialise, "remove": remove, "found": found, "remove_all": remove_all,
            }.items():  # fmt: skip
                patched.setattr(source, name, function)
            patched.setattr(heartbeat, "LOOK_SECONDS", 3.0)
            patched.setattr(heartbeat, "FIRST_LOOK_SECONDS", 1.0)
            yield listener
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logger.propagate = propagates


def play(seed: int, listener: _Listener) -> World:
    """Plays one schedule to its end."""
    loop = VirtualLoop()
    with clocks(loop, (world := World(seed)).draw.random):
        listener.world = world
        try:
            loop.run_until_complete(world.play())
        finally:
            listener.world = None
            pending = asyncio.all_tasks(loop)
            for task in pending:
                task.cancel()
            if pending:
                loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            loop.close()
    return world
