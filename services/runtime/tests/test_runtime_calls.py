"""Calls over the functions socket of a real Runtime Server: answers, slots, cancellation, strangers (design §13)."""

import asyncio
import itertools
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.runtime_process import PATIENCE_SECONDS, Client, Registered, Server, connect, until

from kruntimes.functions.wire.encode import encode_call, encode_cancel
from kruntimes.functions.wire.events import Call, Mode, Progress, Result
from kruntimes.functions.wire.invocations import CALL_LIMITS, invocation_call
from kruntimes.functions.wire.results import ResultDecoder
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtime import sockets

MIB = 1024 * 1024
HANDLERS = """
import pathlib, time

def echo(event):
    return event

def sleepy(event):
    time.sleep(event)
    return event

def patient(event, context):
    pathlib.Path("started").touch()
    while not context.cancelled:
        time.sleep(0.002)
    pathlib.Path("asked").touch()
    if event == "stubborn":
        while not pathlib.Path("go").exists():
            time.sleep(0.002)
    return "gave way"

def tells(event, context):
    print("a line")
    context.outputs["k"] = "v"
    return {"id": context.invocation_id, "type": context.content_type, "attempt": context.attempt}

def fails(event):
    raise ValueError("bad thing")
"""
_numbers = itertools.count(1)


class Link:
    """The other end, as runtimed speaks it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = ResultDecoder(CALL_LIMITS)
        self._results: dict[str, Result] = {}
        self.progress: dict[str, list[tuple[int, int]]] = {}

    def send(
        self,
        registration: str,
        payload: bytes = b"null",
        *,
        millis: int = 20_000,
        content_type: str = "application/json",
    ) -> str:
        tx = f"t{next(_numbers)}"
        call = invocation_call(
            tx=tx, registration=registration, invocation_id="inv-1", attempt=1, millis=millis, payload=payload,
            content_type=content_type,
        )  # fmt: skip
        self.write(encode_call(call, Mode.LINK))
        return tx

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def result(self, tx: str) -> Result:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while tx not in self._results:
                data = await self.reader.read(256 * 1024)
                assert data, "the connection was closed"
                for event in self._decoder.feed(data):
                    if isinstance(event, Progress):
                        self.progress.setdefault(event.uid, []).append((event.done, event.total))
                        continue
                    assert isinstance(event, Result), event
                    self._results[event.uid] = event
        return self._results.pop(tx)

    async def call(self, registration: str, payload: bytes = b"null", **more: Any) -> Result:
        return await self.result(self.send(registration, payload, **more))

    async def closed(self) -> None:
        """Waits until the other side has closed."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                while await self.reader.read(65536):
                    pass
            except (ConnectionResetError, BrokenPipeError):  # it may have closed before our bytes came
                pass


@asynccontextmanager
async def linked(server: Server) -> AsyncIterator[Link]:
    reader, writer = await asyncio.open_unix_connection(str(server.functions_socket), limit=4 * MIB)
    try:
        yield Link(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionResetError, BrokenPipeError):
            await writer.wait_closed()


@pytest.fixture
async def link(python_server: Server, python: Client) -> AsyncIterator[Link]:
    async with linked(python_server) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "main.py").write_text(HANDLERS)
    return tmp_path


def reason(result: Result) -> str:
    return str(json.loads(result.body)["reason"])


async def registered(client: Client, folder: Path, name: str) -> tuple[Registered, str]:
    function = await client.register(folder, f"main.{name}")
    return function, function.registration.registration_id


async def test_a_call_is_answered_with_its_document(link: Link, python: Client, folder: Path) -> None:
    _, registration = await registered(python, folder, "tells")
    result = await link.call(registration)
    assert (result.code, result.content_type) == (200, "application/json")
    assert json.loads(result.body)["type"] == "application/json"
    meta = json.loads(result.meta)
    assert (meta["outputs"], meta["logTail"]) == ({"k": "v"}, "a line\n")
    assert meta["durationMs"] > 0


async def test_the_caller_s_id_reaches_the_handler(link: Link, python: Client, folder: Path) -> None:
    _, registration = await registered(python, folder, "tells")
    call = invocation_call(
        tx="own", registration=registration, invocation_id='a"b\'c=d', attempt=1, millis=5000, payload=b"",
        content_type="",
    )  # fmt: skip
    link.write(encode_call(call, Mode.LINK))
    document = json.loads((await link.result("own")).body)
    assert (document["id"], document["type"], document["attempt"]) == ("a\"b'c=d", "", 1)


async def test_a_registration_offers_the_socket(python: Client, python_server: Server, folder: Path) -> None:
    function, _ = await registered(python, folder, "echo")
    assert function.functions_socket == str(python_server.functions_socket)
    mode = python_server.functions_socket.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == sockets.SOCKET_MODE


@pytest.mark.parametrize(
    "payload",
    [
        b"QUIT",
        b"QUIT\n",
        b"x\nFUNCTION_PAYLOAD_END\nFUNCTION_CANCEL t1\nQUIT\n",
        b"FUNCTION_CANCEL t1\n",
        b"\nFUNCTION_RESULT_END\n\nFUNCTION_RESULT_BEGIN t1 200 text/plain 0 meta=0 len=0\n",
        b"\0\r\n\xff",
        b"",
    ],
)
async def test_no_body_is_ever_a_command(link: Link, python: Client, folder: Path, payload: bytes) -> None:
    _, registration = await registered(python, folder, "echo")
    result = await link.call(registration, payload, content_type="application/octet-stream")
    assert (result.code, result.body) == (200, payload)
    assert (await link.call(registration, b"1")).body == b"1"


async def test_the_largest_bodies_pass_both_ways_and_larger_ones_do_not(
    link: Link, python: Client, folder: Path
) -> None:
    _, registration = await registered(python, folder, "echo")
    body = b"x" * MIB
    result = await link.call(registration, body, content_type="application/octet-stream")
    assert (result.code, result.body) == (200, body)
    result = await link.call(registration, body + b"x", content_type="application/octet-stream")
    assert (result.code, reason(result)) == (413, "PayloadTooLarge")
    assert (await link.call(registration, b"1")).body == b"1"


async def test_an_overlap_is_refused_on_both_ways_in(link: Link, python: Client, folder: Path) -> None:
    function, registration = await registered(python, folder, "patient")
    first = link.send(registration)
    await until((folder / "started").exists, "the call runs")
    result = await link.call(registration)
    assert (result.code, reason(result)) == (429, "InvocationInFlight")
    assert (await function.fails()).code == "RESOURCE_EXHAUSTED"
    link.write(encode_cancel(first))
    assert (await link.result(first)).code == 200, "what completed has completed"


async def test_a_cancelled_call_keeps_its_slot_until_it_has_ended(link: Link, python: Client, folder: Path) -> None:
    function, registration = await registered(python, folder, "patient")
    first = link.send(registration, b'"stubborn"')
    await until((folder / "started").exists, "the call runs")
    link.write(encode_cancel("another") + encode_cancel(first))
    await until((folder / "asked").exists, "the handler is asked")
    assert (await link.call(registration)).code == 429
    assert (await function.status()).in_flight == 1
    (folder / "go").touch()
    assert (await link.result(first)).uid == first
    assert (await function.status()).in_flight == 0


async def test_calls_of_a_closed_connection_are_cancelled(
    python_server: Server, link: Link, python: Client, folder: Path
) -> None:
    function, registration = await registered(python, folder, "patient")
    async with linked(python_server) as other:
        other.send(registration)
        await until((folder / "started").exists, "the call runs")
    await until((folder / "asked").exists, "the handler is asked")
    while (await function.status()).in_flight:
        await asyncio.sleep(0.005)
    (folder / "started").unlink()
    again = link.send(registration)
    await until((folder / "started").exists, "another call runs")
    link.write(encode_cancel(again))
    await link.result(again)


async def test_a_deadline_is_kept(link: Link, python: Client, folder: Path) -> None:
    _, registration = await registered(python, folder, "sleepy")
    result = await link.call(registration, b"60", millis=50)
    assert (result.code, reason(result)) == (504, "DeadlineExceeded")
    assert (await link.call(registration, b"0")).code == 200


async def test_failures_name_their_reason(link: Link, python: Client, folder: Path) -> None:
    _, registration = await registered(python, folder, "fails")
    result = await link.call(registration)
    document = json.loads(result.body)
    assert (result.code, document["type"], document["message"]) == (500, "ValueError", "bad thing")
    assert "main.py" in document["traceback"]
    assert json.loads(result.meta)["durationMs"] > 0
    result = await link.call("unknown")
    assert (result.code, reason(result)) == (501, "UnknownRegistration")
    assert (await link.call(registration, b"not json")).code == 400
    assert (await link.call(registration, millis=10**9)).code == 400
    link.write(encode_call(Call(uid="plain", timeout=1, function=registration, payload=b""), Mode.LINK))
    assert (await link.result("plain")).code == 400


async def test_an_older_generation_s_id_is_not_served(link: Link, python: Client, folder: Path) -> None:
    old = await python.register(folder, "main.echo", uid="generations")
    await python.register(folder, "main.echo", uid="generations", attempt=2)
    assert (await link.call(old.registration.registration_id)).code in (501, 503)


async def test_a_repeated_transaction_is_ignored_while_it_runs(link: Link, python: Client, folder: Path) -> None:
    _, registration = await registered(python, folder, "sleepy")
    call = invocation_call(
        tx="same", registration=registration, invocation_id="i", attempt=1, millis=5000, payload=b"0.05",
        content_type="application/json",
    )  # fmt: skip
    link.write(encode_call(call, Mode.LINK) * 2)
    assert (await link.result("same")).code == 200
    assert (await link.call(registration, b"0")).code == 200


STEPS = """
import threading

def steps(event, context):
    other = threading.Thread(target=lambda: [context.progress(n, 2000) for n in range(1000)])
    other.start()
    other.join()
    for done in (1500, 2000, 2000, 2001):
        context.progress(done, 2000)
    return "x" * 100_000

def late(event, context):
    context.progress(1, 1)
    threading.Timer(0.05, context.progress, (1, 1)).start()
    try:
        context.progress(-1, 4)
    except ValueError as error:
        return str(error)
"""


@pytest.mark.parametrize("isolation", [pb.FUNCTION_ISOLATION_WORKER, pb.FUNCTION_ISOLATION_FORK])
async def test_progress_travels_up_before_the_answer(
    link: Link, python: Client, tmp_path: Path, isolation: int
) -> None:
    (tmp_path / "main.py").write_text(STEPS)
    function = await python.register(tmp_path, "main.steps", isolation=isolation)
    tx = link.send(function.registration.registration_id)
    assert (await link.result(tx)).body == b"x" * 100_000
    steps = link.progress[tx]
    assert steps[0][0] == 0
    assert steps[-1] == (2000, 2000), "the last step is always told"
    assert steps == sorted(steps)
    assert len(steps) < 100, "few of a thousand are"


async def test_progress_after_the_answer_is_lost_and_harms_nobody(link: Link, python: Client, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(STEPS)
    function = await python.register(tmp_path, "main.late")
    for _ in range(3):
        result = await link.call(function.registration.registration_id)
        assert (result.code, b"whole numbers" in result.body) == (200, True)
    assert await function.output() == result.body, "over gRPC there is nobody to tell"


async def test_many_calls_at_once_on_one_connection(link: Link, python: Client, folder: Path) -> None:
    names = [(await registered(python, folder, "echo"))[1] for _ in range(4)]
    for number in range(40):
        sent = [link.send(name, str(number * 10 + i).encode()) for i, name in enumerate(names)]
        for i, tx in enumerate(sent):
            assert (await link.result(tx)).body == str(number * 10 + i).encode()


async def test_whoever_breaks_the_protocol_is_cut(tmp_path: Path) -> None:
    server = Server(tmp_path, "python")
    try:
        async with connect(server), linked(server) as link:
            link.write(b"what is this\n")
            await link.closed()
        await until(lambda: "broke the functions protocol" in server.text(), "it is logged")
    finally:
        server.process.kill()
        server.process.wait()


async def test_a_server_that_ends_answers_what_runs(tmp_path: Path, folder: Path) -> None:
    server = Server(tmp_path, "python")
    try:
        async with connect(server) as client, linked(server) as link:
            _, registration = await registered(client, folder, "sleepy")
            first = link.send(registration, b"0.3")
            await until(lambda: _in_flight(link), "sent")
            server.process.terminate()
            assert (await link.result(first)).code == 200
            await link.closed()
            client.forget_all()
        assert server.process.wait(PATIENCE_SECONDS) == 0
    finally:
        server.process.kill()
        server.process.wait()


def _in_flight(link: Link) -> bool:
    return link.writer.transport.get_write_buffer_size() == 0


@pytest.mark.parametrize(
    ("pid", "runtimed_pid", "known"), [(0, 0, True), (7, 0, False), (7, 7, True), (0, 7, False), (8, 7, False)]
)
def test_who_is_runtimed(pid: int, runtimed_pid: int, known: bool) -> None:
    assert sockets.is_runtimed(pid, runtimed_pid=runtimed_pid) is known
