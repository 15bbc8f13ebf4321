"""An invocation as a call of the functions protocol (design §13, "call on the functions socket").

    FUNCTION_PAYLOAD TX SECONDS "REGISTRATION timeout_ms=N attempt=N inv=BASE64URL len=BYTES" ACCESS SOURCE TYPE

The milliseconds are the deadline that counts; the whole seconds are there for readers of the plain protocol.
"""

import binascii

from kruntimes.functions.wire.commands import PAYLOAD, PAYLOAD_END
from kruntimes.functions.wire.events import Call
from kruntimes.functions.wire.fields import FieldError, quote
from kruntimes.functions.wire.limits import MIB, WireLimits

CALL_LIMITS = WireLimits(payload=MIB, body=MIB, meta=MIB, skip=64 * MIB)
"""On the functions socket. 64 KiB of outputs and as much of a log's tail have at most six times the bytes in JSON."""
NO_TYPE = "-"
"""Stands for a content type that the caller did not give; the protocol has no empty one."""
_ACCESS = "0x0"
_END = f"\n{PAYLOAD_END}\n".encode()
_RENEWED = ("timeout_ms=", "len=")
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")


def invocation_call(
    *, tx: str, registration: str, invocation_id: str, attempt: int, millis: int, payload: bytes, content_type: str
) -> Call:
    """The call that carries one invocation. millis: until its deadline."""
    return Call(
        uid=tx,
        timeout=max(1, -(-millis // 1000)),
        function=registration,
        args=(f"timeout_ms={millis}", f"attempt={attempt}", f"inv={_pack(invocation_id)}"),
        access=_ACCESS,
        source="",
        content_type=content_type or NO_TYPE,
        payload=payload,
    )


def invocation_frame(
    *, tx: str, registration: str, invocation_id: str, attempt: int, millis: int, payload: bytes, content_type: str
) -> bytes:
    """The bytes of `invocation_call`, without the value between. tx: a transaction id that the caller has made.

    Raises FieldError for a registration or content type that cannot stand in a line.
    """
    if not registration or " " in registration:
        raise FieldError("a blank in the registration")
    command = f"{registration} timeout_ms={millis} attempt={attempt} inv={_pack(invocation_id)} len={len(payload)}"
    return _frame(tx, millis, command, content_type or NO_TYPE, payload)


def forwarded_frame(call: Call, *, millis: int) -> bytes:
    """*call* as it goes on to whoever runs it, with *millis* left until its deadline: its payload is copied once.

    Raises FieldError for an argument or content type that cannot stand in a line; one that was read from a line can.
    """
    payload = call.payload or b""
    kept = " ".join([arg for arg in call.args if not arg.startswith(_RENEWED)])
    command = f"{call.function} timeout_ms={millis} {kept} len={len(payload)}"
    return _frame(call.uid, millis, command, call.content_type, payload)


def invocation_id_of(call: Call) -> str:
    """The caller's id of *call*; empty where it has none that can be read."""
    try:
        return binascii.a2b_base64((call.option("inv") or "").encode("ascii").translate(_FROM_URL)).decode()
    except ValueError:
        return ""


def type_of(call: Call) -> str:
    """The content type that the caller gave, or an empty text."""
    return "" if call.content_type == NO_TYPE else call.content_type


def _frame(tx: str, millis: int, command: str, content_type: str, payload: bytes) -> bytes:
    seconds = max(1, -(-millis // 1000))
    head = f'{PAYLOAD} {tx} {seconds} {quote(command)} {_ACCESS} "" {quote(content_type)}\n'
    return b"".join((head.encode(), payload, _END))


def _pack(text: str) -> str:
    return binascii.b2a_base64(text.encode(), newline=False).translate(_TO_URL).decode()
