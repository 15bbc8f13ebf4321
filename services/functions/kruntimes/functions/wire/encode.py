"""Events as bytes. What one encoder writes, the decoder of the same mode reads back as the same value.

Source: second source document; design §13, "call on the functions socket".
"""

import re

from kruntimes.functions.wire.commands import (
    CALL,
    CANCEL,
    PAYLOAD,
    PAYLOAD_END,
    PROGRESS,
    QUIT,
    RESULT_BEGIN,
    RESULT_END,
)
from kruntimes.functions.wire.events import Call, Mode, Result
from kruntimes.functions.wire.fields import FieldError, quote, valid_uid

_CONTROL_LINE = re.compile(rb"^(?:QUIT\r?|FUNCTION(?:[_ ][^\n]*)?\r?)$", re.MULTILINE)
_RESULT_END_LINE = re.compile(rb"^[ \t]*FUNCTION_RESULT_END\b", re.MULTILINE)


class NotEncodable(ValueError):
    """The value cannot be said in this mode without changing its meaning."""


def encode_call(call: Call, mode: Mode) -> bytes:
    """One call as a frame.

    LINK: any payload, with its length. STDIO: raises NotEncodable where a line of the payload would be taken
    for a command. Both: raises NotEncodable for an id or field that cannot stand in a line.
    """
    payload = call.payload
    if mode is Mode.LINK:
        payload = payload or b""
        args = (*(arg for arg in call.args if not arg.startswith("len=")), f"len={len(payload)}")
    else:
        args = call.args
        if payload is not None and _CONTROL_LINE.search(payload):
            raise NotEncodable("a line of the payload reads as a command")
    if any(not part or " " in part for part in (call.function, *args)):
        raise NotEncodable("a blank in the function's name or an argument")
    try:
        _check_uid(call.uid)
        head = (
            f"{CALL if payload is None else PAYLOAD} {call.uid} {call.timeout} "
            f"{quote(' '.join((call.function, *args)))} {quote(call.access)} {quote(call.source)}"
        )
        if payload is None:
            return f"{head} {quote(call.content_type)}\n".encode() if call.content_type else f"{head}\n".encode()
        head = f"{head} {quote(call.content_type or 'application/octet-stream')}\n"
    except FieldError as error:
        raise NotEncodable(str(error)) from None
    if mode is Mode.STDIO and not payload:
        return f"{head}{PAYLOAD_END}\n".encode()
    return b"".join((head.encode(), payload, b"\n", PAYLOAD_END.encode(), b"\n"))


def encode_cancel(uid: str) -> bytes:
    """The line that cancels *uid*."""
    _check_uid(uid)
    return f"{CANCEL} {uid}\n".encode()


def encode_progress(uid: str, *, done: int, total: int) -> bytes:
    """The line that reports progress of *uid*; both numbers ≥0."""
    _check_uid(uid)
    return f"{PROGRESS} {uid} {done} {total}\n".encode()


def encode_quit() -> bytes:
    """The line that asks for an orderly end."""
    return f"{QUIT}\n".encode()


def encode_result(result: Result, mode: Mode) -> bytes:
    """One result as a frame. STDIO: without meta; raises NotEncodable where the body holds an end line."""
    try:
        _check_uid(result.uid)
        head = f"{RESULT_BEGIN} {result.uid} {result.code} {quote(result.content_type)} {result.expires}"
    except FieldError as error:
        raise NotEncodable(str(error)) from None
    end = f"{RESULT_END}\n".encode()
    if mode is Mode.LINK:
        sizes = f" meta={len(result.meta)} len={len(result.body)}\n"
        return b"".join((head.encode(), sizes.encode(), result.meta, result.body, b"\n", end))
    if '"' in result.content_type or "\\" in result.content_type:
        raise NotEncodable("agents cannot read a quote or backslash in a content type")
    if _RESULT_END_LINE.search(result.body):
        raise NotEncodable("a line of the body reads as the result's end")
    body = result.body + b"\n" if result.body else b""
    return b"".join((head.encode(), b"\n", body, end, b"\n"))


def _check_uid(uid: str) -> None:
    if not valid_uid(uid):
        raise NotEncodable("the transaction id is not of the form")
