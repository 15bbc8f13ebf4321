"""Random schedules of everything that may go wrong with one Run, and what must hold after every step of each.

A schedule is a seed, so one that fails is repeated by its number: `MODEL_SEED=n`. `MODEL_SCHEDULES` sets how many.
"""

import os
from dataclasses import replace
from typing import Any

import pytest
from model.world import World, ended

from kruntimes.common.api.names import FINALIZER

STEPS = 220
SCHEDULES = int(os.environ.get("MODEL_SCHEDULES", "60"))
"""In CI; a few seconds of one core."""
BATCHES = 4
SETTLING_STEPS = 400
"""After the last fault, far more than the way from any state to the end of it."""


def fault(world: World) -> None:
    """One thing that goes wrong, or that a user asks for."""
    draw, pods = world.draw, list(world.pods.values())
    pod = draw.choice(pods)
    match draw.randrange(12):
        case 0:  # runtimed is killed: what it held is gone, its watch begins anew
            pod.local, pod.fresh, pod.seen = None, None, world.last if not pod.cut else pod.seen
            world.log.append(f"{pod.uid} runtimed killed")
        case 1:  # the Runtime Server is killed
            pod.functions.clear()
            if pod.local is not None:
                pod.local = replace(pod.local, function=None)
            world.log.append(f"{pod.uid} server killed")
        case 2:
            pod.cut = True
            world.log.append(f"{pod.uid} cut off")
        case 3:
            pod.cut = False
        case 4 if len(pods) < 4:
            pod.deleting = True
            world.add_pod()
            world.log.append(f"{pod.uid} deleting")
        case 5 if len(pods) < 4:  # evicted, its processes with it; a new Pod has its name and its address
            del world.pods[pod.uid]
            world.gone.add(pod.uid)
            world.add_pod()
            world.log.append(f"{pod.uid} gone")
        case 6 if draw.random() < 0.15:
            _change(world, "spec", "cancelRequested", True)
        case 7 if draw.random() < 0.1:
            _change(world, "metadata", "deletionTimestamp", "2027-01-15T08:00:00Z")
        case _:
            world.tick(draw.choice([0.1, 5.0, 20.0, 45.0, 90.0]))


def _change(world: World, part: str, key: str, value: object) -> None:
    if (run := world.api.run) is not None:
        run[part][key] = value
        world.api.keep(run)
        world.log.append(f"user {key}")


def collect(world: World) -> None:
    """Pods that are deleting go once nothing holds them: their grace is longer than any drain."""
    for pod in list(world.pods.values()):
        if pod.deleting and not pod.cut and pod.local is None and world.draw.random() < 0.3:
            del world.pods[pod.uid]
            world.gone.add(pod.uid)


def check(world: World, before: dict[str, Any] | None) -> None:
    """The invariants."""
    run, told = world.api.run, (world.seed, world.log[-25:])
    serving = [pod.uid for pod in world.pods.values() if world.serving(pod)]
    assert len(serving) <= 1, ("two serve", serving, told)
    if before is not None and before["status"].get("phase") in ("Succeeded", "Failed", "Timeout", "Cancelled"):
        assert run is None or run["status"]["phase"] == before["status"]["phase"], ("terminal left", told)
    if run is None:
        return
    state = run["status"]
    assert state.get("attempt", 0) <= run["spec"]["retryPolicy"]["maxAttempts"], ("too many attempts", told)
    assert bool(state.get("assignedPod")) == bool(state.get("assignedPodUID")), told
    if state.get("phase", "Pending") == "Pending":
        assert not state.get("assignedPodUID"), told
        assert not serving, ("given back while it is served", serving, told)
    if before is not None and state.get("phase") == "Scheduled" and before["status"].get("phase") != "Scheduled":
        assert not serving, ("reassigned before a fence", serving, told)
    if ended(run) and not run["metadata"].get("deletionTimestamp"):
        assert FINALIZER not in run["metadata"]["finalizers"], ("ended with the finalizer", told)
        assert not serving, ("ended while it is served", serving, told)


def play(seed: int) -> World:
    """One schedule, and then peace, in which everything has to come to rest."""
    world = World(seed)
    for number in range(STEPS + SETTLING_STEPS):
        peace, before = number >= STEPS, world.api.run
        if peace:
            for pod in world.pods.values():
                pod.cut = False
            world.tick(2.0)
            world.deliver(all_of_it=True)
        else:
            world.deliver()
            world.tick(0.5)
        turn = world.draw.random()
        if not peace and turn < 0.15:
            fault(world)
        elif turn < 0.4:
            world.operate()
        else:
            world.step(world.draw.choice(list(world.pods.values())))
        collect(world)
        check(world, before)
    return world


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_schedule_keeps_the_invariants_and_comes_to_rest(batch: int) -> None:
    first = int(os.environ.get("MODEL_SEED", "0"))
    for seed in range(first + batch, first + SCHEDULES, BATCHES):
        world = play(seed)
        run = world.api.run
        told = (seed, run and run["status"], world.log[-25:])
        if run is not None and not ended(run):
            assert run["status"].get("phase") == "Ready", ("neither ended nor served", told)
            owner = world.pods[run["status"]["assignedPodUID"]]
            assert world.serving(owner), ("Ready and not served", told)
        for pod in world.pods.values():
            mine = run is not None and run["status"].get("assignedPodUID") == pod.uid and not ended(run)
            assert mine or not pod.functions, ("an orphan registration", pod.uid, told)
            assert mine or pod.local is None, ("something is held for nothing", pod.uid, told)
