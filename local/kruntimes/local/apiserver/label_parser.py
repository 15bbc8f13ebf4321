"""Reads label selectors as `k8s.io/apimachinery/pkg/labels` does, with its messages. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kruntimes.local.apiserver.metadata import LABEL_VALUE_RULE, MAX_LABEL, key_faults, quoted
from kruntimes.local.apiserver.status import StatusError, bad_request

_TOKENS = re.compile(r"[ \t\r\n]*(==|!=|[=!<>(),]|[^ \t\r\n=!<>(),]+)")
_SYMBOLS = frozenset({"=", "==", "!=", "!", "<", ">", "(", ")", ","})
_OPERATORS = {"=": "=", "==": "=", "!=": "!=", "in": "in", "notin": "notin", ">": ">", "<": "<"}
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_INTEGER = re.compile(r"[-+]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Term:
    """One term: operator is one of = != in notin exists ! > <."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class _Fault(Exception):
    """What is wrong within one term."""


class _Tokens:
    """The text's tokens; behind the last one come empty ones."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKENS.findall(text)
        self._at = 0

    def next(self) -> str:
        """What comes, without taking it."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        """What comes."""
        token = self.next()
        self._at += 1
        return token


def _is_word(token: str) -> bool:
    return bool(token) and token not in _SYMBOLS


def parse(text: str) -> Sequence[Term]:
    """The terms of `a=b,c!=d,e in (f,g),!h`. Raises BadRequest."""
    return tuple(_terms(_Tokens(text)))


def _terms(tokens: _Tokens) -> Iterator[Term]:
    while True:
        begins = tokens.next()
        if not begins:
            return
        if not (_is_word(begins) or begins == "!"):
            raise _refused(f"found '{begins}', expected: !, identifier, or 'end of string'")
        try:
            yield _term(tokens)
        except _Fault as fault:
            raise _refused(f"unable to parse requirement: {fault}") from None
        after = tokens.take()
        if not after:
            return
        if after != ",":
            raise _refused(f"found '{after}', expected: ',' or 'end of string'")
        begins = tokens.next()
        if not (_is_word(begins) or begins == "!"):
            raise _refused(f"found '{begins}', expected: identifier after ','")


def _refused(message: str) -> StatusError:
    return bad_request(message)


def _term(tokens: _Tokens) -> Term:
    key = tokens.take()
    absent = key == "!"
    if absent:
        key = tokens.take()
    if not _is_word(key):
        raise _Fault(f"found '{key}', expected: identifier")
    if faults := key_faults(key):
        raise _Fault(f"<nil>: Invalid value: {quoted(key)}: {'; '.join(faults)}")
    if absent:
        return Term(key, "!")
    if tokens.next() in ("", ","):
        return Term(key, "exists")
    said = tokens.take()
    operator = _OPERATORS.get(said)
    if operator is None:
        raise _Fault(f"found '{said}', expected: in, notin, =, ==, !=, gt, lt")
    values = _listed(tokens) if operator in ("in", "notin") else (_exact(tokens),)
    for i, value in enumerate(values):
        if operator in ("<", ">"):
            if not _INTEGER.fullmatch(value):
                why = "for 'Gt', 'Lt' operators, the value must be an integer"
                raise _Fault(f"values[{i}]: Invalid value: {quoted(value)}: {why}")
        elif len(value) > MAX_LABEL or not _VALUE.fullmatch(value):
            why = LABEL_VALUE_RULE if not _VALUE.fullmatch(value) else f"must be no more than {MAX_LABEL} characters"
            raise _Fault(f"values[{i}][{key}]: Invalid value: {quoted(value)}: {why}")
    return Term(key, operator, values)


def _exact(tokens: _Tokens) -> str:
    if tokens.next() in ("", ","):
        return ""
    value = tokens.take()
    if not _is_word(value):
        raise _Fault(f"found '{value}', expected: identifier")
    return value


def _listed(tokens: _Tokens) -> tuple[str, ...]:
    """The values in parentheses; two commas, or one beside a parenthesis, hold an empty value between them."""
    begins = tokens.take()
    if begins != "(":
        raise _Fault(f"found '{begins}' expected: '('")
    if tokens.next() == ")":
        tokens.take()
        return ("",)
    if not _is_word(tokens.next()) and tokens.next() != ",":
        raise _Fault(f"found '{tokens.next()}', expected: ',', ')' or identifier")
    values: list[str] = []
    while True:
        item = tokens.take()
        if _is_word(item):
            values.append(item)
            if tokens.next() == ")":
                break
            if tokens.next() != ",":
                raise _Fault(f"found '{tokens.next()}', expected: ',' or ')'")
        elif item == ",":
            if not values:
                values.append("")
            if tokens.next() == ")":
                values.append("")
                break
            if tokens.next() == ",":
                tokens.take()
                values.append("")
        else:
            raise _Fault(f"found '{item}', expected: ',', or identifier")
    tokens.take()
    return tuple(values)
