"""Kubernetes' protobuf bodies, written by hand: what kubectl sends for the kinds that it creates typed.

`k8s\\0`, then an envelope (runtime.Unknown) with apiVersion and kind, and the object's bytes.
A message is a list of (field number, value): text, bytes, whole numbers, booleans, or another such list.
"""

from collections.abc import Sequence
from typing import TypeAlias

Value: TypeAlias = "str | bytes | int | bool | Message"
Message: TypeAlias = Sequence[tuple[int, Value]]


def varint(number: int) -> bytes:
    """A whole number, seven bits a byte."""
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    out = bytearray()
    for field, value in message:
        if isinstance(value, int):
            out += varint(field << 3) + varint(int(value))
            continue
        if isinstance(value, str):
            value = value.encode()
        elif not isinstance(value, bytes):
            value = encode(value)
        out += varint(field << 3 | 2) + varint(len(value)) + value
    return bytes(out)


def envelope(api_version: str, kind: str, message: Message) -> bytes:
    """The body of a request."""
    return b"k8s\0" + encode([(1, [(1, api_version), (2, kind)]), (2, encode(message)), (3, ""), (4, "")])


def meta(name: str, **labels: str) -> Message:
    """ObjectMeta: name 1, labels 11, and an empty creationTimestamp 8, as Go's clients send it."""
    return [(1, name), (8, []), *((11, [(1, key), (2, value)]) for key, value in labels.items())]
