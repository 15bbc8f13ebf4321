"""From `create` to Ready with a warm Pod, one at a time and ten at a time, and what that asks of the API server.

Beside it, in the same run on the same API server: a bare object that is created, seen by a watch, patched, and seen
again, which is the least that anything driven by watches can take. With KUBECONFIG it runs on that control plane, else
on the one inside `krt dev`.
"""

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path
from statistics import quantiles
from typing import Any

from load import QUICK, Row, report

ONE, TEN = (10, 30) if QUICK else (50, 200)
"""Runs that are measured one at a time, and ten at a time."""
AT_ONCE = 10
LIMIT_SECONDS = 60.0
AIM_REQUESTS = 12.0
AIM_P50_MS, AIM_P95_MS, AIM_TEN_P50_MS, AIM_TEN_P95_MS = 44.0, 78.0, 294.0, 466.0
"""agent-sandbox's warm SandboxClaim on a machine of this kind, which starts no function."""
SOURCE = "def handler(event):\n    return event\n"
MERGE = "application/merge-patch+json"
MAPS = "/api/v1/namespaces/default/configmaps"
BARE = "bare create, watch, patch, watch"
_COUNTED = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)


def sibling(name: str) -> Any:
    """Another benchmark's module, whose name is no identifier."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


control_plane = sibling("control-plane")


class Watch:
    """What a watch of one collection has shown, and who waits for it."""

    def __init__(self, client: Any, path: str) -> None:
        self._client, self._path = client, path
        self._waiting: dict[str, tuple[Any, asyncio.Future[None]]] = {}
        self.open = asyncio.Event()

    async def run(self) -> None:
        """Follows the collection until cancelled."""
        async with self._client.session.get(f"{self._client.server}{self._path}?watch=true&timeoutSeconds=3600") as got:
            self.open.set()
            rest = b""
            async for piece in got.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    name = event["object"]["metadata"].get("name", "")
                    test, future = self._waiting.get(name, (None, None))
                    if test is not None and future is not None and test(event) and not future.done():
                        future.set_result(None)

    async def until(self, name: str, test: Any) -> None:
        """Waits until an event about *name* passes *test*."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[name] = (test, future)
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await future
        finally:
            del self._waiting[name]


def ready(event: Any) -> bool:
    """Whether an event shows a Run that is served."""
    return bool(event["object"].get("status", {}).get("phase") == "Ready")


def function(name: str) -> dict[str, Any]:
    """A small function as people declare it."""
    body: dict[str, Any] = control_plane.run(name)
    body["spec"]["source"]["inline"] = SOURCE
    return body


async def run_once(client: Any, watch: Watch) -> float:
    """Creates a function, waits until it is Ready, and lets it go again; returns the milliseconds until Ready."""
    name = f"bench-{uuid.uuid4().hex[:10]}"
    body = function(name)
    waiter = asyncio.ensure_future(watch.until(name, ready))
    began = time.perf_counter()
    await client.call("POST", control_plane.PATH, body)
    await waiter
    took = (time.perf_counter() - began) * 1000
    gone = asyncio.ensure_future(watch.until(name, lambda event: event["type"] == "DELETED"))
    await client.call("DELETE", f"{control_plane.PATH}/{name}")
    await gone
    return took


async def bare_once(client: Any, watch: Watch) -> float:
    """The same journey of an object that nobody does anything with; milliseconds."""
    name = f"bench-{uuid.uuid4().hex[:10]}"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    waiter = asyncio.ensure_future(watch.until(name, lambda event: event["type"] == "ADDED"))
    began = time.perf_counter()
    await client.call("POST", MAPS, body)
    await waiter
    waiter = asyncio.ensure_future(watch.until(name, lambda event: event["type"] == "MODIFIED"))
    await client.call("PATCH", f"{MAPS}/{name}", {"data": {"a": "b"}}, MERGE)
    await waiter
    took = (time.perf_counter() - began) * 1000
    await client.call("DELETE", f"{MAPS}/{name}")
    return took


async def many(act: Any, client: Any, watch: Watch, count: int, at_once: int) -> list[float]:
    """*count* times, *at_once* at a time."""
    gate = asyncio.Semaphore(at_once)

    async def one() -> float:
        async with gate:
            return float(await act(client, watch))

    return sorted(await asyncio.gather(*(one() for _ in range(count))))


async def requests(client: Any) -> float | None:
    """Requests about Runs and Events that the API server has answered, watches and our own aside; None if it tells not."""
    async with client.session.get(f"{client.server}/metrics") as answer:
        if answer.status != 200:
            return None
        text = await answer.text()
    total = 0.0
    for labels, value in _COUNTED.findall(text):
        known = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        own = known.get("verb") in ("WATCH", "LIST", "DELETE") or (known["verb"], known["resource"]) == ("POST", "runs")
        if known.get("resource") in ("runs", "events") and not own:
            total += float(value)
    return total


async def until_ready(client: Any, watch: Watch) -> float | None:
    """Requests for each Run from its creation until it is Ready, over ten of them at rest."""
    names = [f"bench-{uuid.uuid4().hex[:10]}" for _ in range(10)]
    before = await requests(client)
    for name in names:
        waiter = asyncio.ensure_future(watch.until(name, ready))
        await client.call("POST", control_plane.PATH, function(name))
        await waiter
    await asyncio.sleep(1.0)  # Events are written aside
    after = await requests(client)
    for name in names:
        await client.call("DELETE", f"{control_plane.PATH}/{name}")
    return None if before is None or after is None else (after - before) / len(names)


async def main() -> None:
    """Measures, and prints ours beside the bare journey."""
    async with control_plane.connect(Path(os.environ["KUBECONFIG"])) as client:
        runs, maps = Watch(client, control_plane.PATH), Watch(client, MAPS)
        watching = [asyncio.ensure_future(one.run()) for one in (runs, maps)]
        await runs.open.wait()
        await maps.open.wait()
        await many(run_once, client, runs, 5, 1)  # what is slow only once is none of it
        rows: list[Row] = []
        for at_once, count, aims in (
            (1, ONE, (AIM_P50_MS, AIM_P95_MS)),
            (AT_ONCE, TEN, (AIM_TEN_P50_MS, AIM_TEN_P95_MS)),
        ):
            bare = quantiles(await many(bare_once, client, maps, count, at_once), n=20)
            ours = quantiles(await many(run_once, client, runs, count, at_once), n=20)
            for name, at, aim in (("p50", 9, aims[0]), ("p95", 18, aims[1])):
                what = f"{at_once} at a time, {name}"
                rows.append(
                    Row(
                        f"create to Ready, {what}",
                        ours[at],
                        "ms",
                        BARE,
                        ours[at] / bare[at],
                        f"≤{aim:.0f} ms",
                        ours[at] <= aim,
                    )
                )
                rows.append(Row(f"{BARE}, {what}", bare[at], "ms"))
        asked = await until_ready(client, runs)
        if asked is not None:
            aim = f"≤{AIM_REQUESTS:.0f}"
            rows.append(Row("API requests per Run until Ready", asked, "", None, None, aim, asked <= AIM_REQUESTS))
        for one in watching:
            one.cancel()
    report("lifecycle", rows)


if __name__ == "__main__":
    if "KRT_GATEWAY" not in os.environ:
        krt, given = Path(sys.executable).with_name("krt"), os.environ.get("KUBECONFIG")
        place = ["--control-plane", given] if given else []
        sys.exit(subprocess.run([krt, "dev", *place, "--", sys.executable, __file__], check=False).returncode)
    import uvloop

    uvloop.run(main())
