"""Requests and answers of HTTP/1.1 as values, and an answer as bytes. Pure.

Structs, not dataclasses, as are the other values that every invocation makes: a frozen dataclass costs ten times as
much to make.
"""

import http
from collections.abc import Mapping
from enum import Enum

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, whole.

    target: as it came, still percent-encoded. headers: names in lower case, each with every value in order of
    arrival. body: None where it is longer than allowed. keep_alive: whether the caller wants to go on. old: it speaks
    HTTP/1.0.
    """

    method: str
    target: str
    headers: Mapping[bytes, tuple[bytes, ...]] = {}
    body: bytes | None = b""
    keep_alive: bool = True
    old: bool = False

    def __repr__(self) -> str:
        """Without headers and body, which hold tokens and payloads."""
        return f"Request({self.method} {self.target!r})"

    def values(self, name: bytes) -> tuple[str, ...]:
        """Every value of the header *name* (lower case); bytes that are not UTF-8 become lone surrogates."""
        found = self.headers.get(name, ())
        return tuple([value.decode("utf-8", "surrogateescape") for value in found])

    def value(self, name: bytes) -> str | None:
        """The header's first value, or None."""
        found = self.headers.get(name)
        return found[0].decode("utf-8", "surrogateescape") if found else None

    def once(self, name: bytes) -> str | None:
        """The header's value; None where it is absent, or given twice: no reader may choose between two."""
        found = self.headers.get(name)
        return found[0].decode("utf-8", "surrogateescape") if found and len(found) == 1 else None


class Wrong(Enum):
    """What can be wrong with a request, or with us, each with the status that says so."""

    MALFORMED = 400
    TIMED_OUT = 408
    EXPECTATION = 417
    HEAD_TOO_LARGE = 431
    INTERNAL = 500
    VERSION = 505


class Fault(msgspec.Struct, frozen=True):
    """A request that cannot be served. request: its head, where that was read; message: never holds what was sent."""

    wrong: Wrong
    message: str
    request: Request | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. headers: without content-length and connection, which are written here. close: it is the last one."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    close: bool = False


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_BODY = frozenset({204, 304})


def _status_line(status: int) -> str:
    try:
        return f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP/1.1 {status} "


_STATUS_LINES = {status.value: _status_line(status.value) for status in http.HTTPStatus}


def encode_response(response: Response, *, head_only: bool, close: bool, old: bool = False) -> bytes:
    """The answer as it is sent, in one piece.

    head_only: for a HEAD request: the length is told, the body is not sent. close: the connection ends with it.
    old: the caller speaks HTTP/1.0, and is told where the connection stays. Raises ValueError for a header that
    would break out of its line.
    """
    status, body = response.status, response.body
    lines = [_STATUS_LINES.get(status) or _status_line(status)]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    if status in _NO_BODY:
        body = b""
    else:
        lines.append(f"content-length: {len(body)}")
    if close:
        lines.append("connection: close")
    elif old:
        lines.append("connection: keep-alive")
    text = "\r\n".join(lines)
    breaks = len(lines) - 1
    if text.count("\n") != breaks or text.count("\r") != breaks or "\0" in text:
        raise ValueError("a header's value holds a line break or NUL")
    head = text.encode() + b"\r\n\r\n"
    return head if head_only else head + body
