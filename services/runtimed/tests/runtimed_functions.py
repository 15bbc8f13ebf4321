"""The called side of the functions socket, for faults: what an invocation does is its payload, as in `runtimed_stub`.

`echo`, `hang` (until released; `linger` decides whether a cancellation ends it), `cut` (the connection ends), `silent`
(no result ever), `code 501` and so on.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.encode import encode_progress, encode_result
from kruntimes.functions.wire.events import Call, Cancel, Mode, Result
from kruntimes.functions.wire.invocations import CALL_LIMITS


@dataclass
class Functions:
    """linger: a cancelled call goes on until `release`. meta: what stands beside every answer."""

    calls: list[Call] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    running: dict[str, Call] = field(default_factory=dict)
    linger: bool = False
    started: asyncio.Event = field(default_factory=asyncio.Event)
    meta: bytes = b'{"outputs": {"k": "v"}, "logTail": "a line\\n", "durationMs": 12.5}'
    connections: set["_Connection"] = field(default_factory=set)

    def release(self) -> None:
        """Lets every call that hangs end."""
        for connection in self.connections:
            for tx in tuple(self.running):
                connection.answer(tx, 200, b"released")

    def report(self, done: int, total: int) -> None:
        """Progress of every call that hangs."""
        for connection in self.connections:
            for tx in self.running:
                connection.transport.write(encode_progress(tx, done=done, total=total))

    def cut(self) -> None:
        """Ends every connection."""
        for connection in tuple(self.connections):
            connection.transport.abort()


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, stub: Functions) -> None:
        self.stub = stub
        self.decoder = CallDecoder(Mode.LINK, CALL_LIMITS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.stub.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stub.connections.discard(self)
        self.stub.running.clear()

    def data_received(self, data: bytes) -> None:
        for event in self.decoder.feed(data):
            if isinstance(event, Call):
                self.call(event)
            elif isinstance(event, Cancel):
                self.stub.cancelled.append(event.uid)
                if event.uid in self.stub.running and not self.stub.linger:
                    self.answer(event.uid, 499)
            else:
                raise AssertionError(event)

    def call(self, call: Call) -> None:
        self.stub.calls.append(call)
        if self.stub.running:
            self.send(call.uid, 429)
            return
        self.stub.running[call.uid] = call
        self.stub.started.set()
        match (call.payload or b"").split(b" "):
            case [b"hang"] | [b"silent"]:
                pass
            case [b"cut"]:
                self.transport.abort()
            case [b"code", code]:
                self.answer(call.uid, int(code))
            case _:
                self.answer(call.uid, 200, call.payload or b"")

    def answer(self, tx: str, code: int, body: bytes | None = None) -> None:
        if self.stub.running.pop(tx, None) is not None:
            self.send(tx, code, body)

    def send(self, tx: str, code: int, body: bytes | None = None) -> None:
        if body is None:
            body = json.dumps(
                {"reason": "Told", "message": "bad", "type": "ValueError", "traceback": "line 1"}
            ).encode()
        result = Result(uid=tx, code=code, content_type="application/json", body=body, meta=self.stub.meta)
        self.transport.write(encode_result(result, Mode.LINK))


@asynccontextmanager
async def listening(stub: Functions, socket: Path) -> AsyncIterator[None]:
    """*stub* on *socket*."""
    socket.unlink(missing_ok=True)
    server = await asyncio.get_running_loop().create_unix_server(lambda: _Connection(stub), str(socket))
    try:
        yield
    finally:
        server.close()
        stub.cut()
