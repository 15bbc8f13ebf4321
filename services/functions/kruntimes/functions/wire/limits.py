"""The bounds of the functions protocol, each with its reason (second source document; design §7 and §13)."""

from dataclasses import dataclass

MAX_UID_BYTES = 128
"""A transaction id is repeated in every frame and kept for a minute as a tombstone; 128 bytes hold any UUID form."""

MAX_TIMEOUT_DIGITS = 12
"""More digits cannot be a number of seconds that anyone means, and `int` of a long text is slow."""

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """What one decoder holds at most, in bytes.

    line: a line outside a payload; the protocol's first implementation reads no longer ones either.
    payload: one call's body. meta: the document beside a result. body: one result's body.
    skip: the longest declared length that is read and dropped so that the stream can go on behind it; a
    frame that claims more ends the stream.
    """

    line: int = 64 * 1024
    payload: int = 20 * MIB
    meta: int = 256 * 1024
    body: int = 100 * MIB
    skip: int = 256 * MIB


STDIO_LIMITS = WireLimits()
"""Between an agent and a plugin: the sizes that agents use."""

LINK_LIMITS = WireLimits(payload=MIB, body=MIB, skip=64 * MIB)
"""Between processes of ours: an invocation's body and answer are at most 1 MiB (design §6)."""
