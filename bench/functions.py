"""What the functions manager costs, alone and in the Runtime Server, beside bare echoes on a unix socket and gRPC.

`make bench-functions`; QUICK=1 for a run under a minute. The anchor is the least that any process can do for a call:
read a length and that many bytes from a unix socket, write them back. Both sides are asyncio protocols on uvloop
in processes of their own, and the client does the same for both. The rows of `bench/hosts.py` follow, with hosts.
"""

import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import uvloop

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("bench", "services/functions", "services/common", "proto")]

import hosts  # noqa: E402

from kruntimes.functions.bounds import Bounds, Overlap  # noqa: E402
from kruntimes.functions.failures import for_link  # noqa: E402
from kruntimes.functions.handlers import Inline  # noqa: E402
from kruntimes.functions.ingress import Ingress  # noqa: E402
from kruntimes.functions.invocation import Invocation  # noqa: E402
from kruntimes.functions.manager import Manager  # noqa: E402
from kruntimes.functions.wire.calls import CallDecoder  # noqa: E402
from kruntimes.functions.wire.encode import encode_call, encode_result  # noqa: E402
from kruntimes.functions.wire.events import Call, Mode, Progress, Result  # noqa: E402
from kruntimes.functions.wire.invocations import CALL_LIMITS, invocation_call  # noqa: E402

QUICK = bool(os.environ.get("QUICK"))
SECONDS = 0.5 if QUICK else 3.0
ROUNDS = 3 if QUICK else 5
FUNCTIONS = 32
BODY = json.dumps({"name": "x" * 100}).encode()
RESULTS = Path(__file__).parent / "results"


class Echo(asyncio.Protocol):
    """The anchor: a length, that many bytes, and back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            size = struct.unpack_from(">I", self.buffer)[0]
            if len(self.buffer) < 4 + size:
                return
            frame, self.buffer = self.buffer[: 4 + size], self.buffer[4 + size :]
            self.transport.write(frame)


class Managed(asyncio.Protocol):
    """The whole of a call: link mode, admission, lane, in-process handler, one answer."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.ingress = Ingress(
            self.manager, Mode.LINK, self.transport.write, on_end=self.transport.close, limits=CALL_LIMITS
        )

    def data_received(self, data: bytes) -> None:
        self.ingress.feed(data)


def make_manager() -> Manager:
    """A manager as the Runtime Server has it, with handlers that give back what they got."""

    def echo(invocation: Invocation) -> Result:
        return invocation.answer(invocation.call.payload or b"", content_type="application/json", meta=META)

    manager = Manager(Bounds(workers=FUNCTIONS, overlap=Overlap.REFUSE, tombstones=65_536), form=for_link)
    for number in range(FUNCTIONS):
        manager.register(f"f{number}", Inline(echo))
    return manager


def serve(kind: str, path: str) -> None:
    """The server's process."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        manager = make_manager()
        await loop.create_unix_server(Echo if kind == "echo" else lambda: Managed(manager), path)
        await asyncio.Event().wait()

    uvloop.run(run())


def call_frame(number: int, function: int) -> bytes:
    """One invocation as runtimed sends it."""
    return encode_call(
        invocation_call(tx=f"t{number:08x}", registration=f"f{function}", invocation_id="an-invocation", attempt=1,
                        millis=60_000, payload=BODY, content_type="application/json"), Mode.LINK)  # fmt: skip


FRAMES = [tuple(call_frame(0, function).split(b"t00000000", 1)) for function in range(FUNCTIONS)]
PARTS = ("parser", "admission to answer, handler included", "answer's frame")
META, END = b"{}", b"\nFUNCTION_RESULT_END\n"


class Client(asyncio.Protocol):
    """Keeps *flight* calls in flight for a time; counts answers and takes their times."""

    def __init__(self, kind: str, flight: int, seconds: float, start: int) -> None:
        self.kind, self.flight = kind, flight
        self.end = time.perf_counter() + seconds
        self.number = start
        self.latencies: list[float] = []
        self.began: dict[str, float] = {}
        self.lane: dict[str, int] = {}
        self.order: list[float] = []
        self.buffer, self.at = b"", 0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        for lane in range(self.flight):
            self.send(lane)

    def send(self, lane: int) -> None:
        self.number += 1
        now = time.perf_counter()
        if self.kind == "echo":
            self.order.append(now)
            self.transport.write(struct.pack(">I", len(BODY)) + BODY)
            return
        tx = f"t{self.number:08x}"
        self.began[tx], self.lane[tx] = now, lane
        before, after = FRAMES[lane]
        self.transport.write(before + tx.encode() + after)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self.kind == "echo":
            self.buffer += data
            size = 4 + len(BODY)
            while len(self.buffer) >= size:
                self.buffer = self.buffer[size:]
                self.answered(self.order[self.at], now, 0)
                self.at += 1
            return
        self.buffer += data
        while (at := self.buffer.find(b"\n")) >= 0:
            # As little as can be: what the client costs is in both columns, and should be the same.
            head = self.buffer[:at].split(b" ")
            end = at + 1 + len(META) + len(BODY) + len(END)
            if len(self.buffer) < end:
                return
            assert head[2] == b"200"
            self.buffer = self.buffer[end:]
            uid = head[1].decode()
            self.answered(self.began.pop(uid), now, self.lane.pop(uid))

    def answered(self, began: float, now: float, lane: int) -> None:
        self.latencies.append(now - began)
        if now < self.end:
            self.send(lane)
        elif not self.finished.done():
            self.finished.set_result(None)
            self.transport.close()


_numbers = [0]


async def load(kind: str, path: str, flight: int) -> tuple[float, float, float]:
    """Calls per second, and p50 and p99 in µs."""
    began = time.perf_counter()
    _, client = await asyncio.get_running_loop().create_unix_connection(
        lambda: Client(kind, flight, SECONDS, _numbers[0]), path
    )
    await client.finished
    _numbers[0] = client.number
    ordered = sorted(client.latencies)
    rate = len(ordered) / (time.perf_counter() - began)
    return rate, ordered[len(ordered) // 2] * 1e6, ordered[int(len(ordered) * 0.99)] * 1e6


def cpu_of(pid: int) -> float:
    """Seconds of CPU that process *pid* has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def alone() -> dict[str, float]:
    """µs of CPU per call for each part, without any socket: the least of the rounds."""
    count = 8_000 if QUICK else 32_000
    stream = [b"".join(call_frame(at + n, n) for n in range(FUNCTIONS)) for at in range(0, count, FUNCTIONS)]
    least: dict[str, float] = {}
    for _ in range(ROUNDS):
        manager = make_manager()
        decoder = CallDecoder(Mode.LINK, CALL_LIMITS)
        times = [time.process_time()]
        calls = [event for chunk in stream for event in decoder.feed(chunk) if isinstance(event, Call)]
        times.append(time.process_time())
        results: list[Result | Progress] = []
        for call in calls:
            manager.admit(call, results.append, timeout=60.0)
        times.append(time.process_time())
        frames = [encode_result(result, Mode.LINK) for result in results if isinstance(result, Result)]
        times.append(time.process_time())
        assert len(frames) == count
        for part, before, after in zip(PARTS, times, times[1:], strict=False):
            least[part] = min(least.get(part, 1e9), (after - before) / count * 1e6)
    return least


async def measure(paths: dict[str, str], pids: dict[str, int]) -> list[dict[str, object]]:
    """Every row; the anchor and the manager take turns, and the medians of the rounds count."""
    seen: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    for _ in range(ROUNDS):
        for flight in (1, FUNCTIONS):
            for kind in ("echo", "manager"):
                before = cpu_of(pids[kind])
                rate, p50, p99 = await load(kind, paths[kind], flight)
                cpu = (cpu_of(pids[kind]) - before) / (rate * SECONDS) * 1e6
                seen.setdefault((kind, flight), []).append((rate, p50, p99, cpu))
    middle: Callable[[str, int, int], float] = lambda kind, flight, at: statistics.median(  # noqa: E731
        row[at] for row in seen[kind, flight]
    )
    rows: list[dict[str, object]] = []
    for what, unit, flight, at in (
        ("p50, one call at a time", "µs", 1, 1), ("p99, one call at a time", "µs", 1, 2),
        ("calls per second, 32 functions", "1/s", FUNCTIONS, 0), ("p50, 32 functions", "µs", FUNCTIONS, 1),
        ("p99, 32 functions", "µs", FUNCTIONS, 2), ("CPU of the server per call, 32 functions", "µs", FUNCTIONS, 3),
    ):  # fmt: skip
        value, anchor = middle("manager", flight, at), middle("echo", flight, at)
        rows.append({"what": what, "value": round(value, 1), "unit": unit, "anchor": round(anchor, 1),
                     "ratio": round(value / anchor, 2), "aim": None, "holds": None})  # fmt: skip
    for part, value in (await alone()).items():
        rows.append({"what": f"CPU per call, {part}", "value": round(value, 1), "unit": "µs",
                     "anchor": None, "ratio": None, "aim": None, "holds": None})  # fmt: skip
    rows += await hosts.measure(
        lambda flight: load("echo", paths["echo"], flight), BODY, rounds=ROUNDS, seconds=SECONDS
    )
    return rows


def main() -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: f"{folder}/{kind}.sock" for kind in ("echo", "manager")}
        servers = {kind: context.Process(target=serve, args=(kind, path), daemon=True) for kind, path in paths.items()}
        for server in servers.values():
            server.start()
        try:
            for path in paths.values():
                wait_for(path)
            rows = uvloop.run(measure(paths, {kind: server.pid or 0 for kind, server in servers.items()}))
        finally:
            for server in servers.values():
                server.terminate()
                server.join()
    print(f"{'':54} {'value':>12} {'anchor':>12} {'ratio':>7}")
    for row in rows:
        aim = f"{row['aim']}: {'holds' if row['holds'] else 'MISSED'}" if row["aim"] else ""
        print(
            f"{row['what']:54} {row['value']:>12,} {row['anchor'] or '':>12} {row['ratio'] or '':>7} {row['unit']:4} {aim}"
        )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "functions.json").write_text(json.dumps(rows, indent=1) + "\n")


def wait_for(path: str) -> None:
    """Waits until the server at *path* listens."""
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on {path}")


if __name__ == "__main__":
    main()
