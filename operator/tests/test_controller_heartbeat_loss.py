"""What follows from silence, on a real kube-apiserver and with the times made short."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.controller_world import Json, World, eventually, world

from kruntimes.common.api.names import READINESS_GATE
from kruntimes.common.api.views import Pod, condition
from kruntimes.common.kube import paths
from kruntimes.controller import heartbeats, lifecycle, pods, schedule
from kruntimes.controller.views import ControlledRun

SILENT_SECONDS, FENCE_SECONDS, CLAIM_SECONDS = 1.5, 3.0, 3.0


@pytest.fixture
async def place(control_plane: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    for module in (heartbeats, lifecycle, pods):
        monkeypatch.setattr(module, "LOST_SECONDS", SILENT_SECONDS)
    monkeypatch.setattr(lifecycle, "FENCE_SECONDS", FENCE_SECONDS)
    monkeypatch.setattr(lifecycle, "CLAIM_SECONDS", CLAIM_SECONDS)
    async with world(control_plane, tmp_path) as made:
        yield made


def reason(run: ControlledRun) -> str:
    held = run.condition("Ready")
    return held.reason if held is not None else ""


async def gate(place: World, pod: Pod) -> str:
    found = await place.admin.get(paths.pods(place.namespace, pod.metadata.name), Pod)
    held = condition(found.status.conditions, READINESS_GATE)
    return held.status if held is not None else ""


async def invoked(place: World, name: str) -> None:
    """Makes a scheduled Run what runtimed makes of it."""
    now = "2026-01-01T00:00:00Z"
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "FunctionRegistered",
        "message": "",
        "lastTransitionTime": now,
    }
    await place.write_status(name, {"phase": "Ready", "attempt": 1, "startTime": now, "conditions": [ready]})


async def scheduled(place: World, pod: Pod, name: str) -> ControlledRun:
    """Waits for a Run to be assigned while *pod* lives, however long that takes on a busy machine."""

    async def found() -> ControlledRun | None:
        await place.beat(pod)
        run = await place.run(name)
        return run if run is not None and run.state.phase == "Scheduled" else None

    return await eventually(found)


async def test_a_silent_pod_loses_its_routes_and_gets_nothing_new_but_keeps_its_runs(place: World) -> None:
    async with place.operator():
        await place.runtime("python")
        (pod,) = await place.ready_pods("python", 1)
        await place.create_run("held", "python", retryPolicy={"maxAttempts": 9})
        await scheduled(place, pod, "held")
        await invoked(place, "held")

        async def closed() -> bool:
            return await gate(place, pod) == "False"

        await eventually(closed)
        held = await place.until("held", lambda run: reason(run) == "RuntimePodLost")
        assert held.state.phase == "Ready"
        assert held.state.assigned_pod_uid == pod.metadata.uid
        await place.create_run("new", "python")
        await place.until("new", lambda run: reason(run) == "NoReadyPod")
        # It was only slow: the next beat opens the gate and brings it work again.
        await place.beat(pod)
        new = await scheduled(place, pod, "new")
        assert new.state.assigned_pod_uid == pod.metadata.uid
        assert await place.run("held") == held


async def test_a_deleting_pod_is_fenced_once_it_is_unserved_and_silent_for_long_enough(place: World) -> None:
    async with place.operator():
        await place.runtime("python")
        (pod,) = await place.ready_pods("python", 1)
        await place.create_run("held", "python", retryPolicy={"maxAttempts": 9, "backoff": "1s"})
        await scheduled(place, pod, "held")
        await invoked(place, "held")
        path = paths.pods(place.namespace, pod.metadata.name)
        await place.admin.patch_merge(path, {"metadata": {"finalizers": ["test/keeps-it"]}}, dict)
        await place.bind(pod)
        await place.admin.delete(path, grace_seconds=0)
        await place.beat(pod)
        withdrawn = await place.until("held", lambda run: reason(run) == "RuntimePodLost")
        assert withdrawn.state.assigned_pod_uid == pod.metadata.uid
        released = await place.until("held", lambda run: run.state.phase == "Pending")
        assert reason(released) == "FencedOutOfEndpoints"
        assert not released.state.assigned_pod_uid
        await place.admin.patch_merge(path, {"metadata": {"finalizers": None}}, dict)


async def test_a_run_that_nobody_claims_goes_back(place: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place.operator():
        await place.runtime("python")
        (pod,) = await place.ready_pods("python", 1)
        first = await place.create_run("r", "python")
        await scheduled(place, pod, "r")
        # Only the operator's own write takes it back, and the scheduler assigns it once more, though not at once.

        async def returned() -> bool:
            await place.beat(pod)
            found: Json = await place.admin.get(f"{paths.events(place.namespace)}", dict)
            told = [one for one in found["items"] if one["involvedObject"]["uid"] == first.metadata.uid]
            return any(one["reason"] == "Unscheduled" for one in told)

        await eventually(returned)
        waits = await place.until("r", lambda run: run.state.phase == "Pending")
        backoff = waits.condition("Backoff")
        assert backoff is not None
        assert (backoff.status, backoff.reason, reason(waits)) == ("True", "Unscheduled", "Unscheduled")
        assert not waits.state.assigned_pod_uid
        monkeypatch.setattr(schedule, "UNCLAIMED_SECONDS", 0.0)
        # Another Run of the Runtime makes the scheduler look again before the minute is over.
        await place.create_run("other", "python")
        await scheduled(place, pod, "r")
