"""Health and metrics over plain HTTP."""

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import Counter

from kruntimes.common.metrics import Health, bound_port, new_registry, serve


class _State:
    live = True
    ready = False


async def test_health_readiness_metrics_and_more_routes() -> None:
    state, registry = _State(), new_registry()
    Counter("tries", "Tries.", registry=registry).inc()

    async def drain(_: web.Request) -> web.Response:
        return web.Response(text="draining")

    health = Health(live=lambda: state.live, ready=lambda: state.ready)
    runner = await serve(registry, health, "127.0.0.1", 0, [web.get("/drain", drain)])
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{bound_port(runner)}") as client:

            async def get(path: str) -> tuple[int, str]:
                async with client.get(path) as answer:
                    return answer.status, await answer.text()

            assert (await get("/healthz"))[0] == 200
            assert (await get("/readyz"))[0] == 503
            state.live, state.ready = False, True
            assert (await get("/healthz"))[0] == 503
            assert (await get("/readyz"))[0] == 200
            assert await get("/drain") == (200, "draining")
            status, text = await get("/metrics")
            assert status == 200
            assert "tries_total 1.0" in text
            assert "process_cpu_seconds_total" in text
            assert (await get("/else"))[0] == 404
    finally:
        await runner.cleanup()


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open() -> None:
    health = Health(live=lambda: True, ready=lambda: True)
    runner = await serve(new_registry(), health, "127.0.0.1", 0)
    try:
        with pytest.raises(OSError, match="in use"):
            await serve(new_registry(), health, "127.0.0.1", bound_port(runner))
    finally:
        await runner.cleanup()
