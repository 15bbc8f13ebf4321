"""When the router publishes: not before all watches are synced, never less than it knows, once per burst.

The API server here is a stand-in, because what is tried is its misbehaviour; the real one is in
test_router_process.py.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from tests.router_gateway import eventually
from tests.router_worlds import OPTIONS, UID, a_pod, a_run, a_runtime, uid_of

from kruntimes.common.api.views import View
from kruntimes.common.kube.transport import Kube
from kruntimes.router.ads import Publisher
from kruntimes.router.encode import CLUSTERS, ROUTES
from kruntimes.router.informers import Informers
from kruntimes.router.metrics import Metrics
from kruntimes.router.snapshot import Key, Snapshot


class ApiServer:
    """Lists and watches three collections; `held` keeps a collection's lists waiting, `cut` ends all watches."""

    def __init__(self) -> None:
        self.objects: dict[str, list[View]] = {"runs": [], "runtimes": [], "pods": []}
        self.held: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.watches: dict[str, asyncio.Queue[dict[str, Any] | None]] = {}
        self.queries: dict[str, dict[str, str]] = {}
        self.away = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if self.away:
            return web.json_response({"kind": "Status", "code": 503}, status=503)
        if "watch" in request.query:
            return await self.watch(request, kind)
        self.queries[kind] = dict(request.query)
        await self.held[kind].wait()
        items = [msgspec.to_builtins(each) for each in self.objects[kind]]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue = self.watches[kind] = asyncio.Queue()
        while (event := await queue.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    def send(self, kind: str, *objects: View, event: str = "MODIFIED") -> None:
        for each in objects:
            document = msgspec.to_builtins(each)
            document["metadata"]["resourceVersion"] = "2"
            self.watches[kind].put_nowait({"type": event, "object": document})

    def cut(self) -> None:
        for queue in self.watches.values():
            queue.put_nowait(None)


class Recorder(Publisher):
    """Keeps what is published."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(allowed=lambda _: True, metrics=metrics)
        self.published: list[tuple[Snapshot, frozenset[Key]]] = []

    def publish(self, snapshot: Snapshot, changed: Any) -> None:
        self.published.append((snapshot, frozenset(changed)))
        super().publish(snapshot, changed)


@pytest.fixture
async def server() -> AsyncIterator[tuple[ApiServer, str]]:
    made = ApiServer()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield made, f"http://127.0.0.1:{runner.addresses[0][1]}"
        made.cut()
    finally:
        await runner.cleanup()


@pytest.fixture
async def informers(server: tuple[ApiServer, str], tmp_path: Path) -> AsyncIterator[tuple[Recorder, CollectorRegistry]]:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server[1]}}],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    recorder = Recorder(metrics)
    kube = await Kube.connect(kubeconfig=tmp_path / "config")
    running = asyncio.ensure_future(Informers(kube, options=OPTIONS, publisher=recorder, metrics=metrics).run())
    try:
        yield recorder, registry
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await kube.close()


def body(recorder: Recorder, type_url: str, name: str) -> bytes:
    found = recorder.published[-1][0].get(type_url, name)
    return found.body if found else b""


def holds(recorder: Recorder, part: str, name: str = "runs-0a1") -> Callable[[], bool]:
    return lambda: bool(recorder.published) and part.encode() in body(recorder, ROUTES, name)


async def test_nothing_is_published_before_all_three_are_synced(
    server: tuple[ApiServer, str], informers: tuple[Recorder, CollectorRegistry]
) -> None:
    api, (recorder, _) = server[0], informers
    api.objects = {"runs": [a_run()], "runtimes": [a_runtime()], "pods": [a_pod()]}
    api.held["runs"].set()
    api.held["runtimes"].set()
    await eventually(lambda: {"runs", "runtimes"} <= api.watches.keys() and "pods" in api.queries, "two are synced")
    assert recorder.published == []
    assert not recorder.serving
    api.held["pods"].set()
    await eventually(holds(recorder, f"{UID}/1/pod-1"), "the world is published")
    ((snapshot, changed),) = recorder.published
    assert changed == {Key(ROUTES, "runs-0a1"), Key(CLUSTERS, "demo/python")}
    assert len(snapshot.of_type(ROUTES)) == 4097
    assert api.queries["runs"]["fieldSelector"] == "status.phase=Ready"
    assert api.queries["pods"]["labelSelector"] == "runtime"


async def test_an_empty_world_is_published_too(
    server: tuple[ApiServer, str], informers: tuple[Recorder, CollectorRegistry]
) -> None:
    api, (recorder, registry) = server[0], informers
    for kind in api.objects:
        api.held[kind].set()
    await eventually(lambda: recorder.serving, "an empty world is served")
    assert recorder.published[0][1] == frozenset()
    assert registry.get_sample_value("kruntimes_router_resources", {"type": "RouteConfiguration"}) == 4097


async def test_a_burst_is_published_together(
    server: tuple[ApiServer, str], informers: tuple[Recorder, CollectorRegistry]
) -> None:
    api, (recorder, registry) = server[0], informers
    api.objects["pods"] = [a_pod()]
    for kind in api.objects:
        api.held[kind].set()
    await eventually(lambda: recorder.serving and "runs" in api.watches, "an empty world is served")
    many = [a_run(uid=uid_of(index, shard=f"{index:03x}"), name=f"r{index}") for index in range(400)]
    api.send("runs", *many, event="ADDED")
    await eventually(holds(recorder, uid_of(399, shard="18f"), "runs-18f"), "the last is published")
    assert len(recorder.published) < 100
    await eventually(
        lambda: registry.get_sample_value("kruntimes_router_runs", {"outcome": "routed"}) == 400, "all are counted"
    )


async def test_what_was_published_stays_while_the_api_server_is_away(
    server: tuple[ApiServer, str], informers: tuple[Recorder, CollectorRegistry]
) -> None:
    api, (recorder, registry) = server[0], informers
    api.objects = {"runs": [a_run()], "runtimes": [a_runtime()], "pods": [a_pod()]}
    for kind in api.objects:
        api.held[kind].set()
    await eventually(lambda: recorder.serving and len(api.watches) == 3, "the world is served")

    def age(kind: str) -> float:
        return registry.get_sample_value("kruntimes_router_watch_age_seconds", {"kind": kind}) or 0.0

    await eventually(lambda: age("pods") > 0, "the watch runs")
    api.away = True
    api.cut()
    await eventually(lambda: age("pods") == 0, "the watch is broken")
    assert len(recorder.published) == 1
    assert f"{UID}/1/pod-1".encode() in body(recorder, ROUTES, "runs-0a1")
    assert recorder.serving
