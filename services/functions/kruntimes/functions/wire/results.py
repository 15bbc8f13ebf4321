"""The decoder of what the called side sends in LINK mode: results of declared length, and progress (design §13).

Only a process of ours, or a host that runs a user's code, writes this stream, so anything unexpected is a
Violation and ends it: a result that could be half another's must never be given to a caller.
"""

import re

from kruntimes.functions.wire.commands import PROGRESS, RESULT_BEGIN, RESULT_END
from kruntimes.functions.wire.events import Progress, Result, ResultEvent, Violation
from kruntimes.functions.wire.fields import UID, FieldError, number, split, valid_uid
from kruntimes.functions.wire.inbox import Inbox
from kruntimes.functions.wire.limits import LINK_LIMITS, MAX_TIMEOUT_DIGITS, WireLimits

_END = b"\n" + RESULT_END.encode() + b"\n"
_CODES = range(100, 600)
_NUMBER = rf"[0-9]{{1,{MAX_TIMEOUT_DIGITS}}}"
_USUAL = re.compile(
    rf"{RESULT_BEGIN} ({UID}) ([1-5][0-9][0-9]) ([^ \"']+|\"[^\"']+\") ({_NUMBER}) meta=({_NUMBER}) len=({_NUMBER})"
)
"""The head of a result as `encode` writes it: read at once, at a third of the cost."""

_Head = tuple[str, int, str, int, int, int]
"""Id, code, content type, expiry, and the lengths of the document and of the body."""


class ResultDecoder:
    """Takes bytes as they come, gives results and progress; after a Violation it stays silent."""

    def __init__(self, limits: WireLimits = LINK_LIMITS) -> None:
        self._limits = limits
        self._inbox = Inbox()
        self._head: _Head | None = None
        self._dead = False

    def feed(self, data: bytes) -> list[ResultEvent]:
        """Reads *data* and returns what it completed, in order."""
        if self._dead:
            return []
        self._inbox.push(data)
        events: list[ResultEvent] = []
        try:
            while (event := self._next()) is not None:
                events.append(event)
        except FieldError as error:
            self._dead = True
            self._inbox = Inbox()
            events.append(Violation(str(error)))
        return events

    def _next(self) -> ResultEvent | None:
        if self._head is None:
            line = self._inbox.line()
            if line is None:
                if len(self._inbox) > self._limits.line:
                    raise FieldError("a line is longer than the limit")
                return None
            if len(line) > self._limits.line:
                raise FieldError("a line is longer than the limit")
            if isinstance(head := self._line(line), Progress):
                return head
            self._head = head
        uid, code, content_type, expires, meta, body = self._head
        data = self._inbox.take(meta + body + len(_END))
        if data is None:
            return None
        if not data.endswith(_END):
            raise FieldError("a result does not end where its lengths say")
        self._head = None
        return Result(
            uid=uid,
            code=code,
            content_type=content_type,
            expires=expires,
            meta=data[:meta],
            body=data[meta : meta + body],
        )

    def _line(self, line: bytes) -> Progress | _Head:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise FieldError("a line is not UTF-8") from None
        if (usual := _USUAL.fullmatch(text)) is not None:
            uid, code, content_type, expires, meta, body = usual.groups()
            sizes = _bounded(int(meta), self._limits.meta), _bounded(int(body), self._limits.body)
            return uid, int(code), content_type.strip('"'), int(expires), *sizes
        match split(text):
            case [keyword, uid, done, total] if keyword == PROGRESS and valid_uid(uid):
                return Progress(uid=uid, done=number(done), total=number(total))
            case [keyword, uid, code, content_type, expires, meta, body] if keyword == RESULT_BEGIN and valid_uid(uid):
                head = uid, number(code), content_type, number(expires)
                sizes = _size(meta, "meta=", self._limits.meta), _size(body, "len=", self._limits.body)
                if head[1] not in _CODES:
                    raise FieldError("a result's code is not a status")
                return *head, *sizes
        raise FieldError("a line is neither a result nor progress")


def _size(field: str, prefix: str, limit: int) -> int:
    if not field.startswith(prefix):
        raise FieldError("a result without its lengths")
    return _bounded(number(field[len(prefix) :]), limit)


def _bounded(size: int, limit: int) -> int:
    if size > limit:
        raise FieldError("a result is longer than the limit")
    return size
