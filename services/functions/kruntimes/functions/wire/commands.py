"""Command lines: one line in, one event out, or the start of a payload (second source document; design §13)."""

import re

from kruntimes.functions.wire.events import Call, Cancel, Progress, Quit, Reason, Rejected
from kruntimes.functions.wire.fields import UID, FieldError, number, split, valid_uid
from kruntimes.functions.wire.limits import MAX_TIMEOUT_DIGITS

CALL = "FUNCTION"
PAYLOAD = "FUNCTION_PAYLOAD"
PAYLOAD_END = "FUNCTION_PAYLOAD_END"
CANCEL = "FUNCTION_CANCEL"
PROGRESS = "FUNCTION_PROGRESS"
QUIT = "QUIT"
RESULT_BEGIN = "FUNCTION_RESULT_BEGIN"
RESULT_END = "FUNCTION_RESULT_END"

_CALL_FIELDS = (6, 7)
"""Keyword, id, time-out, command, access, source, and the content type, which a sender may leave out."""
_DEFAULT_CONTENT_TYPE = "application/octet-stream"


_USUAL = re.compile(
    rf"{PAYLOAD} ({UID}) ([0-9]{{1,{MAX_TIMEOUT_DIGITS}}}) \"([^\"']*)\" ([^ \"']+) (\"\"|[^ \"']+) ([^ \t\"']+)"
)
"""The line of an invocation as `encode` writes it: read at once, at half the cost."""


class PayloadStart:
    """The head of a payload call: the call so far, whose body follows."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call = call


Command = Call | Cancel | Progress | Quit | PayloadStart


class CommandError(Exception):
    """A line that is no command, as the event that answers it; payload: a body is going to follow it."""

    def __init__(self, rejected: Rejected, *, payload: bool = False) -> None:
        super().__init__(rejected.message)
        self.rejected = rejected
        self.payload = payload


def parse(line: bytes) -> Command | None:
    """Reads one line without its line end; a blank one is None. Raises CommandError."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise _error(line.decode(errors="replace"), "the line is not UTF-8") from None
    if (usual := _USUAL.fullmatch(text)) is not None:
        return _usual(*usual.groups())
    return _any(text.strip(" \t"))


def _usual(uid: str, timeout: str, command: str, access: str, source: str, content_type: str) -> Command | None:
    function, *args = [part for part in command.split(" ") if part] or [""]
    if not function:
        return _any(f'{PAYLOAD} {uid} {timeout} "{command}" {access} {source} {content_type}')
    return PayloadStart(
        Call(
            uid=uid,
            timeout=int(timeout),
            function=function,
            args=tuple(args),
            access=access,
            source="" if source == '""' else source,
            content_type=content_type,
        )
    )


def _any(text: str) -> Command | None:
    if not text:
        return None
    keyword, _, rest = text.partition(" ")
    if keyword in (CALL, PAYLOAD):
        return _call(text, keyword, rest)
    if keyword == CANCEL:
        return Cancel(uid=_only_uid(text, rest))
    if keyword == PROGRESS:
        return _progress(text, rest)
    if text == QUIT:
        return Quit()
    raise CommandError(Rejected(uid=None, code=400, reason=Reason.UNKNOWN_COMMAND, message="the line is not a command"))


def _call(text: str, keyword: str, rest: str) -> Call | PayloadStart:
    try:
        fields = split(rest)
        if len(fields) + 1 not in _CALL_FIELDS:
            raise FieldError(f"{len(fields) + 1} fields, not 6 or 7")
        uid, timeout, command, access, source = fields[:5]
        if not valid_uid(uid):
            raise FieldError("the transaction id is not of the form")
        function, *args = [part for part in command.split(" ") if part] or [""]
        if not function:
            raise FieldError("the function has no name")
        call = Call(
            uid=uid,
            timeout=number(timeout),
            function=function,
            args=tuple(args),
            access=access,
            source=source,
            content_type=fields[5] if len(fields) > 5 else "",
        )
    except FieldError as error:
        raise _error(text, str(error), payload=keyword == PAYLOAD) from None
    if keyword == CALL:
        return call
    return PayloadStart(call if call.content_type else call._replace(content_type=_DEFAULT_CONTENT_TYPE))


def _only_uid(text: str, rest: str) -> str:
    try:
        fields = split(rest)
    except FieldError as error:
        raise _error("", str(error)) from None
    if len(fields) != 1 or not valid_uid(fields[0]):
        raise _error("", "a cancellation names exactly one transaction id")
    return fields[0]


def _progress(text: str, rest: str) -> Progress:
    try:
        fields = split(rest)
        if not fields or not valid_uid(fields[0]):
            raise FieldError("a progress line names a transaction id")
        if len(fields) == 3:
            return Progress(uid=fields[0], done=number(fields[1]), total=number(fields[2]))
    except FieldError as error:
        raise _error("", str(error)) from None
    return Progress(uid=fields[0])


def readable_uid(text: str, *, cut: bool = False) -> str | None:
    """The second word of a call line that is otherwise unreadable, where it is an id that can be answered.

    cut: *text* may end inside a word, and half an id is none.
    """
    words = text.split(" ", 2)
    if len(words) < (3 if cut else 2) or words[0] not in (CALL, PAYLOAD):
        return None
    return words[1] if valid_uid(words[1]) else None


def _error(text: str, message: str, *, payload: bool = False) -> CommandError:
    payload = payload or text.startswith(PAYLOAD + " ")
    rejected = Rejected(uid=readable_uid(text), code=400, reason=Reason.MALFORMED, message=message)
    return CommandError(rejected, payload=payload)
