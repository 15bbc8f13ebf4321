"""What a call of a function costs in the Runtime Server: its host process included, beside bare echoes.

The rows of `bench/functions.py` that need a real Runtime Server, which is started here with metrics on a free port.
Anchors run in the same rounds: the echo on a unix socket of `bench/functions.py`, and a grpc.aio server that gives
back its bytes. The clients do the same for both sides.
"""

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc.aio

from kruntimes.functions.wire.encode import encode_call
from kruntimes.functions.wire.events import Mode
from kruntimes.functions.wire.invocations import invocation_call
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.pb import executor_v1_pb2_grpc as rpc

FUNCTIONS = 32
MODULE_MIB = 50
FORK_PAUSE_SECONDS = 0.05
"""Between spaced calls: more than a fork takes, so that the next child is there."""
HANDLER = "def echo(event):\n    return event\n"
LARGE = f"LOADED = [bytes(120) for _ in range({MODULE_MIB * (1 << 20) // 160})]\n\n\n{HANDLER}"
"""As many small objects as have that size: what a fork pays for is page tables, whatever the pages hold."""
ECHO = "/echo.Echo/Echo"


class LinkClient(asyncio.Protocol):
    """Keeps one call in flight for each of *names* for a time, over the functions socket."""

    def __init__(self, names: list[str], body: bytes, seconds: float, prefix: str) -> None:
        self._frames = [_frame(name, body) for name in names]
        self._prefix = prefix
        self._end = time.perf_counter() + seconds
        self._number = 0
        self._began: dict[bytes, tuple[float, int]] = {}
        self._buffer = b""
        self.latencies: list[float] = []
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        for lane in range(len(self._frames)):
            self._send(lane)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._buffer += data
        while (at := self._buffer.find(b"\n")) >= 0:
            _, uid, code, _, _, meta, size = self._buffer[:at].split(b" ")
            end = at + 1 + int(meta[5:]) + int(size[4:]) + len(b"\nFUNCTION_RESULT_END\n")
            if len(self._buffer) < end:
                return
            assert code == b"200", self._buffer[:200]
            self._buffer = self._buffer[end:]
            began, lane = self._began.pop(uid)
            self.latencies.append(now - began)
            if now < self._end:
                self._send(lane)
            elif not self._began and not self.finished.done():
                self.finished.set_result(None)
                self._transport.close()

    def _send(self, lane: int) -> None:
        self._number += 1
        uid = f"{self._prefix}{self._number:08x}".encode()
        self._began[uid] = time.perf_counter(), lane
        before, after = self._frames[lane]
        self._transport.write(before + uid + after)


def _frame(name: str, body: bytes) -> tuple[bytes, bytes]:
    call = invocation_call(
        tx="00000000", registration=name, invocation_id="an-invocation", attempt=1, millis=60_000, payload=body,
        content_type="application/json",
    )  # fmt: skip
    before, after = encode_call(call, Mode.LINK).split(b"00000000", 1)
    return before, after


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU in seconds, and how often it waited, of one group of processes."""

    cpu: float
    waits: int


def usage_of(pids: list[int]) -> Usage:
    """What *pids* have used until now."""
    cpu, waits = 0.0, 0
    for pid in pids:
        cpu += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                waits += int(line.split()[1])
    return Usage(cpu, waits)


def below(pid: int) -> dict[str, list[int]]:
    """The processes below *pid* by their names."""
    found: dict[str, list[int]] = {}
    todo = [pid]
    while todo:
        for child in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            for one in map(int, child.read_text().split()):
                found.setdefault(Path(f"/proc/{one}/comm").read_text().strip(), []).append(one)
                todo.append(one)
    return found


class Server:
    """A Runtime Server with its functions: *workers* of them `Worker`, and one `Fork` with a large module."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path, stub: "rpc.FunctionRuntimeAsyncStub") -> None:
        self.process = process
        self.functions_socket = str(folder / "functions.sock")
        self.stub = stub
        self.workers: list[pb.FunctionRegistration] = []
        self.large: dict[str, pb.FunctionRegistration] = {}

    async def register(self, folder: Path, name: str, isolation: int) -> pb.FunctionRegistration:
        request = pb.RegisterFunctionRequest(
            run_uid=name, registration_attempt=1, working_dir=str(folder), handler="main.echo",
            registration_digest="0" * 64, isolation=pb.FunctionIsolation.ValueType(isolation),
        )  # fmt: skip
        response = await self.stub.RegisterFunction(request, wait_for_ready=True, timeout=60)
        assert response.state == pb.FUNCTION_REGISTRATION_STATE_READY, response
        return response.registration

    async def invoke(self, registration: pb.FunctionRegistration, body: bytes) -> None:
        """One call over gRPC."""
        await self.stub.InvokeFunction(
            pb.InvokeFunctionRequest(
                registration=registration, invocation_id="an-invocation", input=body,
                content_type="application/json", timeout_millis=60_000,
            )
        )  # fmt: skip


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """A Runtime Server and its registered functions."""
    with tempfile.TemporaryDirectory(prefix="kr-bench-") as name:
        folder = Path(name)
        for part, text in (("small", HANDLER), ("large", LARGE)):
            (folder / part).mkdir()
            (folder / part / "main.py").write_text(text)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KRUNTIMES_")} | {
            "KRUNTIMES_EXECUTOR_SOCKET": str(folder / "executor.sock"),
            "KRUNTIMES_FUNCTIONS_SOCKET": str(folder / "functions.sock"),
            "KRUNTIMES_BIND_ADDRESS": "127.0.0.1", "KRUNTIMES_STATE_DIR": name, "KRUNTIMES_LOG_LEVEL": "WARNING",
            "KRUNTIMES_RUNTIMED_PID": str(os.getpid()),
        }  # fmt: skip
        command = [sys.executable, "-m", "kruntimes.runtime", "--host", "python", "--metrics-port", "0"]
        process = subprocess.Popen(command, env=environment, cwd=folder)
        try:
            async with grpc.aio.insecure_channel(f"unix:{folder}/executor.sock") as channel:
                server = Server(process, folder, rpc.FunctionRuntimeStub(channel))
                for number in range(FUNCTIONS):
                    server.workers.append(
                        await server.register(folder / "small", f"worker-{number}", pb.FUNCTION_ISOLATION_WORKER)
                    )
                for kind, isolation in (("Worker", pb.FUNCTION_ISOLATION_WORKER), ("Fork", pb.FUNCTION_ISOLATION_FORK)):
                    server.large[kind] = await server.register(folder / "large", f"large-{kind}", isolation)
                yield server
        finally:
            process.terminate()
            process.wait(60)


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[Callable[[bytes], Awaitable[bytes]]]:
    """A bare grpc.aio server in a process of its own, and what calls it."""
    with tempfile.TemporaryDirectory(prefix="kr-bench-") as name:
        address = f"unix:{name}/echo.sock"
        process = subprocess.Popen([sys.executable, __file__, address])
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                call = channel.unary_unary(ECHO)
                await call(b"", wait_for_ready=True, timeout=30)
                yield call
        finally:
            process.terminate()
            process.wait(30)


async def serve_echo(address: str) -> None:
    """The anchor's process."""
    import grpc

    async def echo(request: bytes, context: object) -> bytes:
        return request

    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo.Echo", handlers),))
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


async def timed(call: Callable[[], Awaitable[object]], seconds: float, pause: float = 0.0) -> float:
    """p50 in µs of one call after another for *seconds*, *pause* between them."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or len(times) < 3:
        await call()
        times.append(time.perf_counter() - began)
        if pause:
            await asyncio.sleep(pause)
    return statistics.median(times) * 1e6


@dataclass(slots=True)
class Rounds:
    """What the rounds gave, by name; medians count."""

    seen: dict[str, list[float]]

    def note(self, name: str, value: float) -> None:
        """One round's value."""
        self.seen.setdefault(name, []).append(value)

    def middle(self, name: str) -> float:
        """The median."""
        return statistics.median(self.seen[name])


async def measure(
    echo: Callable[[int], Awaitable[tuple[float, float, float]]], body: bytes, *, rounds: int, seconds: float
) -> list[dict[str, object]]:
    """Every row. echo: the anchor on a unix socket, for so many calls in flight: rate, p50 and p99 in µs."""
    found = Rounds({})
    async with serving() as server, echoing() as grpc_echo:
        first, fork, worker = server.workers[0], server.large["Fork"], server.large["Worker"]
        hosts = below(server.process.pid)["kr-python-host"]
        request = pb.InvokeFunctionRequest(
            registration=first, invocation_id="an-invocation", input=body, content_type="application/json",
            timeout_millis=60_000,
        ).SerializeToString()  # fmt: skip
        for number in range(rounds):
            for flight in (1, FUNCTIONS):
                rate, p50, _ = await echo(flight)
                found.note(f"echo rate {flight}", rate)
                found.note(f"echo p50 {flight}", p50)
                await _linked(server, hosts, found, body, flight, seconds, number)
            found.note("grpc echo", await timed(lambda: grpc_echo(request), seconds))
            found.note("grpc", await timed(lambda: server.invoke(first, body), seconds))
            for name, one in (("Worker", worker), ("Fork", fork)):
                spaced = timed(lambda one=one: server.invoke(one, body), seconds, FORK_PAUSE_SECONDS)  # type: ignore[misc]
                found.note(f"{name} spaced", await spaced)
            found.note("Fork back to back", await timed(lambda: server.invoke(fork, body), seconds))
    return _rows(found)


async def _linked(
    server: Server, hosts: list[int], found: Rounds, body: bytes, flight: int, seconds: float, number: int
) -> None:
    names = [registration.registration_id for registration in server.workers[:flight]]
    before = usage_of([server.process.pid]), usage_of(hosts)
    began = time.perf_counter()
    _, client = await asyncio.get_running_loop().create_unix_connection(
        lambda: LinkClient(names, body, seconds, f"b{number}-{flight}-"), server.functions_socket
    )
    await client.finished
    took, count = time.perf_counter() - began, len(client.latencies)
    after = usage_of([server.process.pid]), usage_of(hosts)
    found.note(f"rate {flight}", count / took)
    found.note(f"p50 {flight}", statistics.median(client.latencies) * 1e6)
    for who, one, other in zip(("server", "host"), before, after, strict=True):
        found.note(f"{who} cpu {flight}", (other.cpu - one.cpu) / count * 1e6)
        found.note(f"{who} waits {flight}", (other.waits - one.waits) / count)


def _rows(found: Rounds) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for what, unit, value, anchor, aim in (
        ("Worker, functions socket: p50, one at a time", "µs", "p50 1", "echo p50 1", "ratio <= 8"),
        ("Worker, functions socket: calls per second, 32", "1/s", "rate 32", "echo rate 32", "ratio >= 0.2"),
        ("Worker, gRPC: p50, one at a time", "µs", "grpc", "grpc echo", "ratio <= 1.5"),
        ("Fork, 50 MB, next child ready: p50, beside Worker", "µs", "Fork spaced", "Worker spaced", "ratio <= 2"),
        ("Fork, 50 MB, back to back: p50", "µs", "Fork back to back", "", "value <= 6000"),
        ("Runtime Server: CPU per call, one at a time", "µs", "server cpu 1", "", ""),
        ("Runtime Server: CPU per call, 32", "µs", "server cpu 32", "", ""),
        ("Runtime Server: waits per call, one at a time", "", "server waits 1", "", ""),
        ("host: CPU per call, one at a time", "µs", "host cpu 1", "", ""),
        ("host: CPU per call, 32", "µs", "host cpu 32", "", ""),
        ("host: waits per call, one at a time", "", "host waits 1", "", ""),
    ):
        middle = found.middle(value)
        beside = found.middle(anchor) if anchor else None
        ratio = round(middle / beside, 2) if beside else None
        rows.append({"what": what, "value": round(middle, 2), "unit": unit, "anchor": beside and round(beside, 1),
                     "ratio": ratio, "aim": aim or None, "holds": _holds(aim, middle, ratio)})  # fmt: skip
    return rows


def _holds(aim: str, value: float, ratio: float | None) -> bool | None:
    if not aim:
        return None
    what, sign, limit = aim.split(" ")
    number = value if what == "value" else ratio
    assert number is not None, "an aim for a ratio needs an anchor"
    return number <= float(limit) if sign == "<=" else number >= float(limit)


if __name__ == "__main__":
    asyncio.run(serve_echo(sys.argv[1]))
