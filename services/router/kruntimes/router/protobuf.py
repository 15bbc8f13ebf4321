"""The protobuf wire format, as far as the router writes and reads it: varints and length-delimited fields.

Why by hand: a route entry is encoded once per change of a Run and a request is decoded once per push. The
same messages as betterproto2 objects cost 80 to 140 times the CPU, and importing them costs this process
0.4 s before it can serve. The tests decode everything that is written here with envoy-data-plane.
"""

from collections.abc import Iterator

_VARINT = 0
_FIXED64 = 1
_DELIMITED = 2
_FIXED32 = 5
_MAX_VARINT_BYTES = 10
"""64 bits in groups of seven; a longer one is malformed."""


def varint(value: int) -> bytes:
    """A non-negative integer, seven bits a byte, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_TAGS = tuple(varint(field << 3 | _DELIMITED) for field in range(64))
"""The tags of delimited fields: no message of Envoy that is written here has a larger field number."""


def number(field: int, value: int) -> bytes:
    """An integer, bool or enum field; zero is what absence means, so it is left out."""
    return varint(field << 3 | _VARINT) + varint(value) if value else b""


def message(field: int, *parts: bytes) -> bytes:
    """A sub-message or bytes field made of *parts*; written even when empty, since presence may carry meaning."""
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    return _TAGS[field] + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A string field in UTF-8."""
    return message(field, value.encode())


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (field number, value) in order: bytes for delimited fields, an integer for all others.

    Raises ValueError where *data* is cut short or is not of the wire format; never reads past its end.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _read_varint(data, at)
        field, kind = key >> 3, key & 7
        if field == 0:
            raise ValueError("field number 0")
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield field, value
            continue
        if kind == _DELIMITED:
            length, at = _read_varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind}")
        if length > end - at:
            raise ValueError("message cut short")
        chunk = data[at : at + length]
        at += length
        yield field, chunk if kind == _DELIMITED else int.from_bytes(chunk, "little")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= len(data):
            raise ValueError("message cut short")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + index + 1
    raise ValueError("varint of more than ten bytes")
