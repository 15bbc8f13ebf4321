"""From bytes to the handler's event, and from what it returned to bytes; nothing is replaced in silence.

Input: a JSON content type is decoded; every other one arrives as bytes. No body under a JSON type, or under none,
is None (runtimed says JSON for a request without a type). JSON that Python would only read by changing it (NaN,
Infinity, a number beyond a float) is refused, and an int of more than Python's 4,300 digits.

    returned                             answer
    str                                  text/plain; charset=utf-8
    bytes, bytearray, memoryview         application/octet-stream
    None, bool, int, float, list, tuple  application/json; an int is exact up to MAX_INT_BITS
    dict with str keys                   application/json
    dataclass; Enum                      its fields as an object; its value
    datetime, date, time; UUID; Decimal  text: ISO 8601; the usual form; its digits
    a generator of str, or of bytes      the pieces joined
    any other generator                  a JSON list
    anything else                        a function error that names the path, such as $.items[3]

Also errors: NaN and infinities, lone surrogates, keys that are not text, cycles, more than 1 MiB.
Pure apart from iterating what the handler returned. Documented in docs/handlers.md.
"""

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable, Generator
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from uuid import UUID

from kruntimes.runtime.bounds import MAX_OUTPUT_BYTES

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
MAX_DEPTH = 200
"""Deeper values cannot be read by most JSON parsers, and would pass Python's own recursion limit."""
READY = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})
"""What most handlers return: neither awaited nor iterated, so it is not asked whether it could be."""
MAX_INT_BITS = 14_000
"""About 4,200 digits; Python itself refuses to write longer ones."""

_JSON_TYPE = re.compile(r"\s*(application/json|[^;/\s]+/[^;/\s]+\+json)\s*(;.*)?", re.IGNORECASE)
_CONTENT_TYPE = re.compile(r"[!-~]{1,100}/[!-~]{1,100}(; ?[!-~]{1,200}){0,3}")
_dumps = json.JSONEncoder(allow_nan=False, ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


class BadInput(ValueError):
    """The request's body is not what its content type says."""


class Unencodable(TypeError):
    """What the handler returned has no form in an answer; the message names the path and the reason."""


def decode_event(payload: bytes, content_type: str) -> object:
    """The event that the handler receives. Raises BadInput."""
    if not content_type:
        return payload or None
    if _JSON_TYPE.fullmatch(content_type) is None:
        return payload
    if not payload:
        return None
    try:
        return _loads(payload.decode())
    except RecursionError:
        raise BadInput("the body is JSON nested too deeply") from None
    except UnicodeDecodeError:
        raise BadInput("the body is said to be JSON and is not UTF-8") from None
    except ValueError as error:
        raise BadInput(f"the body is said to be JSON and is not: {error}") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is larger than a float can be")
    return value


_loads = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).decode
"""Made once: `json.loads` with arguments of its own makes a decoder for every call."""


def encode_answer(value: object, response_type: str | None = None) -> tuple[bytes, str]:
    """Body and content type of what a handler returned. Raises Unencodable."""
    if type(value) not in READY and isinstance(value, Generator):
        value = _collect(value)
    if isinstance(value, str) and not isinstance(value, Enum):
        body, content_type = _utf8(value, "$"), TEXT
    elif isinstance(value, bytes | bytearray | memoryview):
        body, content_type = bytes(value), BYTES
    else:
        body, content_type = _json(value), JSON
    if len(body) > MAX_OUTPUT_BYTES:
        raise Unencodable(f"the answer has {len(body)} bytes, at most {MAX_OUTPUT_BYTES} can be returned")
    if response_type is not None:
        if not isinstance(response_type, str) or _CONTENT_TYPE.fullmatch(response_type) is None:
            raise Unencodable("context.response_type is not a content type")
        content_type = response_type
    return body, content_type


def join_pieces(pieces: list[object]) -> object:
    """What the pieces that a generator gave mean together."""
    if pieces and all(isinstance(piece, str) for piece in pieces):
        return "".join(map(str, pieces))
    if pieces and all(isinstance(piece, bytes | bytearray | memoryview) for piece in pieces):
        return b"".join(bytes(piece) for piece in pieces)  # type: ignore[call-overload]
    return pieces


class PieceCounter:
    """Stops a generator that yields more than an answer may hold, before it fills the memory."""

    def __init__(self) -> None:
        self._total = 0

    def add(self, piece: object) -> None:
        """Counts *piece*; raises Unencodable once the answer is certainly too large."""
        self._total += len(piece) if isinstance(piece, str | bytes | bytearray | memoryview) else 2
        if self._total > MAX_OUTPUT_BYTES:
            raise Unencodable(f"the generator yielded more than {MAX_OUTPUT_BYTES} bytes")


def _collect(generator: Generator[object, None, object]) -> object:
    pieces: list[object] = []
    counter = PieceCounter()
    try:
        for piece in generator:
            counter.add(piece)
            pieces.append(piece)
    finally:
        generator.close()
    return join_pieces(pieces)


def _json(value: object) -> bytes:
    text = _dumps(_plain(value, "$", []))
    return text.encode()


def _utf8(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Unencodable(f"{path} holds a lone surrogate at index {error.start}") from None


def _plain(value: object, path: str, above: list[int]) -> object:
    """*value* made of what JSON has and nothing else."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        _utf8(value, path)  # type: ignore[arg-type]
        return value
    if kind is int:
        return _checked_int(value, path)  # type: ignore[arg-type]
    if kind is float:
        return _checked_float(value, path)  # type: ignore[arg-type]
    if isinstance(value, Enum):
        return _plain(value.value, path, above)
    for known, plain in _SCALARS:
        if isinstance(value, known):
            return plain(value, path)
    return _container(value, path, above)


def _container(value: object, path: str, above: list[int]) -> object:
    if id(value) in above:
        raise Unencodable(f"{path} contains itself")
    if len(above) >= MAX_DEPTH:
        raise Unencodable(f"{_short(path)} is nested deeper than {MAX_DEPTH}")
    above.append(id(value))
    try:
        if isinstance(value, dict):
            return {_key(key, path): _plain(item, f"{path}.{key}", above) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [_plain(item, f"{path}[{index}]", above) for index, item in enumerate(value)]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
            return {name: _plain(item, f"{path}.{name}", above) for name, item in fields}
    finally:
        above.pop()
    raise Unencodable(f"{_short(path)} is {_a(type(value))}, which has no JSON form")


def _key(key: object, path: str) -> str:
    if not isinstance(key, str) or isinstance(key, Enum):
        raise Unencodable(f"{_short(path)} has the key {repr(key)[:80]}, which is {_a(type(key))} and not a str")
    _utf8(key, f"a key of {path}")
    return key


def _checked_int(value: int, path: str) -> int:
    if value.bit_length() > MAX_INT_BITS:
        raise Unencodable(f"{path} is an int of {value.bit_length()} bits, at most {MAX_INT_BITS} can be written")
    return value


def _checked_float(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise Unencodable(f"{path} is {value}, which JSON does not have")
    return value


def _decimal(value: Decimal, path: str) -> str:
    if not value.is_finite():
        raise Unencodable(f"{path} is {value}, which is no number")
    return str(value)


def _text(value: str, path: str) -> str:
    _utf8(value, path)
    return str(value)


_SCALARS: tuple[tuple[type, Callable[..., object]], ...] = (
    (str, _text),
    (bool, lambda value, path: bool(value)),
    (int, lambda value, path: _checked_int(int(value), path)),
    (float, lambda value, path: _checked_float(float(value), path)),
    (datetime, lambda value, path: value.isoformat()),
    (date, lambda value, path: value.isoformat()),
    (time, lambda value, path: value.isoformat()),
    (UUID, lambda value, path: str(value)),
    (Decimal, _decimal),
)


def _a(kind: type) -> str:
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return ("an " if name[:1].lower() in "aeiou" else "a ") + name[:120]


def _short(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:200]}…"


assert sys.getrecursionlimit() > MAX_DEPTH * 3, "the walk must end before Python's own limit"
