"""`python -m kruntimes.controller` as a process: election, health, a clean end, and answers that get lost."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.controller_world import World, eventually, world

from kruntimes.common.api.views import Lease
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import Missing, Unreachable
from kruntimes.controller.main import LEASE
from kruntimes.controller.scheduler import Scheduler
from kruntimes.controller.views import ControlledRun


@pytest.fixture
async def place(control_plane: Path, tmp_path: Path) -> AsyncIterator[World]:
    async with world(control_plane, tmp_path) as made:
        yield made


class Replica:
    """One operator process on a loopback address of its own."""

    def __init__(self, process: asyncio.subprocess.Process, address: str, identity: str) -> None:
        self.process, self.address, self.identity = process, address, identity

    async def page(self, path: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession(trust_env=False) as http,
            http.get(f"http://{self.address}:9090{path}") as answer,
        ):
            return answer.status, await answer.text()

    async def ready(self) -> bool:
        assert self.process.returncode is None
        try:
            return (await self.page("/readyz"))[0] == 200
        except aiohttp.ClientConnectionError:
            return False

    async def leads(self) -> bool:
        return "kruntimes_operator_leading 1.0" in (await self.page("/metrics"))[1]

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), 30)


async def start(place: World, kubeconfig: Path, identity: str) -> Replica:
    address = f"127.{random.randint(80, 250)}.{random.randint(0, 250)}.{random.randint(1, 250)}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KRUNTIMES_")}
    environment |= {
        "KUBECONFIG": str(kubeconfig),
        "KRUNTIMES_NAMESPACE": place.system,
        "KRUNTIMES_POD_UID": identity,
        "KRUNTIMES_BIND_ADDRESS": address,
        "KRUNTIMES_GATEWAY_URL": "https://gateway.test",
        "KRUNTIMES_DAEMON_IMAGE": "registry.test/kruntimes:1",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kruntimes.controller", env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    return Replica(process, address, identity)


async def holder(place: World) -> str:
    try:
        return (await place.admin.get(paths.leases(place.system, LEASE), Lease)).spec.holder_identity
    except Missing:
        return ""


async def test_one_of_two_replicas_leads_and_hands_over_when_it_stops(place: World, tmp_path: Path) -> None:
    config = place.kubeconfig(await place.token(place.system, "kruntimes-operator"))
    replicas = [await start(place, config, f"replica-{number}") for number in range(2)]
    try:
        for replica in replicas:
            await eventually(replica.ready)

        async def leader() -> Replica | None:
            leading = [one for one in replicas if await one.leads()]
            assert len(leading) <= 1
            return leading[0] if leading else None

        first = await eventually(leader)
        assert await holder(place) == first.identity
        await place.runtime("python")
        (pod,) = await place.ready_pods("python", 1)
        assert await first.stop() == 0
        assert await holder(place) != first.identity
        (second,) = (one for one in replicas if one is not first)
        await eventually(second.leads)
        await place.beat(pod)
        await place.create_run("r", "python")
        await place.until("r", lambda run: run.state.phase == "Scheduled")
    finally:
        for replica in replicas:
            await replica.stop()


async def test_a_missing_setting_is_named() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kruntimes.controller",
        env={"PATH": os.environ["PATH"], "KRUNTIMES_NAMESPACE": "x"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 78
    assert b"KRUNTIMES_DAEMON_IMAGE" in errors


class LostAnswers:
    """Passes everything on, but some writes of an assignment come back as if the answer had been lost.

    landed: whether the API server had carried the write out by then.
    """

    def __init__(self, kube: Any, *, landed: bool) -> None:
        self._kube, self._landed = kube, landed
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kube, name)

    async def patch_json(self, path: str, ops: Any, kind: Any, **more: Any) -> Any:
        if not path.endswith("/status") or self.lost >= 2:
            return await self._kube.patch_json(path, ops, kind, **more)
        self.lost += 1
        if self._landed:
            await self._kube.patch_json(path, ops, kind, **more)
        raise Unreachable(status=0, reason="Lost", message="the answer was lost")


@pytest.mark.parametrize("landed", [True, False])
async def test_a_write_of_unknown_outcome_neither_leaks_nor_doubles_capacity(
    place: World, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    flaky: list[LostAnswers] = []
    build = Scheduler.__init__

    def with_lost_answers(self: Scheduler, kube: Any, *args: Any, **more: Any) -> None:
        flaky.append(LostAnswers(kube, landed=landed))
        build(self, flaky[0], *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Scheduler, "__init__", with_lost_answers)
    async with place.operator():
        await place.runtime("python", replicas=1, runs=3)
        await place.ready_pods("python", 1)
        await asyncio.gather(*(place.create_run(f"run-{number}", "python") for number in range(4)))

        async def settled() -> list[ControlledRun] | None:
            runs, _ = await place.admin.list(paths.runs(place.namespace), ControlledRun)
            placed = [run for run in runs if run.state.phase == "Scheduled"]
            told = [run for run in runs if run.condition("Ready") is not None]
            return runs if len(placed) == 3 and len(told) == 4 else None

        await eventually(settled)
        assert flaky[0].lost == 2
