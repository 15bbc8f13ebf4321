"""The envelope that a caller may ask for instead of the bare output (design §6)."""

import base64
import re
from typing import Any

import msgspec

from kruntimes.common.api.outcomes import ENVELOPE_TYPE
from kruntimes.runtimed.invocation import Answer

_NEVER = re.compile(r";\s*q\s*=\s*0(\.0{0,3})?\s*(;|$)", re.I)
"""A weight of 0: the caller does not take this type (RFC 9110, 12.4.2)."""
_encode = msgspec.json.Encoder().encode


def wanted(accept: str | None) -> bool:
    """Whether an Accept header names the envelope's media type, and with a weight above 0."""
    if accept is None or ENVELOPE_TYPE not in accept.lower():
        return False
    ranges = (part.partition(";") for part in accept.split(","))
    return any(name.strip().lower() == ENVELOPE_TYPE and not _NEVER.search(";" + rest) for name, _, rest in ranges)


def envelope(answer: Answer, *, invocation_id: str) -> bytes:
    """The JSON document {output, outputs, invocationId, logTail, durationMs}.

    output: the value itself where the handler answered JSON, a string where it answered text, else base64, and
    `outputEncoding` says `base64` then. logTail: null where the Runtime Server does not hand it over.
    """
    document: dict[str, Any] = {
        "output": None,
        "outputs": dict(answer.outputs),
        "invocationId": invocation_id,
        "logTail": answer.log_tail,
        "durationMs": round(answer.seconds * 1000, 3),
    }
    media = answer.content_type.partition(";")[0].strip().lower()
    if media == "application/json" or media.endswith("+json"):
        try:
            msgspec.json.decode(answer.output)
            document["output"] = msgspec.Raw(answer.output)
            return _encode(document)
        except msgspec.DecodeError:
            pass  # it only says that it is JSON
    if media.startswith("text/"):
        try:
            document["output"] = answer.output.decode()
            return _encode(document)
        except UnicodeDecodeError:
            pass
    document["output"] = base64.b64encode(answer.output).decode()
    document["outputEncoding"] = "base64"
    return _encode(document)
