"""`'%s of %d'.format([…])`: what it writes, and which templates and arguments can never be right. Pure."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from kruntimes.local.apiserver.cel import types
from kruntimes.local.apiserver.cel.errors import EvaluationError
from kruntimes.local.apiserver.cel.times import Duration, Timestamp, timestamp_text
from kruntimes.local.apiserver.cel.types import ObjectType, Type
from kruntimes.local.apiserver.cel.values import LISTS, MAPS, TypeValue, type_name
from kruntimes.local.apiserver.durations import duration_text
from kruntimes.local.apiserver.values import number

_CLAUSE = re.compile(r"%(?:(%)|(?:\.([0-9]+))?(.)?)", re.DOTALL)
MAX_PRECISION = 1000
DEFAULT_PRECISION = 6
_SUPERSCRIPT = str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_WHOLE = (types.INT, types.UINT)
_TAKES: dict[str, tuple[str, tuple[Type, ...]]] = {
    # verb: what a refusal calls it and says that it takes, and the types
    "d": ("decimal clause can only be used on integers", _WHOLE),
    "f": ("fixed-point clause can only be used on doubles", (types.DOUBLE,)),
    "e": ("scientific clause can only be used on doubles", (types.DOUBLE,)),
    "b": ("only integers and bools can be formatted as binary", (*_WHOLE, types.BOOL)),
    "o": ("octal clause can only be used on integers", _WHOLE),
    "x": ("only integers, byte buffers, and strings can be formatted as hex", (*_WHOLE, types.STRING, types.BYTES)),
}
_TAKES["X"] = _TAKES["x"]
_ANY = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps"
)


def _clauses(template: str) -> Iterator[tuple[str, int, int, int]]:
    """(verb, precision, begin, end) of each clause; `%` for a percent sign. Raises EvaluationError."""
    for match in _CLAUSE.finditer(template):
        percent, digits, verb = match.groups()
        if percent:
            yield "%", 0, match.start(), match.end()
            continue
        if verb is None:
            raise EvaluationError("unexpected end of string")
        if digits is not None and (len(digits) > 4 or int(digits) > MAX_PRECISION):
            raise EvaluationError(f"could not parse formatting clause: precision must be at most {MAX_PRECISION}")
        if verb not in _TAKES and verb != "s":
            said = f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
            raise EvaluationError(said)
        yield verb, DEFAULT_PRECISION if digits is None else int(digits), match.start(), match.end()


def refusal(template: str, args: Sequence[Type]) -> tuple[str, int | None] | None:
    """Why a template with arguments of these types can never be right, and at which argument (None: at none)."""
    try:
        verbs = [verb for verb, *_ in _clauses(template) if verb != "%"]
    except EvaluationError as bad:
        return str(bad), None
    for i, verb in enumerate(verbs):
        if i >= len(args):
            return f"index {i} out of range", None
        found = args[i]
        said, wanted = _TAKES.get(verb, (_ANY, ()))
        wrong = isinstance(found, ObjectType) if verb == "s" else found != types.DYN and found not in wanted
        if wrong:
            return f"error during formatting: {said}, was given {found}", i
    if len(args) > len(verbs):
        return f"too many arguments supplied to string.format (expected {len(verbs)}, got {len(args)})", None
    return None


def formatted(template: str, args: Any) -> str:
    """*template* with its clauses replaced. Raises EvaluationError."""
    values = list(args)
    made, at, i = "", 0, 0
    for verb, precision, begin, end in _clauses(template):
        made += template[at:begin]
        at = end
        if verb == "%":
            made += "%"
            continue
        if i >= len(values):
            raise EvaluationError(f"index {i} out of range")
        made += _written(verb, values[i], precision)
        i += 1
    return made + template[at:]


def _written(verb: str, value: Any, precision: int) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    match verb:
        case "s":
            return text_of(value)
        case "d" if whole:
            return str(int(value))
        case "f" if isinstance(value, float):
            return f"{value:,.{precision}f}" if math.isfinite(value) else number(value)
        case "e" if isinstance(value, float):
            if not math.isfinite(value):
                return number(value)
            digits, _, exponent = f"{value:.{precision}e}".partition("e")
            return f"{digits}×10{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"
        case "b" if isinstance(value, int):
            return f"{int(value):b}"
        case "o" if whole:
            return f"{int(value):o}"
        case "x" | "X" if whole or isinstance(value, str | bytes):
            raw = value.encode() if isinstance(value, str) else value
            text = raw.hex() if isinstance(raw, bytes) else f"{int(value):x}"
            return text.upper() if verb == "X" else text
    raise EvaluationError(f"error during formatting: {_TAKES[verb][0]}, was given {type_name(value)}")


def text_of(value: Any) -> str:
    """A value as `%s` writes it."""
    match value:
        case str():
            return value
        case float():
            return number(value)
        case bytes():
            return value.decode(errors="replace")
        case Duration():
            return duration_text(value.ns)
        case Timestamp():
            return timestamp_text(value)
    return _within(value)


def _within(value: Any) -> str:
    """A value within a list or a map: told apart from others by its form."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return f"{value:.6f}" if math.isfinite(value) else number(value)
        case str():
            return f'"{value}"'
        case bytes():
            return f'b"{value.decode(errors="replace")}"'
        case None:
            return "null"
        case Duration():
            return f'duration("{duration_text(value.ns)}")'
        case Timestamp():
            return f'timestamp("{timestamp_text(value)}")'
        case TypeValue():
            return value.name
    if isinstance(value, LISTS):
        return f"[{', '.join(map(_within, value))}]"
    if isinstance(value, MAPS):
        return "{" + ", ".join(f"{k}:{v}" for k, v in sorted((_within(k), _within(value[k])) for k in value)) + "}"
    raise EvaluationError(f"error during formatting: {_ANY}, was given {type_name(value)}")
