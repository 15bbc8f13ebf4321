"""How an invocation is said in a call of the functions protocol, and read from it (design §13)."""

import base64
import binascii

from kruntimes.common import clock
from kruntimes.functions.wire.events import Call
from kruntimes.runtime.host.context import Context


def invocation_call(
    *, tx: str, registration: str, invocation_id: str, attempt: int, millis: int, payload: bytes, content_type: str
) -> Call:
    """The call that carries one invocation. millis: until its deadline, which is what counts."""
    return Call(
        uid=tx,
        timeout=max(1, -(-millis // 1000)),
        function=registration,
        args=(f"timeout_ms={millis}", f"attempt={attempt}", f"inv={_pack(invocation_id)}"),
        access="0x0",
        source="",
        content_type=content_type or NO_TYPE,
        payload=payload,
    )


NO_TYPE = "-"
"""Stands for a content type that the caller did not give; the protocol has no empty one."""


def context_of(call: Call, *, attempt: int) -> Context:
    """The handler's view of *call*."""
    millis = int(call.option("timeout_ms") or 0)
    return Context(
        invocation_id=_unpack(call.option("inv") or ""),
        attempt=attempt,
        content_type=type_of(call),
        deadline=clock.monotonic() + millis / 1000,
    )


def type_of(call: Call) -> str:
    """The content type that the caller gave, or an empty text."""
    return "" if call.content_type == NO_TYPE else call.content_type


def _pack(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def _unpack(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text).decode()
    except (binascii.Error, ValueError):
        return ""
