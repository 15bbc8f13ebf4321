"""One invocation as a value: what is asked, what came of it (design §6)."""

from collections.abc import Mapping

import msgspec

from kruntimes.common.api.outcomes import Failure, Kind

COMPONENT = "runtimed"
RETRY_AFTER_SECONDS = 1
"""What a refused caller is told: a call takes milliseconds, a recovery seconds."""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One call as the function gets it. seconds: its deadline, from now. trace: traceparent, or empty."""

    id: str
    body: bytes
    content_type: str
    seconds: float
    trace: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the handler returned.

    seconds: how long the call took, as the Runtime Server says, or else here. log_tail: what it printed, bounded; None
    where the Runtime Server does not hand it over.
    """

    output: bytes
    content_type: str
    outputs: Mapping[str, str]
    seconds: float
    log_tail: str | None = None


def failure(kind: Kind, message: str, invocation_id: str | None, details: Mapping[str, str] | None = None) -> Failure:
    """A failure of this component; 429 and 503 say when to come again."""
    return Failure(
        kind=kind,
        message=message,
        component=COMPONENT,
        invocation_id=invocation_id,
        retry_after=RETRY_AFTER_SECONDS if kind.status in (429, 503) else None,
        details=dict(details or {}),
    )
