"""Fields of a command line: taking them apart and putting them together.

A field is bare, or quoted with double or single quotes; the quote doubled inside stands for itself, and a
backslash is an ordinary character. Runs of blanks separate; nothing else does.
Source: second source document, and the facts about its senders: `"` in a command arrives as `'`.
"""

import re

from kruntimes.functions.wire.limits import MAX_TIMEOUT_DIGITS, MAX_UID_BYTES

UID = rf"[!#-&(-<>-\[\]-_a-~]{{1,{MAX_UID_BYTES}}}"
"""The form of a transaction id, as a pattern."""
_UID = re.compile(UID)
_NUMBER = re.compile(rf"[0-9]{{1,{MAX_TIMEOUT_DIGITS}}}")
_BARE = re.compile(r"[!#-&(-<>-~\u00a1-\U0010ffff]+")
"""What needs no quotes: agents take a bare `=` for the end of a word."""


class FieldError(ValueError):
    """A command line cannot be taken apart; the message says why, without the line itself."""


def split(text: str) -> list[str]:
    """The fields of *text*. Raises FieldError for a quote that is open, inside a bare field, or followed by text."""
    if "'" not in text and (usual := _usual(text)) is not None:
        return usual
    return _any(text)


def _any(text: str) -> list[str]:
    fields: list[str] = []
    at, end = 0, len(text)
    while at < end:
        char = text[at]
        if char == " ":
            at += 1
        elif char in "\"'":
            value, at = _quoted(text, at)
            fields.append(value)
        else:
            stop = text.find(" ", at)
            stop = end if stop < 0 else stop
            value = text[at:stop]
            if '"' in value:
                raise FieldError("a quote inside a bare field")
            fields.append(value)
            at = stop
    return fields


def _usual(text: str) -> list[str] | None:
    """The fields of a line without single or doubled quotes, at a third of the cost; None for any other."""
    parts = text.split('"')
    last = len(parts) - 1
    if last % 2:
        return None
    fields: list[str] = []
    for number, part in enumerate(parts):
        if number % 2:
            fields.append(part)
            continue
        if (number > 0 and part[:1] not in " ") or (number < last and part[-1:] not in " "):
            return None
        if not part and 0 < number < last:
            return None
        fields += [field for field in part.split(" ") if field]
    return fields


def _quoted(text: str, at: int) -> tuple[str, int]:
    quote = text[at]
    parts: list[str] = []
    start = at + 1
    while True:
        close = text.find(quote, start)
        if close < 0:
            raise FieldError("a quote is not closed")
        parts.append(text[start:close])
        after = close + 1
        if after < len(text) and text[after] == quote:
            parts.append(quote)
            start = after + 1
            continue
        if after < len(text) and text[after] != " ":
            raise FieldError("text follows a closing quote")
        return "".join(parts), after


def quote(text: str) -> str:
    """*text* as one field, bare where that is possible. Raises FieldError for a line end or a NUL."""
    if _BARE.fullmatch(text):
        return text
    if "\n" in text or "\r" in text or "\0" in text:
        raise FieldError("a line end or NUL in a field")
    return '"' + text.replace('"', '""') + '"'


def valid_uid(uid: str) -> bool:
    """Whether *uid* can stand bare in every frame: visible ASCII, 1 to 128 bytes, no quote, backslash or `=`."""
    return _UID.fullmatch(uid) is not None


def number(text: str) -> int:
    """Reads a whole number ≥0. Raises FieldError; `int` alone takes signs, `1_0`, blanks and foreign digits."""
    if _NUMBER.fullmatch(text) is None:
        raise FieldError("not a whole number")
    return int(text)
