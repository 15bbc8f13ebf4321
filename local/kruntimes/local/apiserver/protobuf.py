"""Bodies in Kubernetes' protobuf, which kubectl sends for what it creates typed: read into the JSON form. Pure.

A body is `k8s\\0` and an envelope that names the kind and holds its message. What a Go client writes has every field
that is no pointer in it, set or not, so empty values of those are read as none. A field that the tables do not have
is refused: to drop in silence what was asked for would be worse.
"""

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec

from kruntimes.common.protobuf import Malformed, fields, read_varint
from kruntimes.local.apiserver.fields import SCALARS, Field, Many, Message, messages
from kruntimes.local.apiserver.status import StatusError, bad_request

Json = dict[str, Any]

MAGIC = b"k8s\x00"
MAX_DEPTH = 40
"""Messages within messages: a Pod's deepest field lies at twelve."""


def decode(body: bytes) -> Json:
    """The object in a body; raises BadRequest where it is not the protobuf of a kind that we know."""
    try:
        return _decode(body)
    except (Malformed, UnicodeDecodeError) as error:
        raise bad_request(f"the protobuf body cannot be read: {error}") from None


def _decode(body: bytes) -> Json:
    if not body.startswith(MAGIC):
        raise Malformed("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    api_version = kind = ""
    raw = b""
    for number, value in fields(body[len(MAGIC) :]):
        if number == 1:
            for inner, text in fields(_bytes(value)):
                if inner == 1:
                    api_version = _bytes(text).decode()
                elif inner == 2:
                    kind = _bytes(text).decode()
        elif number == 2:
            raw = _bytes(value)
        elif number == 3 and value:
            raise Malformed("content encodings are not supported")
    message = messages().get(kind)
    if message is None or ("metadata" not in message.by_name and kind != "DeleteOptions"):
        raise _unknown_kind(kind, api_version)
    return {"apiVersion": api_version, "kind": kind, **_message(message, raw, depth=0)}


def _unknown_kind(kind: str, api_version: str) -> StatusError:
    return bad_request(f'no kind "{kind[:63]}" is registered for version "{api_version[:63]}" in protobuf')


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise Malformed("a number where bytes are due")
    return value


def _signed(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise Malformed("bytes where a number is due")
    return value - (1 << 64) if value >> 63 else value


# ---------------------------------------------------------------- messages


def _message(message: Message, data: bytes, *, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise Malformed("too deep")
    made: Json = {}
    for number, value in fields(data):
        field = message.by_number.get(number)
        if field is None:
            raise Malformed(f"field {number} of {message.name} is not known")
        match field.many:
            case Many.LIST:
                made.setdefault(field.name, []).extend(_listed(field, value, depth=depth))
            case Many.MAP | Many.MAP_OF_LISTS:
                key, held = _entry(field, _bytes(value), depth=depth)
                made.setdefault(field.name, {})[key] = held
            case Many.ONE:
                _put(made, field, _value(field.type, value, depth=depth))
    return made


def _put(made: Json, field: Field, value: Any) -> None:
    if not field.name:
        made.update(value)
    elif field.kept or value or (value == 0 and field.type == "IntOrString"):
        made[field.name] = value


def _listed(field: Field, value: int | bytes, *, depth: int) -> list[Any]:
    if field.type in ("int", "bool") and isinstance(value, bytes):  # packed
        found, at = [], 0
        while at < len(value):
            number, at = read_varint(value, at)
            found.append(_value(field.type, number, depth=depth))
        return found
    return [_value(field.type, value, depth=depth)]


def _entry(field: Field, data: bytes, *, depth: int) -> tuple[str, Any]:
    """One pair of a map; what is not written is empty."""
    key, raw = "", b""
    for number, value in fields(data):
        if number == 1:
            key = _bytes(value).decode()
        elif number == 2:
            raw = _bytes(value)
    if field.many is Many.MAP_OF_LISTS:
        return key, [_bytes(value).decode() for number, value in fields(raw) if number == 1]
    return key, _value(field.type, raw, depth=depth)


def _value(kind: str, value: int | bytes, *, depth: int) -> Any:
    if kind not in SCALARS:
        return _message(messages()[kind], _bytes(value), depth=depth + 1)
    match kind:
        case "string":
            return _bytes(value).decode()
        case "int":
            return _signed(value)
        case "bool":
            return bool(_signed(value))
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "Quantity":
            return "".join(_bytes(text).decode() for number, text in fields(_bytes(value)) if number == 1)
        case "Time" | "MicroTime":
            return _time(_bytes(value), micro=kind == "MicroTime")
        case "IntOrString":
            return _int_or_string(_bytes(value))
        case _:
            return _raw_json(_bytes(value))


def _time(data: bytes, *, micro: bool) -> str | None:
    """RFC 3339, or None for the zero time (which is a message of its own, or an empty one)."""
    parts = dict(fields(data))
    seconds, nanos = _signed(parts.get(1, 0)), _signed(parts.get(2, 0))
    if not parts:
        return None
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise Malformed("a time out of range") from None
    if moment.year == 1:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{nanos // 1000:06}Z" if micro else "Z")


def _int_or_string(data: bytes) -> int | str:
    parts = dict(fields(data))
    return _bytes(parts.get(3, b"")).decode() if _signed(parts.get(1, 0)) else _signed(parts.get(2, 0))


def _raw_json(data: bytes) -> Any:
    parts = dict(fields(data))
    try:
        return msgspec.json.decode(_bytes(parts.get(1, b"")) or b"null")
    except msgspec.DecodeError:
        raise Malformed("a field that holds JSON holds none") from None
