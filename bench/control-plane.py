"""What the control plane inside `krt dev` costs, with a real kube-apiserver beside it where KUBECONFIG names one.

2,000 Runs with 20 kB of source are created, watched and deleted, twice, so that the second time shows whether memory
stays; in between requests arrive at a steady 100 per second, whether or not earlier ones have been answered.
"""

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from load import QUICK, Row, report

from kruntimes.common.api import manifests

RUNS = 200 if QUICK else 2000
AT_ONCE = 8
RATE = 100
SECONDS = 5 if QUICK else 30
SOURCE = "# " + "x" * 20_000
PATH = "/apis/kruntimes.io/v1alpha1/namespaces/default/runs"
EMBEDDED, REAL = "krt dev's control plane", "kube-apiserver"
AIM_P99_MS = 20.0
AIM_GROWTH = 1.1


def run(name: str) -> dict[str, Any]:
    """A Run as people declare them."""
    return {
        "apiVersion": "kruntimes.io/v1alpha1",
        "kind": "Run",
        "metadata": {"name": name},
        "spec": {
            "runtime": "python",
            "source": {"inline": SOURCE, "inlinePath": "f.py"},
            "mode": {"function": {"handler": "f.handler"}},
        },
    }


@dataclass
class Client:
    """An administrator's connection."""

    server: str
    session: aiohttp.ClientSession
    seen: Counter[str] = field(default_factory=Counter)

    async def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> float:
        """One request; returns its seconds."""
        began = time.perf_counter()
        data = None if body is None else json.dumps(body)
        async with self.session.request(
            method, self.server + path, data=data, headers={"content-type": kind}
        ) as answer:
            text = await answer.read()
            if answer.status >= 300:
                raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return time.perf_counter() - began

    async def watch(self, ready: asyncio.Event) -> None:
        """Counts the events of Runs until cancelled."""
        async with self.session.get(self.server + PATH + "?watch=true&timeoutSeconds=3600") as answer:
            ready.set()
            rest = b""
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self.seen[line[9 : line.index(b'"', 9)].decode()] += 1


@asynccontextmanager
async def connect(kubeconfig: Path) -> Any:
    """A client with the kubeconfig's certificate."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]

    def pem(entry: dict[str, str], name: str) -> str:
        inline = entry.get(f"{name}-data")
        return base64.b64decode(inline).decode() if inline else Path(entry[name]).read_text()

    tls = ssl.create_default_context(cadata=pem(cluster, "certificate-authority"))
    with tempfile.NamedTemporaryFile("w") as both:
        both.write(pem(user, "client-certificate") + "\n" + pem(user, "client-key"))
        both.flush()
        tls.load_cert_chain(both.name)
    limits = aiohttp.TCPConnector(ssl=tls, limit=64)
    async with aiohttp.ClientSession(connector=limits, timeout=aiohttp.ClientTimeout(total=None)) as session:
        yield Client(cluster["server"], session)


async def all_of(count: int, act: Callable[[int], Awaitable[object]]) -> float:
    """Does *act* for each number, eight at a time; returns the seconds."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(i: int) -> None:
        async with gate:
            await act(i)

    began = time.perf_counter()
    await asyncio.gather(*(one(i) for i in range(count)))
    return time.perf_counter() - began


async def steady(client: Client) -> list[float]:
    """Open loop: a read, a list of a page, a status write and a small write, in turns, RATE per second."""
    latencies: list[float] = []

    async def one(i: int) -> None:
        name = f"{PATH}/bench-{i % RUNS}"
        merge = "application/merge-patch+json"
        match i % 4:
            case 0:
                took = await client.call("GET", name)
            case 1:
                took = await client.call("PATCH", f"{name}/status", {"status": {"message": str(i)}}, merge)
            case 2:
                took = await client.call("GET", f"{PATH}?limit=5")
            case _:
                took = await client.call("PATCH", name, {"metadata": {"labels": {"i": str(i)}}}, merge)
        latencies.append(took)

    async with asyncio.TaskGroup() as group:
        began = time.perf_counter()
        for i in range(RATE * SECONDS):
            await asyncio.sleep(max(0.0, began + i / RATE - time.perf_counter()))
            group.create_task(one(i))
    return sorted(latencies)


def resident(pid: int) -> float:
    """Resident memory of a process in MB."""
    line = next(s for s in Path(f"/proc/{pid}/status").read_text().splitlines() if s.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def listener(server: str) -> int | None:
    """The process of this machine that was told to serve that port."""
    port = server.rsplit(":", 1)[1]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"--secure-port={port}".encode() in command:
                return int(entry.name)
    return None


@dataclass
class Measured:
    """What one server did."""

    creates: float
    deletes: float
    latencies: list[float]
    memory: list[float]
    start: float | None = None

    def quantile(self, q: float) -> float:
        """Of the steady requests, in milliseconds."""
        return self.latencies[min(len(self.latencies) - 1, int(q * len(self.latencies)))] * 1000


async def measure(kubeconfig: Path, pid: int | None) -> Measured:
    """Creates, asks and deletes, twice."""
    async with connect(kubeconfig) as client:
        for crd in manifests.crds():
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
            await client.call("PATCH", f"{path}?fieldManager=bench&force=true", crd, "application/apply-patch+yaml")
        async with asyncio.timeout(30):
            while True:
                async with client.session.get(client.server + PATH) as answer:
                    if answer.status == 200:
                        break
                await asyncio.sleep(0.05)
        memory, made = [], Measured(0, 0, [], [])
        for _ in range(2):
            client.seen.clear()
            ready = asyncio.Event()
            watching = asyncio.ensure_future(client.watch(ready))
            await ready.wait()
            made.creates = RUNS / await all_of(RUNS, lambda i: client.call("POST", PATH, run(f"bench-{i}")))
            made.latencies = await steady(client)
            made.deletes = RUNS / await all_of(RUNS, lambda i: client.call("DELETE", f"{PATH}/bench-{i}"))
            async with asyncio.timeout(60):
                while client.seen["DELETED"] < RUNS:
                    await asyncio.sleep(0.02)
            if client.seen["ADDED"] != RUNS or client.seen["DELETED"] != RUNS:
                raise SystemExit(f"the watch saw {dict(client.seen)} of {RUNS} Runs")
            watching.cancel()
            if pid is not None:
                memory.append(resident(pid))
        made.memory = memory
        return made


async def embedded() -> Measured:
    """Starts the control plane of `krt dev` by itself."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "kruntimes.local.apiserver", "--listen", "127.0.0.1:16443", "--state", state]
        )
        try:
            while not (state / "admin.kubeconfig").exists():
                if process.poll() is not None or time.perf_counter() - began > 30:
                    raise SystemExit("the control plane did not start")
                await asyncio.sleep(0.01)
            start = time.perf_counter() - began
            made = await measure(state / "admin.kubeconfig", process.pid)
            made.start = start
            return made
        finally:
            process.terminate()
            process.wait(10)


async def main() -> None:
    """Measures ours, then the real one, and prints them side by side."""
    print(
        f"# Python {sys.version.split()[0]} ({os.path.realpath(sys.executable)}), {os.cpu_count()} cores, "
        f"{RUNS} Runs of {len(SOURCE) // 1000} kB",
        flush=True,
    )
    measured = {EMBEDDED: await embedded()}
    if given := os.environ.get("KUBECONFIG"):
        server = yaml.safe_load(Path(given).read_text())["clusters"][0]["cluster"]["server"]
        measured[REAL] = await measure(Path(given), listener(server))
    rows: list[Row] = []
    other = measured.get(REAL)

    def row(what: str, unit: str, of: Callable[[Measured], float], aim: str = "", holds: bool | None = None) -> None:
        for name, one in measured.items():
            ours = name == EMBEDDED
            ratio = of(one) / of(other) if ours and other is not None and of(other) else None
            rows.append(
                Row(
                    f"{name}: {what}",
                    of(one),
                    unit,
                    REAL if ratio is not None else None,
                    ratio,
                    aim if ours and aim else None,
                    holds if ours else None,
                )
            )

    ours = measured[EMBEDDED]
    row("creates, 8 at a time", "1/s", lambda m: m.creates)
    row("deletes, 8 at a time", "1/s", lambda m: m.deletes)
    row(f"p50 at {RATE} requests/s", "ms", lambda m: m.quantile(0.5))
    row(
        f"p99 at {RATE} requests/s",
        "ms",
        lambda m: m.quantile(0.99),
        f"≤{AIM_P99_MS:.0f} ms",
        ours.quantile(0.99) <= AIM_P99_MS,
    )
    if all(m.memory for m in measured.values()):
        growth = ours.memory[1] / ours.memory[0]
        row("memory after the first round", "MB", lambda m: m.memory[0])
        row("memory after the second round", "MB", lambda m: m.memory[1])
        rows.append(
            Row(f"{EMBEDDED}: second round over first", growth, "×", None, None, f"≤{AIM_GROWTH}", growth <= AIM_GROWTH)
        )
    if ours.start is not None:
        rows.append(Row(f"{EMBEDDED}: start to serving", ours.start * 1000, "ms"))
    report("control-plane", rows)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
