"""One HTTP/1.1 connection, seen from the server: bytes in, requests out, whatever pieces the bytes come in. Pure.

httptools (llhttp, strict) reads a request's head, once that is there whole; where it ends, how long it may be, and
where the body ends is decided here. What could be read in two ways is refused, and with it the connection: a length
beside chunks, two lengths, an encoding other than chunks, a folded or nameless header, bare line ends, an upgrade.
Source: RFC 9112; design §6 for the limits.
"""

from dataclasses import dataclass
from enum import Enum, auto

import httptools
from msgspec.structs import replace

from kruntimes.common.http1.chunks import BadChunk, Chunks, TooLarge
from kruntimes.common.http1.messages import Fault, Request, Wrong

MAX_HEAD_BYTES = 32 * 1024
"""Request line and headers together: twice what Envoy lets through, so that it is Envoy that refuses."""
MAX_HEADERS = 256
"""Envoy lets 100 through, and adds a dozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bytes and numbers that a request may have. body: 0 where none is wanted."""

    body: int
    head: int = MAX_HEAD_BYTES
    headers: int = MAX_HEADERS


class Stage(Enum):
    """What a connection waits for."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DONE = auto()
    """Nothing: what comes after a fault, or after a request that closes, is not read."""


class Continue:
    """The caller waits for a word before it sends its body."""


CONTINUE = Continue()
Event = Request | Fault | Continue
_END = b"\r\n\r\n"
_VERSIONS = (b" HTTP/1.1", b" HTTP/1.0")
_STAY = frozenset({b"", b"100-continue"})


class Machine:
    """See the module. The buffer holds at most a head, or the rest of what was fed with one request's end."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._searched = 0
        self._head: Request | None = None
        self._length = 0
        self._chunks: Chunks | None = None
        self._over = False
        self._told = False

    @property
    def stage(self) -> Stage:
        """What the next bytes will be."""
        if self._over:
            return Stage.DONE
        if self._head is not None:
            return Stage.BODY
        return Stage.HEAD if self._buffer else Stage.IDLE

    @property
    def begun(self) -> Request | None:
        """The head of a request whose body has not come whole."""
        return self._head

    @property
    def buffered(self) -> int:
        """Bytes that were fed and are not part of any event yet."""
        return 0 if self._over else len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Takes bytes as they came; `next` tells what they make."""
        if not self._over:
            self._buffer += data

    def next(self) -> Event | None:
        """The next event, or None until more is fed. After a Fault, or a request that closes, there is none."""
        if self._over:
            return None
        if self._head is None:
            event = self._read_head()
            if event is not None or self._head is None:
                return event
        return self._read_body()

    def _read_head(self) -> Fault | Request | None:
        """Takes a head from the buffer; a request without a body is whole with it."""
        buffer = self._buffer
        if not buffer:
            return None
        if buffer.startswith(b"\r\n"):  # RFC 9112, 2.2: empty lines before a request are read over
            while buffer.startswith(b"\r\n"):
                del buffer[:2]
            self._searched = 0
        limit = self._limits.head
        end = buffer.find(_END, self._searched, limit)
        if end < 0:
            self._searched = max(0, len(buffer) - len(_END) + 1)
            return self._fault(Wrong.HEAD_TOO_LARGE, "the headers are too large") if len(buffer) >= limit else None
        head = bytes(buffer[: end + len(_END)])
        del buffer[: len(head)]
        self._searched = 0
        return self._parse(head)

    def _parse(self, head: bytes) -> Fault | Request | None:
        fields = _Fields()
        parser = fields.parser = httptools.HttpRequestParser(fields)
        if not head.startswith(_VERSIONS, head.find(b"\r\n") - len(_VERSIONS[0])):
            return self._fault(Wrong.VERSION, "the request is not HTTP/1.1")
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            return self._fault(Wrong.MALFORMED, "the connection cannot be upgraded")
        except httptools.HttpParserError:
            return self._fault(Wrong.MALFORMED, "the request is not well-formed HTTP/1.1")
        del fields.parser  # it holds the fields: a circle that only a collection would end, every request's memory anew
        if len(fields.pairs) > self._limits.headers:
            return self._fault(Wrong.HEAD_TOO_LARGE, "the request has too many headers")
        headers: dict[bytes, tuple[bytes, ...]] = {}
        for name, value in fields.pairs:
            name, value = name.lower(), value.rstrip(b" \t")
            headers[name] = (*headers[name], value) if name in headers else (value,)
        request = Request(
            method=parser.get_method().decode("ascii"),
            target=fields.target.decode("ascii", "surrogateescape"),
            headers=headers,
            keep_alive=fields.keep_alive,
            old=parser.get_http_version() == "1.0",
        )
        return self._framing(request)

    def _framing(self, request: Request) -> Fault | Request | None:
        """Decides what body *request* has. The parser has refused what is contradictory."""
        headers, old = request.headers, request.old
        if len(headers.get(b"host", ())) != 1 and not old:
            return self._fault(Wrong.MALFORMED, "the request names no host, or two", request)
        expected = headers.get(b"expect", (b"",))[-1].lower()
        if expected not in _STAY:
            return self._fault(Wrong.EXPECTATION, "the request expects what is not known here", request)
        if (encoding := headers.get(b"transfer-encoding")) is not None:
            if old or len(encoding) != 1 or encoding[0].strip().lower() != b"chunked":
                return self._fault(Wrong.MALFORMED, "the body has an encoding other than chunks", request)
            self._chunks = Chunks(self._limits.body)
        else:
            self._length = int(headers.get(b"content-length", (b"0",))[0])
            if self._length == 0:
                self._over = not request.keep_alive
                return request
            if self._length > self._limits.body:
                self._over = True
                return replace(request, body=None, keep_alive=False)
        self._told = not expected or old
        self._head = request
        return None

    def _read_body(self) -> Event | None:
        request, buffer = self._head, self._buffer
        assert request is not None, "a body without a head"
        if self._chunks is None:
            body = bytes(buffer[: self._length]) if len(buffer) >= self._length else None
            if body is not None:
                del buffer[: self._length]
        else:
            try:
                body = self._chunks.take(buffer)
            except BadChunk:
                return self._fault(Wrong.MALFORMED, "the body is not made of chunks", request)
            except TooLarge:
                self._stop()
                return replace(request, body=None, keep_alive=False)
        if body is None:
            if self._told:
                return None
            self._told = True
            return CONTINUE
        self._head = self._chunks = None
        self._over = not request.keep_alive
        return replace(request, body=body)

    def _fault(self, wrong: Wrong, message: str, request: Request | None = None) -> Fault:
        self._stop()
        return Fault(wrong, message, request)

    def _stop(self) -> None:
        self._over = True
        self._head = self._chunks = None
        self._buffer.clear()


class _Fields:
    """What the parser tells of one head, whose size bounds it."""

    __slots__ = ("keep_alive", "pairs", "parser", "target")

    def __init__(self) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []
        self.target = b""
        self.keep_alive = False
        self.parser: httptools.HttpRequestParser

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name, value))

    def on_headers_complete(self) -> None:
        self.keep_alive = self.parser.should_keep_alive()
