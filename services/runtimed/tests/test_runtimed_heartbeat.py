"""What a runtimed says of itself when the API server refuses it for ever."""

import asyncio
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from kruntimes.common import clock, metrics
from kruntimes.common.kube import errors
from kruntimes.common.kube.lease import Heartbeat
from kruntimes.runtimed.heartbeat import Pulse, alive, pulse_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Plane:
    """An API server that takes *accepted* heartbeats and refuses the token after them. Each try takes two seconds."""

    def __init__(self, *, accepted: int) -> None:
        self.accepted = accepted
        self.now = 1000.0
        self.asked = asyncio.Event()

    async def patch_merge(self, path: str, body: Any, type: Any, *, timeout: float) -> None:
        await asyncio.sleep(0)
        self.now += 2.0
        self.asked.set()
        if self.accepted == 0:
            raise errors.Unauthorized(status=401, reason="Unauthorized", message="the token is not accepted")
        self.accepted -= 1


@pytest.mark.parametrize("accepted", [0, 1])
async def test_a_refused_token_fences_at_once_and_asks_for_a_restart_in_the_end(
    accepted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = Plane(accepted=accepted)
    monkeypatch.setattr(clock, "monotonic", lambda: plane.now)
    # Its own waits, of one second and of ten, pass as far as the clock goes with each try.
    monkeypatch.setattr("kruntimes.common.kube.lease.HEARTBEAT_SECONDS", 0.0)
    heartbeat, begun = Heartbeat(plane, "demo", "pod", "uid", ("pod", "uid")), plane.now  # type: ignore[arg-type]

    def live() -> bool:
        return alive(last_renewed=heartbeat.last_renewed(), begun=begun, now=clock.monotonic())

    page = await metrics.serve(CollectorRegistry(), metrics.Health(live=live, ready=lambda: True), "127.0.0.1", 0)
    beating = asyncio.ensure_future(heartbeat.run())
    told: dict[int, float] = {}
    try:
        async with asyncio.timeout(30), aiohttp.ClientSession() as session:
            while 503 not in told:
                plane.asked.clear()
                await plane.asked.wait()
                async with session.get(f"http://127.0.0.1:{metrics.bound_port(page)}/healthz") as answer:
                    told[answer.status] = plane.now
        assert pulse_of(heartbeat.last_renewed) is Pulse.FENCED
        since = max(heartbeat.last_renewed(), begun)
        assert told[503] - since >= 360.0
        assert told[200] - since > 60.0, "the self-fence alone restarts nothing"
    finally:
        beating.cancel()
        await page.cleanup()
