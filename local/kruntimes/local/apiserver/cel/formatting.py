"""`'%s of %d'.format([…])`. Pure."""

import re
from typing import Any

from kruntimes.local.apiserver.cel.errors import EvaluationError
from kruntimes.local.apiserver.cel.times import Duration, Timestamp, timestamp_text
from kruntimes.local.apiserver.cel.values import LISTS, MAPS, TypeValue, type_name
from kruntimes.local.apiserver.durations import duration_text
from kruntimes.local.apiserver.values import number

_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]+))?(.?))", re.DOTALL)
MAX_PRECISION = 1000
DEFAULT_PRECISION = 6


def formatted(template: str, args: Any) -> str:
    """*template* with its clauses replaced. Raises EvaluationError."""
    values = iter(args)

    def clause(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        precision, verb = match.groups()
        if precision is not None and (len(precision) > 4 or int(precision) > MAX_PRECISION):
            raise EvaluationError("could not parse formatting clause: precision is too large")
        try:
            value = next(values)
        except StopIteration:
            raise EvaluationError("index out of range: not enough arguments to format") from None
        return _written(verb, value, int(precision) if precision is not None else DEFAULT_PRECISION)

    return _CLAUSE.sub(clause, template)


def _written(verb: str, value: Any, precision: int) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    match verb:
        case "s":
            return text_of(value)
        case "d" if whole:
            return str(int(value))
        case "f" if whole or isinstance(value, float):
            return f"{value:.{precision}f}"
        case "e" if whole or isinstance(value, float):
            return f"{value:.{precision}e}"
        case "b" if isinstance(value, int):
            return f"{int(value):b}"
        case "o" if whole:
            return f"{int(value):o}"
        case "x" | "X" if whole or isinstance(value, str | bytes):
            hexed = value.hex() if isinstance(value, bytes) else None
            hexed = value.encode().hex() if isinstance(value, str) else hexed
            text = hexed if hexed is not None else f"{int(value):x}"
            return text.upper() if verb == "X" else text
        case "d" | "f" | "e" | "b" | "o" | "x" | "X":
            raise EvaluationError(f"error during formatting: %{verb} does not take a {type_name(value)}")
    raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')


def text_of(value: Any) -> str:
    """A value as `%s` writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number(value)
        case str():
            return value
        case bytes():
            return value.decode(errors="replace")
        case None:
            return "null"
        case Duration():
            return duration_text(value.ns)
        case Timestamp():
            return timestamp_text(value)
        case TypeValue():
            return value.name
    if isinstance(value, LISTS):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, MAPS):
        return "{" + ", ".join(f"{k}: {v}" for k, v in sorted((text_of(k), text_of(value[k])) for k in value)) + "}"
    raise EvaluationError(f"error during formatting: string clause can not be used on a {type_name(value)}")
