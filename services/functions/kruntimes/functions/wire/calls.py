"""The decoder of what a caller sends: bytes in, events out, in either mode.

It holds no clock, no socket and no opinion on who may call. How the input is cut never changes the events.
Memory is bounded by the limits: one line, one payload.

In STDIO mode, inside a payload (second source document, "Payload-mode control behavior"):

    FUNCTION_CANCEL of the payload's id    the frame is dropped, Cancel(before_admission=True)
    FUNCTION_CANCEL of another, PROGRESS   an event; the payload goes on
    QUIT                                   the frame is dropped, Quit
    FUNCTION_PAYLOAD_END                   the call
    FUNCTION or FUNCTION_… of any kind     the frame is dropped and its id answered 400; the line is read anew
    everything else                        body, byte by byte

Stricter than the document: body bytes are kept exactly (only the line end before the end line goes), an end
line is exact, what remains of a dropped frame is swallowed up to its end line and never read as commands.
In LINK mode the declared length decides, and the body is not looked at.
"""

from collections.abc import Callable
from typing import ClassVar

from kruntimes.functions.wire.commands import (
    CALL,
    CANCEL,
    PAYLOAD,
    PAYLOAD_END,
    PROGRESS,
    QUIT,
    CommandError,
    PayloadStart,
    parse,
    readable_uid,
)
from kruntimes.functions.wire.events import (
    Call,
    CallEvent,
    Cancel,
    Mode,
    Progress,
    Quit,
    Reason,
    Rejected,
    Violation,
)
from kruntimes.functions.wire.fields import FieldError, number
from kruntimes.functions.wire.inbox import Inbox
from kruntimes.functions.wire.limits import LINK_LIMITS, STDIO_LIMITS, WireLimits

_END_LINE = PAYLOAD_END.encode()
_LINK_END = b"\n" + _END_LINE + b"\n"
_LONG_LINE_HEAD = 1024
"""How much of a line that is too long is looked at, for whose it is."""
_CONTROL_START = (CALL.encode() + b"_", CALL.encode() + b" ")


class _State:
    """Plain numbers: an Enum member costs a hash in Python for each line that is read."""

    COMMAND, BODY, SWALLOW, DISCARD_LINE, COUNTED, SKIP, DEAD = range(7)


class CallDecoder:
    """Takes bytes as they come, gives the events that they complete.

    A decoder that said Violation stays silent. `eof()` is called once, when no byte will follow.
    """

    def __init__(self, mode: Mode, limits: WireLimits | None = None) -> None:
        self._mode = mode
        self._limits = limits or (LINK_LIMITS if mode is Mode.LINK else STDIO_LIMITS)
        self._inbox = Inbox()
        self._events: list[CallEvent] = []
        self._state = _State.COMMAND
        self._call: Call | None = None
        self._body = bytearray()
        self._too_large = False
        self._mid_line = False
        self._count = 0
        self._after_discard = _State.COMMAND

    def feed(self, data: bytes) -> list[CallEvent]:
        """Reads *data* and returns what it completed, in order."""
        if self._state is not _State.DEAD:
            self._inbox.push(data)
            while self._STEPS[self._state](self):
                pass
        events, self._events = self._events, []
        return events

    def eof(self) -> list[CallEvent]:
        """Ends the input: an unfinished call is answered 400, a last QUIT needs no line end (agents send none)."""
        rest = self._inbox.some(self._limits.line)
        state, self._state = self._state, _State.DEAD
        if self._call is not None:
            self._reject(
                Rejected(
                    uid=self._call.uid, code=400, reason=Reason.UNFINISHED, message="the input ended inside a payload"
                )
            )
        if state in (_State.COMMAND, _State.BODY, _State.SWALLOW) and not self._mid_line:
            text = rest.decode(errors="replace").strip(" \t\r")
            if text == QUIT:
                self._events.append(Quit())
            elif text and state is _State.COMMAND:
                self._reject(
                    Rejected(
                        uid=readable_uid(text, cut=True),
                        code=400,
                        reason=Reason.UNFINISHED,
                        message="the input ended inside a line",
                    )
                )
        events, self._events = self._events, []
        return events

    # --- outside a payload

    def _command(self) -> bool:
        line = self._inbox.line()
        if line is None:
            if len(self._inbox) <= self._limits.line:
                return False
            return self._long_line(self._inbox.some(self._limits.line), ended=False)
        if len(line) > self._limits.line:
            return self._long_line(line, ended=True)
        return self._run(line.removesuffix(b"\r"))

    def _run(self, line: bytes) -> bool:
        try:
            command = parse(line)
        except CommandError as error:
            if self._mode is Mode.LINK:
                return self._violate(error.rejected.message)
            self._reject(error.rejected)
            if error.payload:
                self._state = _State.SWALLOW
            return True
        if isinstance(command, PayloadStart):
            return self._counted(command.call) if self._mode is Mode.LINK else self._open(command.call)
        if command is not None:
            self._events.append(command)
        return True

    def _long_line(self, start: bytes, *, ended: bool) -> bool:
        if self._mode is Mode.LINK:
            return self._violate("a line is longer than the limit")
        # As much as is there in any case, so that it does not matter how the line arrived.
        text = start[: min(_LONG_LINE_HEAD, self._limits.line)].decode(errors="replace").lstrip(" \t")
        self._reject(
            Rejected(
                uid=readable_uid(text, cut=True),
                code=400,
                reason=Reason.LINE_TOO_LONG,
                message="a line is longer than the limit",
            )
        )
        after = _State.SWALLOW if text.startswith(PAYLOAD + " ") else _State.COMMAND
        self._after_discard = after
        self._state = after if ended else _State.DISCARD_LINE
        return True

    def _discard_line(self) -> bool:
        if self._inbox.line() is None:
            self._inbox.some(len(self._inbox))
            return False
        self._state = self._after_discard
        return True

    # --- a payload up to its end line

    def _open(self, call: Call) -> bool:
        self._call, self._state = call, _State.BODY
        self._body.clear()
        self._too_large = self._mid_line = False
        return True

    def _in_body(self) -> bool:
        line = self._inbox.line()
        if line is None:
            if len(self._inbox) <= self._limits.line:
                return False
            self._keep(self._inbox.some(self._limits.line))
            self._mid_line = True
            return True
        if self._mid_line or len(line) > self._limits.line or not self._control(line):
            self._mid_line = False
            self._keep(line + b"\n")
        return True

    def _control(self, line: bytes) -> bool:
        """Acts on a line at the start of which a command may stand; False: it is body."""
        bare = line.removesuffix(b"\r")
        if bare == _END_LINE:
            self._finish(b"\n" if len(line) == len(bare) else b"\r\n")
            return True
        line = bare
        if line == QUIT.encode():
            self._drop()
            self._state = _State.COMMAND
            self._events.append(Quit())
            return True
        if not line.startswith(_CONTROL_START) and line != CALL.encode():
            return False
        word = line.split(b" ", 1)[0].decode(errors="replace")
        if word in (CANCEL, PROGRESS):
            self._aside(line)
            return True
        if self._call is not None:
            self._reject(
                Rejected(
                    uid=self._call.uid,
                    code=400,
                    reason=Reason.PAYLOAD_ABANDONED,
                    message="another command came before the payload's end",
                )
            )
        self._drop()
        self._state = _State.SWALLOW
        try:
            command = parse(line)
        except CommandError as error:
            self._reject(error.rejected)
            return True
        if isinstance(command, PayloadStart):
            self._open(command.call)
        elif command is not None:
            self._state = _State.COMMAND
            self._events.append(command)
        return True

    def _aside(self, line: bytes) -> None:
        try:
            command = parse(line)
        except CommandError as error:
            self._reject(error.rejected)
            return
        if isinstance(command, Cancel) and self._call is not None and command.uid == self._call.uid:
            self._drop()
            self._state = _State.SWALLOW
            command = Cancel(uid=command.uid, before_admission=True)
        if isinstance(command, Cancel | Progress):
            self._events.append(command)

    def _keep(self, data: bytes) -> None:
        if self._call is None or self._too_large:
            return
        if len(self._body) + len(data) > self._limits.payload + 2:
            self._too_large = True
            self._body.clear()
            return
        self._body += data

    def _finish(self, line_end: bytes) -> None:
        call = self._call
        if call is not None:
            body = bytes(self._body).removesuffix(line_end)
            if self._too_large or len(body) > self._limits.payload:
                self._reject(_too_large(call.uid, self._limits.payload))
            else:
                self._events.append(_with_payload(call, body))
        self._drop()
        self._state = _State.COMMAND

    def _drop(self) -> None:
        self._call = None
        self._body.clear()
        self._too_large = self._mid_line = False

    # --- a payload of declared length

    def _counted(self, call: Call) -> bool:
        try:
            length = number(call.option("len") or "")
        except FieldError:
            return self._violate("a payload without a readable length")
        if length > self._limits.skip:
            return self._violate("a payload longer than can be skipped")
        self._count = length + len(_LINK_END)
        if length > self._limits.payload:
            self._reject(_too_large(call.uid, self._limits.payload))
            self._state = _State.SKIP
        else:
            self._call, self._state = call, _State.COUNTED
        return True

    def _take_counted(self) -> bool:
        if self._call is None or len(self._inbox) < self._count:
            return False
        payload = self._inbox.take(self._count - len(_LINK_END))
        if payload is None or self._inbox.take(len(_LINK_END)) != _LINK_END:
            return self._violate("a payload does not end where its length says")
        call = self._call
        self._call, self._state = None, _State.COMMAND
        self._events.append(_with_payload(call, payload))
        return True

    def _skip(self) -> bool:
        self._count -= len(self._inbox.some(self._count))
        if self._count:
            return False
        self._state = _State.COMMAND
        return True

    def _dead(self) -> bool:
        return False

    def _reject(self, rejected: Rejected) -> None:
        self._events.append(rejected)

    def _violate(self, message: str) -> bool:
        self._drop()
        self._inbox = Inbox()
        self._state = _State.DEAD
        self._events.append(Violation(message))
        return False

    _STEPS: ClassVar[tuple[Callable[["CallDecoder"], bool], ...]] = (
        _command,
        _in_body,
        _in_body,
        _discard_line,
        _take_counted,
        _skip,
        _dead,
    )


def _with_payload(call: Call, payload: bytes) -> Call:
    """*call*, completed; its payload is the last of its fields."""
    return Call(*call[:-1], payload)


def _too_large(uid: str, limit: int) -> Rejected:
    return Rejected(
        uid=uid, code=413, reason=Reason.PAYLOAD_TOO_LARGE, message=f"the payload is longer than {limit} bytes"
    )
