"""Nothing accumulates: calls that leave things behind, and callers that leave at any moment.

A short run by default. SOAK_CALLS=500 and SOAK_EVENTS=10000 in the environment make it the long one.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import grpc.aio
import pytest
from tests.runtime_process import Registered, Server, connect, until

from kruntimes.functions.wire.encode import encode_call, encode_cancel
from kruntimes.functions.wire.events import Mode
from kruntimes.functions.wire.invocations import invocation_call
from kruntimes.pb import executor_v1_pb2 as pb

CALLS = int(os.environ.get("SOAK_CALLS", "12"))
"""Of each kind, after the first WARM."""
WARM = 50 if CALLS > 50 else 5
KINDS = ["grandchild", "short_thread", "pool", "task", "everything"] if CALLS > 50 else ["pool", "everything"]
EVENTS = int(os.environ.get("SOAK_EVENTS", "300"))
AT_ONCE = 16
MEMORY_SHARE = 0.05
MEMORY_FROM_CALLS = 200
"""Memory is compared from so many calls on: before, the allocators still grow to what they keep."""
UNKNOWN = 1_000_000
WORKER, FORK = pb.FUNCTION_ISOLATION_WORKER, pb.FUNCTION_ISOLATION_FORK

HANDLERS = """
import time
def sleeps(event):
    time.sleep(event)
    return event
async def awaits(event):
    import asyncio
    await asyncio.sleep(event)
    return event
def watches(event, context):
    end = time.monotonic() + event
    while time.monotonic() < end and not context.cancelled:
        time.sleep(0.001)
    return event
"""


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may count the descriptors of protected processes")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """Wholly there: its HTTP server opens sockets a moment after the rest."""
    server = Server(tmp_path, "python")
    try:
        await until(lambda: _listens_on_tcp(server.process.pid), "it serves no metrics")
        yield server
        assert server.stop() == 0, server.text()[-2000:]
    finally:
        server.process.kill()
        server.process.wait()


def _listens_on_tcp(pid: int) -> bool:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    inodes = {f"socket:[{line.split()[9]}]" for line in lines}
    with suppress(OSError):
        return any(os.readlink(f"/proc/{pid}/fd/{name}") in inodes for name in os.listdir(f"/proc/{pid}/fd"))
    return False


def descriptors(server: Server) -> int:
    """Of the server and all that is below it; a very large number while processes come and go."""
    try:
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in (server.process.pid, *server.processes()))
    except OSError:
        return UNKNOWN


async def most_descriptors(server: Server) -> int:
    """Over a moment, in which the child that is made ahead comes to its own."""
    seen = []
    for _ in range(20):
        seen.append(descriptors(server))
        await asyncio.sleep(0.01)
    return max(count for count in seen if count < UNKNOWN)


def kilobytes(server: Server) -> int:
    """The memory of the server and all that is below it that is not of files, what they share counted once."""
    total = 0
    for pid in (server.process.pid, *server.processes()):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) if line.startswith("Pss_Anon:") else 0
    return total


def settled(server: Server, processes: int) -> Callable[[], bool]:
    """Whether everything that is on its way out is gone."""
    return lambda: len(server.processes()) == processes and not server.zombies()


@pytest.mark.parametrize("isolation", [WORKER, FORK], ids=["worker", "fork"])
@pytest.mark.parametrize("handler", KINDS)
async def test_what_calls_leave_behind(server: Server, handler: str, isolation: int) -> None:
    async with connect(server) as client:
        client.isolation = isolation
        function = await client.register("leaves_behind", f"main.{handler}")
        processes = settled(server, 3 if isolation == WORKER else 4)
        for _ in range(WARM):
            await function.output()
        await until(processes, "processes stay")
        opened, used = await most_descriptors(server), kilobytes(server)
        for _ in range(CALLS):
            await function.output()
        await until(processes, "processes accumulate")
        await until(lambda: descriptors(server) <= opened, f"more than {opened} descriptors")
        if CALLS >= MEMORY_FROM_CALLS:
            assert abs(kilobytes(server) - used) <= used * MEMORY_SHARE, (used, kilobytes(server))
        await function.unregister()


class Leaver:
    """Callers of every kind, each leaving at a random moment."""

    def __init__(self, server: Server, functions: list[Registered], seed: int) -> None:
        self._server = server
        self._functions = functions
        self._random = random.Random(seed)
        self._numbers = iter(range(1_000_000))
        self.kinds: list[Callable[[], Awaitable[None]]] = [
            self.cancels_a_grpc_call, self.lets_its_grpc_deadline_pass, self.sets_a_deadline, self.waits,
            self.closes_mid_frame, self.closes_after_the_call, self.cancels_on_the_socket, self.hangs_up_on_grpc,
        ]  # fmt: skip

    async def one(self) -> None:
        await self._random.choice(self.kinds)()

    def _function(self) -> Registered:
        return self._random.choice(self._functions)

    def _seconds(self) -> float:
        return self._random.random() * 0.02

    def _event(self) -> bytes:
        return f"{self._seconds():.4f}".encode()

    async def waits(self) -> None:
        with suppress(grpc.aio.AioRpcError):
            await self._function().call(self._event())

    async def cancels_a_grpc_call(self) -> None:
        call = self._function().call(self._event())
        await asyncio.sleep(self._seconds())
        call.cancel()
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            await call

    async def lets_its_grpc_deadline_pass(self) -> None:
        function = self._function()
        request = pb.InvokeFunctionRequest(registration=function.registration, input=self._event())
        with suppress(grpc.aio.AioRpcError):
            await function.client.stub.InvokeFunction(request, timeout=self._seconds() + 0.001)

    async def sets_a_deadline(self) -> None:
        with suppress(grpc.aio.AioRpcError):
            await self._function().call(self._event(), millis=self._random.randint(1, 20))

    async def closes_mid_frame(self) -> None:
        frame = self._frame()[1]
        await self._say(frame[: self._random.randrange(1, len(frame))])

    async def closes_after_the_call(self) -> None:
        await self._say(self._frame()[1])

    async def cancels_on_the_socket(self) -> None:
        tx, frame = self._frame()
        await self._say(frame, encode_cancel(tx))

    async def hangs_up_on_grpc(self) -> None:
        _, writer = await asyncio.open_unix_connection(str(self._server.socket))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[: self._random.randrange(0, 24)])
        await asyncio.sleep(self._seconds() / 4)
        writer.transport.abort()

    def _frame(self) -> tuple[str, bytes]:
        tx = f"s{next(self._numbers)}"
        call = invocation_call(
            tx=tx, registration=self._function().registration.registration_id, invocation_id="i", attempt=1,
            millis=10_000, payload=self._event(), content_type="application/json",
        )  # fmt: skip
        return tx, encode_call(call, Mode.LINK)

    async def _say(self, *frames: bytes) -> None:
        """Each on one connection, a moment apart; then the connection is cut. One that is refused is an event too."""
        with suppress(ConnectionError):
            _, writer = await asyncio.open_unix_connection(str(self._server.functions_socket))
            for frame in frames:
                writer.write(frame)
                await asyncio.sleep(self._seconds())
            writer.transport.abort()


async def test_callers_that_leave_at_any_moment(server: Server) -> None:
    folder = server.socket.parent
    (folder / "main.py").write_text(HANDLERS)
    seed = int(os.environ.get("SOAK_SEED", "1"))
    async with connect(server) as client:
        functions = [
            await client.register(folder, f"main.{handler}", isolation=isolation)
            for isolation in (WORKER, FORK)
            for handler in ("sleeps", "awaits", "watches")
        ]
        processes = settled(server, 1 + 3 * 2 + 3 * 3)
        await _each_works(functions)
        await until(processes, "processes stay")
        opened = await most_descriptors(server)
        leaver = Leaver(server, functions, seed)
        left = iter(range(EVENTS))

        async def leave() -> None:
            for _ in left:
                await leaver.one()

        await asyncio.gather(*(leave() for _ in range(AT_ONCE)))
        await _each_works(functions)
        await until(processes, "processes accumulate")
        await until(lambda: descriptors(server) <= opened, f"more than {opened} descriptors")
        assert not os.listdir(folder / "scratch" / functions[0].registration.registration_id[:12])


async def _each_works(functions: list[Registered]) -> None:
    """Each slot is free in the end, never more than one was taken, and the next call runs."""
    for function in functions:
        await _idle(function)
        assert await function.output(b"0") == b"0"
        assert (await function.status()).in_flight == 0


async def _idle(function: Registered) -> None:
    for _ in range(3000):
        if (count := (await function.status()).in_flight) == 0:
            return
        assert count == 1
        await asyncio.sleep(0.005)
    raise AssertionError("a slot is never given back")
