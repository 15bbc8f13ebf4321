"""The listener on a real socket: order, callers that leave or stall, time-outs, draining."""

import asyncio
from collections.abc import Callable

import pytest
from tests.http1.http1_service import LIMIT_SECONDS, listening

from kruntimes.common.http1 import connection, server

POST = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"


def post(target: str, body: bytes = b"") -> bytes:
    return POST % (target.encode(), len(body), body)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not true():
            await asyncio.sleep(0.005)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines that a test can wait for."""
    monkeypatch.setattr(server, "SWEEP_SECONDS", 0.01)
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "WRITE_SECONDS", "LINGER_SECONDS"):
        monkeypatch.setattr(connection, name, 0.05)


async def test_one_connection_many_requests() -> None:
    async with listening() as made, made.peer() as peer:
        for number in range(5):
            await peer.send(post(f"/{number}", b"body"))
            assert await peer.answer() == (200, {"x-method": "POST", "content-length": "4"}, b"body")
        assert made.echo.callers == 1


async def test_requests_that_do_not_wait_for_answers_are_answered_in_order() -> None:
    async with listening() as made, made.peer() as peer:
        await peer.send(post("/now", b"1") + post("/wait", b"2") + post("/now", b"3"))
        assert (await peer.answer())[2] == b"1"
        await made.echo.waiting.wait()
        await peer.send(post("/now", b"4"))
        assert made.echo.seen == ["/now", "/wait"]
        made.echo.release.set()
        assert [(await peer.answer())[2] for _ in range(3)] == [b"2", b"3", b"4"]


async def test_a_head_request_gets_a_head() -> None:
    async with listening() as made, made.peer() as peer:
        await peer.send(b"HEAD / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab")
        await peer.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        got = await peer.rest()
        assert got.startswith(b"HTTP/1.1 200 OK\r\nx-method: HEAD\r\ncontent-length: 2\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_a_caller_that_waits_for_a_word_gets_it() -> None:
    async with listening() as made, made.peer() as peer:
        await peer.send(b"POST /now HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert (await peer.answer())[0] == 100
        await peer.send(b"ab")
        assert (await peer.answer())[2] == b"ab"


async def test_an_answer_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    made_ = connection.Connection.connection_made

    def connection_made(self: connection.Connection[int], transport: asyncio.Transport) -> None:
        write = transport.write
        transport.write = lambda data: (writes.append(bytes(data)), write(data))[1]  # type: ignore[method-assign]
        made_(self, transport)

    monkeypatch.setattr(connection.Connection, "connection_made", connection_made)
    async with listening() as made, made.peer() as peer:
        await peer.send(post("/now", b"abc"))
        assert (await peer.answer())[2] == b"abc"
    (only,) = writes
    assert only.endswith(b"\r\n\r\nabc")


async def test_a_caller_that_leaves_ends_its_work() -> None:
    async with listening() as made:
        async with made.peer() as peer:
            await peer.send(post("/wait"))
            await made.echo.waiting.wait()
        await until(lambda: made.echo.ended == ["gone", "cancelled"])


async def test_a_caller_that_sends_no_more_has_left() -> None:
    async with listening() as made, made.peer() as peer:
        await peer.send(post("/wait"))
        await made.echo.waiting.wait()
        peer.writer.write_eof()
        await until(lambda: made.echo.ended == ["gone", "cancelled"])
        assert await peer.rest() == b""


async def test_a_caller_that_leaves_within_its_body_is_told_of() -> None:
    async with listening() as made:
        async with made.peer() as peer:
            await peer.send(post("/now", b"abc")[:-1])
        await until(lambda: made.echo.ended == ["lost"])
        assert made.echo.seen == []


@pytest.mark.parametrize(("target", "status"), [("/raise", 500), ("/late", 500), ("/broken", 500)])
async def test_a_service_that_fails_is_answered_for(target: str, status: int, caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as made, made.peer() as peer:
        made.echo.release.set()
        await peer.send(post(target))
        assert (await peer.answer())[0] == status
        assert "INTERNAL" in made.echo.ended
        assert any(record.exc_info for record in caplog.records)


async def test_what_is_not_http_is_answered_once_and_cut() -> None:
    async with listening() as made, made.peer() as peer:
        await peer.send(b"nonsense\r\n\r\n" + post("/now"))
        status, headers, _ = await peer.answer()
        assert (status, headers["connection"]) == (505, "close")
        assert made.echo.seen == []
        peer.writer.write_eof()
        assert await peer.rest() == b""


async def test_a_caller_that_is_still_sending_reads_why_it_was_refused() -> None:
    async with listening() as made, made.peer() as peer:
        await peer.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n")
        await peer.send(b"x" * 2_000_000)
        status, headers, _ = await peer.answer()
        assert (status, headers["connection"]) == (413, "close")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("sent", "status", "ended"),
    [
        pytest.param(b"", b"", [], id="nothing"),
        pytest.param(b"POST / HT", b"408", ["TIMED_OUT"], id="a-head"),
        pytest.param(post("/now", b"abc")[:-1], b"408", ["TIMED_OUT"], id="a-body"),
        pytest.param(b"nonsense\r\n\r\n", b"505", ["VERSION"], id="whoever-was-refused"),
    ],
)
async def test_nobody_is_waited_for_in_vain(sent: bytes, status: bytes, ended: list[str]) -> None:
    async with listening(idle_seconds=0.05) as made, made.peer() as peer:
        await peer.send(sent)
        assert (await peer.rest())[9:12] == status
        assert made.echo.ended == ended
        assert made.server._connections == set()


@pytest.mark.usefixtures("quick")
async def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async with listening(idle_seconds=0.05) as made, made.peer() as idle, made.peer() as busy:
        await idle.send(post("/now"))
        await busy.send(post("/wait"))
        assert (await idle.answer())[0] == 200
        assert await idle.rest() == b""
        made.echo.release.set()
        assert (await busy.answer())[0] == 200


@pytest.mark.usefixtures("quick")
async def test_a_connection_that_was_not_used_yet_is_kept_as_long_as_an_idle_one() -> None:
    async with listening() as made, made.peer() as unused:
        async with made.peer() as other:
            await other.send(b"POST / HT")
            assert (await other.rest())[9:12] == b"408", "by now a head would have had its time"
        await unused.send(post("/now", b"abc"))
        assert (await unused.answer())[2] == b"abc"


async def test_a_caller_that_takes_no_answers_is_asked_for_no_more() -> None:
    async with listening() as made, made.peer(receive_bytes=4096) as peer:
        await peer.send(post("/big"))
        await until(lambda: made.echo.seen == ["/big"])
        await peer.send(post("/now", b"later"))
        assert len((await peer.answer())[2]) == 8_000_000
        assert (await peer.answer())[2] == b"later"


@pytest.mark.usefixtures("quick")
async def test_a_caller_that_never_takes_its_answer_is_cut() -> None:
    async with listening() as made, made.peer(receive_bytes=4096) as peer:
        await peer.send(post("/big"))
        await until(lambda: made.echo.seen == ["/big"])
        await until(lambda: made.server._connections == set())


async def test_too_many_connections_are_turned_away() -> None:
    async with listening(most=1) as made, made.peer() as first, made.peer() as second:
        await first.send(post("/now"))
        assert (await first.answer())[0] == 200
        assert await second.rest() == b""


async def test_draining_answers_what_is_under_way_and_ends() -> None:
    async with listening() as made, made.peer() as idle, made.peer() as busy:
        await idle.send(post("/now"))
        assert (await idle.answer())[0] == 200
        await busy.send(post("/wait", b"abc"))
        await made.echo.waiting.wait()
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(made.server.close(LIMIT_SECONDS))
            assert await idle.rest() == b""
            made.echo.release.set()
            status, headers, body = await busy.answer()
            assert (status, headers["connection"], body) == (200, "close", b"abc")
            await closing
        with pytest.raises(OSError, match=r".*"):
            async with made.peer():
                pass


async def test_draining_cuts_what_does_not_end() -> None:
    async with listening() as made, made.peer() as busy:
        await busy.send(post("/wait"))
        await made.echo.waiting.wait()
        await made.server.close(0.01)
        assert made.echo.ended == ["gone", "cancelled"]
        assert await busy.rest() == b""
