"""An expression's text as tokens. Pure. Grammar: the CEL language definition."""

import math
import re
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.cel.errors import CompileError

RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
MAX_SOURCE = 100_000
"""Characters of an expression."""

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*)
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<hex>0x[0-9a-fA-F]+[uU]?)
  | (?P<int>[0-9]+[uU]?)
  | (?P<text>(?:[bB][rR]?|[rR][bB]?)?(?:\"{3}|'{3}|\"|'))
  | (?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
  | (?P<quoted>`[a-zA-Z0-9_.\-/ ]+`)
  | (?P<op>\[\?|\.\?|==|!=|<=|>=|&&|\|\||[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"',
    "`": "`", "?": "?",
}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"`?])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|)"
)
INT_LIMIT, UINT_LIMIT = 1 << 63, 1 << 64


@dataclass(frozen=True, slots=True)
class Token:
    """kind: name, quoted, op, int, uint, double, string, bytes or end. value: what a literal stands for."""

    kind: str
    text: str
    position: int
    value: Any = None


def tokens(source: str) -> list[Token]:
    """All tokens, with one of kind `end` last. Raises CompileError."""
    if len(source) > MAX_SOURCE:
        raise CompileError(f"expression code point size exceeds limit: size: {len(source)}, limit {MAX_SOURCE}", "", 0)
    found: list[Token] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise CompileError(f"Syntax error: token recognition error at: '{source[at]}'", source, at)
        kind, text = match.lastgroup, match[0]
        start, at = at, match.end()
        if kind == "text":
            token, at = _string(source, start, text)
            found.append(token)
        elif kind in ("int", "hex"):
            found.append(_whole(source, start, text))
        elif kind == "float":
            if math.isinf(float(text)):
                raise CompileError("invalid double literal", source, start)
            found.append(Token("double", text, start, float(text)))
        elif kind != "space":
            found.append(Token(str(kind), text, start))
    found.append(Token("end", "<EOF>", len(source)))
    return found


def _whole(source: str, start: int, text: str) -> Token:
    unsigned = text[-1] in "uU"
    digits = text[:-1] if unsigned else text
    value = int(digits, 16) if digits.startswith("0x") else int(digits)
    # The smallest int is written with a minus before a number that is one too large; the parser looks at that.
    if value >= UINT_LIMIT or (not unsigned and value > INT_LIMIT):
        raise CompileError(f"invalid {'uint' if unsigned else 'int'} literal", source, start)
    return Token("uint" if unsigned else "int", text, start, value)


def _string(source: str, start: int, opening: str) -> tuple[Token, int]:
    prefix = opening.rstrip("\"'").lower()
    mark = opening[len(prefix) :]
    raw, binary = "r" in prefix, "b" in prefix
    at = start + len(opening)
    while not source.startswith(mark, at):
        if at >= len(source) or (len(mark) == 1 and source[at] in "\r\n"):
            raise CompileError(f"Syntax error: token recognition error at: '{source[start:at]}'", source, start)
        at += 2 if source[at] == "\\" and not raw else 1
    body = source[start + len(opening) : at]
    end = at + len(mark)
    if binary:
        return Token("bytes", source[start:end], start, _bytes(body, raw, source, start)), end
    if not raw:
        body = _ESCAPE.sub(lambda m: _char(m, source, start), body)
    return Token("string", source[start:end], start, body), end


def _char(match: re.Match[str], source: str, start: int) -> str:
    simple, *codes, octal = match.groups()
    if simple is not None:
        return _SIMPLE[simple]
    digits = next((code for code in codes if code is not None), None)
    code = int(digits, 16) if digits is not None else int(octal, 8) if octal is not None else -1
    if code < 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise CompileError("unable to unescape string", source, start)
    return chr(code)


def _bytes(body: str, raw: bool, source: str, start: int) -> bytes:
    if raw:
        return body.encode()
    made = bytearray()
    at = 0
    for match in _ESCAPE.finditer(body):
        made += body[at : match.start()].encode()
        # Here \x and octal escapes are bytes, and not code points.
        if match[3] is not None or match[4] is not None:
            raise CompileError("unable to unescape string", source, start)
        made += bytes([ord(_char(match, source, start))])
        at = match.end()
    return bytes(made + body[at:].encode())
