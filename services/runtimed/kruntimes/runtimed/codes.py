"""What a gRPC status means for the caller, and for the registration (executor.v1; design §6, §7 and §13).

Codes are named as gRPC names them, so that these tables need no transport. The one question behind them: may it
have run? Where that cannot be excluded the outcome is `unknown`, and nobody may repeat it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kruntimes.common.api import outcomes, outputs
from kruntimes.common.api.outcomes import Kind
from kruntimes.common.api.reasons import Reason
from kruntimes.runtimed.observed import Ending

DOMAIN = "kruntimes.io"
"""google.rpc.ErrorInfo.domain of every status that one of our own servers made on purpose."""
MESSAGE_CHARS = 1024
"""Of a server's own words this many characters reach a caller or a condition."""

_LIMITS = ("larger than max", "exceeds hard limit", "exceeds soft limit")
"""In the text of a RESOURCE_EXHAUSTED that gRPC made itself, on either side, about sizes of messages or metadata."""
_TRANSPORT = ("RST_STREAM", "Stream removed", "GOAWAY", "transport")
"""In the text of an UNKNOWN or INTERNAL that gRPC made itself about a stream that broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """google.rpc.ErrorInfo of our domain, as it came with a status."""

    reason: str
    metadata: Mapping[str, str] = field(default_factory=dict)


KINDS: dict[str, Kind] = {kind.reason: kind for kind in vars(outcomes).values() if isinstance(kind, Kind)}
"""Every way in which a request can end, by its reason; a peer's ErrorInfo names one of them."""

_PLAIN: dict[str, Kind] = {
    "INVALID_ARGUMENT": outcomes.BAD_INPUT,
    "NOT_FOUND": outcomes.NOT_READY,
    "FAILED_PRECONDITION": outcomes.NOT_READY,
    "UNIMPLEMENTED": outcomes.NOT_READY,
    "DEADLINE_EXCEEDED": outcomes.DEADLINE_EXCEEDED,
    "CANCELLED": outcomes.CANCELLED,
}
_OURS: dict[str, Kind] = _PLAIN | {
    "RESOURCE_EXHAUSTED": outcomes.IN_FLIGHT,
    "UNAVAILABLE": outcomes.NOT_READY,
    "UNKNOWN": outcomes.FUNCTION_ERROR,
    "INTERNAL": outcomes.FUNCTION_ERROR,
    "UNAUTHENTICATED": outcomes.UNAUTHENTICATED,
    "PERMISSION_DENIED": outcomes.FORBIDDEN,
}


def outcome_of(code: str, info: Info | None, connected: bool, text: str = "") -> Kind:
    """What came of an InvokeFunction that ended with *code*.

    info: ErrorInfo of our own domain, None from a stranger or from gRPC itself. connected: the channel was ready when
    the call was made; where it was not, the call was never sent. text: the status's own words, in which gRPC's own
    limits and broken streams can be told from what a server said.
    """
    if not connected and code == "UNAVAILABLE":
        return outcomes.OWNER_UNREACHABLE
    if info is not None:
        return _OURS.get(code, outcomes.OUTCOME_UNKNOWN)
    if code == "RESOURCE_EXHAUSTED":
        return outcomes.OUTCOME_UNKNOWN if any(mark in text for mark in _LIMITS) else outcomes.IN_FLIGHT
    if code in ("UNKNOWN", "INTERNAL"):
        return outcomes.OUTCOME_UNKNOWN if any(mark in text for mark in _TRANSPORT) else outcomes.FUNCTION_ERROR
    return _PLAIN.get(code, outcomes.OUTCOME_UNKNOWN)


def peer_outcome_of(code: str, info: Info | None, connected: bool, text: str = "") -> Kind:
    """As `outcome_of`, for a status of the owner's runtimed, which names the kind itself in ErrorInfo.reason."""
    if info is not None and info.reason in KINDS:
        return KINDS[info.reason]
    return outcome_of(code, info, connected, text)


PEER_CODES: dict[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "UNKNOWN",
    502: "UNKNOWN",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""The code under which an owner passes a failure of that HTTP status to its peer; the ErrorInfo says the rest."""

_SETTLED = frozenset(
    {"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "UNIMPLEMENTED", "PERMISSION_DENIED"}
)


def settled(code: str, info: Info | None, connected: bool) -> bool:
    """Whether this status proves that no work of the call is left in the Runtime Server.

    Where it does not, the server is asked with FunctionStatus before the slot is free again.
    """
    return info is not None or code in _SETTLED or not connected


def lost(code: str, connected: bool) -> bool:
    """Whether the registration should be looked at now: it is unknown to its server, or the server is away."""
    return code in ("NOT_FOUND", "UNAVAILABLE", "FAILED_PRECONDITION") or not connected


_UNCERTAIN = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED"})


def registration_ending(code: str, info: Info | None, text: str) -> Ending | None:
    """Why a RegisterFunction that ended with *code* has failed; None where it is uncertain and must be repeated."""
    if code in _UNCERTAIN:
        return None
    if code == "UNIMPLEMENTED":
        return Ending(
            reason=Reason.FUNCTION_UNSUPPORTED, message="the Runtime Server does not offer executor.v1.FunctionRuntime"
        )
    reason = Reason.RUNTIME_SERVER_FAILED if code == "RESOURCE_EXHAUSTED" else Reason.REGISTRATION_FAILED
    return Ending(reason=reason, message=describe(info, text) or f"the Runtime Server answered {code}")


def execution_ending(code: str, info: Info | None, text: str) -> Ending | None:
    """Why an Execute that ended with *code* has failed; None where it is uncertain and must be repeated."""
    if code in _UNCERTAIN:
        return None
    if code == "UNIMPLEMENTED":
        return Ending(reason=Reason.TASK_UNSUPPORTED, message="the Runtime Server does not offer executor.v1.Runtime")
    reason = Reason.RUNTIME_SERVER_FAILED if code == "RESOURCE_EXHAUSTED" else Reason.TASK_FAILED
    return Ending(reason=reason, message=describe(info, text) or f"the Runtime Server answered {code}")


def describe(info: Info | None, text: str) -> str:
    """A bounded sentence for a person: the error's type and message where the server told them apart."""
    if info is not None:
        text = ": ".join(info.metadata[key] for key in ("type", "message") if info.metadata.get(key)) or text
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"


def details_of(info: Info | None) -> dict[str, Any]:
    """The details of a function error, for the JSON document: type, message, traceback, as far as they came."""
    if info is None:
        return {}
    return {key: info.metadata[key] for key in ("type", "message", "traceback") if info.metadata.get(key)}


MESSAGES: dict[Kind, str] = {
    outcomes.DEADLINE_EXCEEDED: "the invocation's deadline has passed",
    outcomes.IN_FLIGHT: "an invocation of this Run is in flight",
    outcomes.NOT_READY: "the function is not ready",
    outcomes.OWNER_UNREACHABLE: "the function's owner cannot be reached",
    outcomes.OUTCOME_UNKNOWN: "the connection was lost after the call was sent; whether the function ran is not known",
    outcomes.CANCELLED: "the invocation was cancelled",
}
"""Kinds about which the server's own words would tell a caller nothing."""


def violation(output: bytes, named: Mapping[str, str]) -> str | None:
    """Which bound an answer breaks, in a sentence; ours keeps them, a foreign server may not. named: its outputs."""
    if len(output) > outcomes.MAX_OUTPUT_BYTES:
        return f"the output has {len(output)} bytes, and at most {outcomes.MAX_OUTPUT_BYTES} are allowed"
    return outputs.violation(named) if named else None
