"""Health and metrics of a service over plain HTTP on its own port: /healthz, /readyz, /metrics (design §9)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

SHUTDOWN_SECONDS = 1.0
"""A scrape that is under way at the end is cut off after this."""


@dataclass(frozen=True, slots=True)
class Health:
    """live: the process can still do its work; False asks for a restart. ready: it may be given work now."""

    live: Callable[[], bool]
    ready: Callable[[], bool]


def new_registry() -> CollectorRegistry:
    """A registry of one service, with the figures of its process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


async def serve(
    registry: CollectorRegistry,
    health: Health,
    host: str,
    port: int,
    routes: Iterable[web.AbstractRouteDef] = (),
) -> web.AppRunner:
    """Listens and returns at once; `await runner.cleanup()` ends it. `bound_port(runner)` tells a free port.

    routes: more of a service's own, such as /drain.
    """

    async def healthz(_: web.Request) -> web.Response:
        return _answer(health.live())

    async def readyz(_: web.Request) -> web.Response:
        return _answer(health.ready())

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", exposition), *routes])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


def bound_port(runner: web.AppRunner) -> int:
    """The port that *runner* listens on."""
    return int(runner.addresses[0][1])


def _answer(good: bool) -> web.Response:
    return web.Response(status=200 if good else 503, text="ok\n" if good else "not yet\n")
