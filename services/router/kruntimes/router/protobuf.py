"""The protobuf wire format, as far as the router writes it: varints and length-delimited fields.

Why by hand: a route entry is encoded once per change of a Run and a request is decoded once per push. The
same messages as betterproto2 objects cost 80 to 140 times the CPU, and importing them costs this process
0.4 s before it can serve. The tests decode everything that is written here with envoy-data-plane.
"""

from kruntimes.common.protobuf import DELIMITED, VARINT


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


_TAGS = tuple(varint(field << 3 | DELIMITED) for field in range(64))
"""The tags of delimited fields: no message of Envoy that is written here has a larger field number."""


def number(field: int, value: int) -> bytes:
    """An integer, bool or enum field; zero is what absence means, so it is left out."""
    return varint(field << 3 | VARINT) + varint(value) if value else b""


def message(field: int, *parts: bytes) -> bytes:
    """A sub-message or bytes field made of *parts*; written even when empty, since presence may carry meaning."""
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    return _TAGS[field] + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A string field in UTF-8."""
    return message(field, value.encode())
