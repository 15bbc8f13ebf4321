"""Bounds that hosts and server share: outputs, answers, errors (design §4, §6, §13)."""

from collections.abc import Mapping
from typing import Any

MAX_INPUT_BYTES = 1024 * 1024
MAX_OUTPUT_BYTES = 1024 * 1024
MAX_OUTPUTS = 64
MAX_OUTPUT_KEY_BYTES = 128
MAX_OUTPUT_VALUE_BYTES = 8 * 1024
MAX_OUTPUTS_BYTES = 64 * 1024
MAX_TYPE_CHARS = 200
MAX_MESSAGE_BYTES = 1024
MAX_TRACEBACK_BYTES = 2560
"""With type, message and framing this keeps a whole gRPC status under 6 KiB, also in base64."""
MAX_FATAL_ERROR_BYTES = 4 * 1024


class OutputsError(ValueError):
    """An invocation's outputs pass a bound, or are not text; the message names the key."""


def check_outputs(outputs: Mapping[Any, object]) -> dict[str, str]:
    """*outputs* as text by text. Raises OutputsError."""
    if len(outputs) > MAX_OUTPUTS:
        raise OutputsError(f"{len(outputs)} outputs, at most {MAX_OUTPUTS} are kept")
    checked: dict[str, str] = {}
    total = 0
    for key, value in outputs.items():
        name = repr(key)[:80]
        if not isinstance(key, str) or not isinstance(value, str):
            raise OutputsError(f"output {name} is not text by text")
        try:
            key_bytes, value_bytes = len(key.encode()), len(value.encode())
        except UnicodeEncodeError:
            raise OutputsError(f"output {name} holds a lone surrogate") from None
        if not 0 < key_bytes <= MAX_OUTPUT_KEY_BYTES:
            raise OutputsError(f"the name of output {name} must have 1 to {MAX_OUTPUT_KEY_BYTES} bytes")
        if value_bytes > MAX_OUTPUT_VALUE_BYTES:
            raise OutputsError(f"output {name} has {value_bytes} bytes, at most {MAX_OUTPUT_VALUE_BYTES} are kept")
        total += key_bytes + value_bytes
        checked[str(key)] = str(value)
    if total > MAX_OUTPUTS_BYTES:
        raise OutputsError(f"the outputs have {total} bytes, at most {MAX_OUTPUTS_BYTES} are kept")
    return checked


def parse_outputs(data: bytes) -> dict[str, str]:
    """The `name=value` lines of $KR_OUTPUTS; the last of a name wins. Raises OutputsError."""
    outputs: dict[str, str] = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        if not line:
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise OutputsError(f"the line {line[:80]!r} in $KR_OUTPUTS is not of the form name=value")
        outputs[name] = value
    return check_outputs(outputs)


def head(text: str, size: int) -> str:
    """The first *size* bytes of *text* in UTF-8, with a mark where something was cut."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= size:
        return raw.decode()
    return raw[: size - 3].decode("utf-8", "ignore") + "…"


def tail(text: str, size: int) -> str:
    """The last *size* bytes of *text* in UTF-8, with a mark where something was cut."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= size:
        return raw.decode()
    return "…" + raw[-(size - 3) :].decode("utf-8", "ignore")
