"""Reading the protobuf wire format without generated code: for those who read a few messages and import no more.

Groups, which proto3 has not, are malformed; everything else of the format is read. Never past the end of the data.
"""

from collections.abc import Iterator

VARINT = 0
FIXED64 = 1
DELIMITED = 2
FIXED32 = 5
MAX_VARINT_BYTES = 10
"""64 bits in groups of seven; a longer one is malformed."""
_64_BITS = (1 << 64) - 1


class Malformed(ValueError):
    """Bytes that are no message."""


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (field number, value) in order: bytes for what has a length, an integer without sign for all others.

    Raises Malformed where *data* is cut short or is not of the wire format.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = read_varint(data, at)
        field, kind = key >> 3, key & 7
        if field == 0:
            raise Malformed("field number 0")
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield field, value
            continue
        if kind == DELIMITED:
            length, at = read_varint(data, at)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise Malformed(f"wire type {kind}")
        if length > end - at:
            raise Malformed("message cut short")
        chunk = data[at : at + length]
        at += length
        yield field, chunk if kind == DELIMITED else int.from_bytes(chunk, "little")


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer that begins *at*, and where it ends. Raises Malformed."""
    value = 0
    for index in range(MAX_VARINT_BYTES):
        if at + index >= len(data):
            raise Malformed("message cut short")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & _64_BITS, at + index + 1
    raise Malformed("varint of more than ten bytes")
