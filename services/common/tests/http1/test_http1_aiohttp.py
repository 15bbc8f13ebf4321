"""The listener is held to aiohttp's behaviour: the same bytes get the same statuses, bodies and ends of connections."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from tests.http1.http1_service import BODY_BYTES, LIMIT_SECONDS, listening

HOST = b"host: x\r\n"
P = b"POST / HTTP/1.1\r\n" + HOST
G = b"GET / HTTP/1.1\r\n" + HOST


@dataclass(frozen=True)
class Seen:
    """What a caller sees: each answer's status and body, and whether the connection ends with it."""

    answers: tuple[tuple[int, bytes, bool], ...]


async def exchange(path: Path, data: bytes, answers: int) -> Seen:
    """Sends *data* and reads as many answers as are expected, or until the other side closes."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    found = []
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            writer.write(data)
            for _ in range(answers):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in head[1:] if line)
                status = int(head[0].split()[1])
                sized = not data.startswith(b"HEAD") and status != 100
                body = await reader.readexactly(int(headers.get("content-length", 0))) if sized else b""
                old = head[0].startswith("http/1.0") and headers.get("connection") != "keep-alive"
                # Words for people are each server's own; a refused request ends its connection, said or not.
                good = status < 300
                ends = not good or old or headers.get("connection") == "close"
                found.append((status, body if good else b"", ends))
    finally:
        writer.close()
    return Seen(tuple(found))


async def from_aiohttp(data: bytes, answers: int) -> Seen:
    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        return web.Response(headers={"x-method": request.method}, body=body)

    async def limited(request: web.Request) -> web.StreamResponse:
        if (request.content_length or 0) > BODY_BYTES:
            response = web.Response(status=413)
            response.force_close()
            return response
        return await handle(request)

    with tempfile.TemporaryDirectory() as folder:
        app = web.Application()
        app.router.add_route("*", "/", limited)
        runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=0.1)
        await runner.setup()
        path = Path(folder) / "aiohttp.sock"
        await web.UnixSite(runner, path).start()
        try:
            return await exchange(path, data, answers)
        finally:
            await runner.cleanup()


@pytest.mark.parametrize(
    ("data", "answers"),
    [
        pytest.param(P + b"content-length: 3\r\n\r\nabc", 1, id="length"),
        pytest.param(G + b"\r\n", 1, id="no-body"),
        pytest.param(G + b"\r\n" + G + b"\r\n", 2, id="two"),
        pytest.param(
            P + b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            1,
            id="chunks",
        ),
        pytest.param(
            P + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" + G + b"\r\n",
            2,
            id="chunks-then-another",
        ),
        pytest.param(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n", 1, id="head"),
        pytest.param(G + b"connection: close\r\n\r\n", 1, id="close"),
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", 1, id="old"),
        pytest.param(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", 1, id="old-that-stays"),
        pytest.param(P + b"expect: 100-continue\r\ncontent-length: 3\r\n\r\n", 1, id="word"),
        pytest.param(P + b"expect: coffee\r\ncontent-length: 3\r\n\r\n", 1, id="coffee"),
        pytest.param(P + b"content-length: 5000\r\n\r\n", 1, id="too-large"),
        pytest.param(P + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc", 1, id="gzip"),
        pytest.param(P + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n", 1, id="both"),
        pytest.param(P + b"content-length: 3\r\ncontent-length: 4\r\n\r\n", 1, id="lengths"),
        pytest.param(P + b"content-length: +3\r\n\r\nabc", 1, id="signed-length"),
        pytest.param(P + b"content-length: 1_0\r\n\r\nabc", 1, id="underscore"),
        pytest.param(P + b"transfer-encoding: gzip\r\n\r\n", 1, id="other-encoding"),
        pytest.param(G + b"a: b\0c\r\n\r\n", 1, id="nul"),
        pytest.param(G + b": b\r\n\r\n", 1, id="nameless"),
        pytest.param(G + b"a : b\r\n\r\n", 1, id="blank-before-the-colon"),
        pytest.param(G + b"a: b\r\n c\r\n\r\n", 1, id="folded"),
        pytest.param(G + b"a\r\n\r\n", 1, id="no-colon"),
        pytest.param(b"G@T / HTTP/1.1\r\n" + HOST + b"\r\n", 1, id="method"),
    ],
)
async def test_both_answer_alike(data: bytes, answers: int) -> None:
    async with listening() as made:
        ours = await exchange(made.path, data, answers)
    assert ours == await from_aiohttp(data, answers)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no-host"),
        pytest.param(b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400, id="two-hosts"),
        pytest.param(G + b"upgrade: h2c\r\nconnection: upgrade\r\n\r\n", 400, id="upgrade"),
        pytest.param(b"GET / HTTP/3.0\r\n" + HOST + b"\r\n", 505, id="version"),
    ],
)
async def test_where_this_listener_is_stricter(data: bytes, status: int) -> None:
    """aiohttp serves these; Envoy sends none of them."""
    async with listening() as made:
        assert (await exchange(made.path, data, 1)).answers[0][0] == status
