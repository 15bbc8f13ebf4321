"""What came of an invocation: outcomes, statuses, and the one JSON error document (design §6).

Everyone on the path (authz, runtimed, Envoy's local replies, the SDK) uses this table and no other.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

INVOCATION_ID = "x-kruntime-invocation-id"
OUTCOME = "x-kruntime-outcome"
RETRY_SAFE = "x-kruntime-retry-safe"
TIMEOUT_MS = "x-kruntime-timeout-ms"
RETRY_AFTER = "retry-after"
ENVELOPE_TYPE = "application/vnd.kruntimes.invocation+json"

MAX_BODY_BYTES = 1024 * 1024
MAX_OUTPUT_BYTES = 1024 * 1024
MAX_INVOCATION_ID_BYTES = 128
DEFAULT_DEADLINE_SECONDS = 60.0
MAX_DEADLINE_SECONDS = 900.0


class Outcome(StrEnum):
    """X-Kruntime-Outcome."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    NOT_DISPATCHED = "not_dispatched"
    FUNCTION_ERROR = "function_error"
    UNKNOWN = "unknown"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def retry_safe(self) -> bool:
        """Whether the function certainly did not run, so that a repeat cannot run it twice."""
        return self in (Outcome.REJECTED, Outcome.NOT_DISPATCHED)


@dataclass(frozen=True, slots=True)
class Kind:
    """Status, outcome and machine-readable reason of one way in which a request can end."""

    status: int
    outcome: Outcome
    reason: str


BAD_REQUEST = Kind(400, Outcome.REJECTED, "BadRequest")
BAD_PATH = Kind(400, Outcome.REJECTED, "BadPath")
QUERY_NOT_ALLOWED = Kind(400, Outcome.REJECTED, "QueryNotAllowed")
BAD_INVOCATION_ID = Kind(400, Outcome.REJECTED, "BadInvocationID")
BAD_TIMEOUT = Kind(400, Outcome.REJECTED, "BadTimeout")
BAD_INPUT = Kind(400, Outcome.REJECTED, "BadInput")
UNAUTHENTICATED = Kind(401, Outcome.REJECTED, "Unauthorized")
FORBIDDEN = Kind(403, Outcome.REJECTED, "Forbidden")
RUN_NOT_FOUND = Kind(404, Outcome.REJECTED, "RunNotFound")
RUN_ENDED = Kind(404, Outcome.REJECTED, "RunEnded")
"""The Run is still there to be read and will never answer again: no 503, which would say that waiting helps."""
PATH_NOT_FOUND = Kind(404, Outcome.REJECTED, "NotFound")
INVOCATION_NOT_FOUND = Kind(404, Outcome.REJECTED, "InvocationNotFound")
METHOD_NOT_ALLOWED = Kind(405, Outcome.REJECTED, "MethodNotAllowed")
REQUEST_TIMEOUT = Kind(408, Outcome.REJECTED, "RequestTimeout")
BODY_TOO_LARGE = Kind(413, Outcome.REJECTED, "BodyTooLarge")
UPGRADE_REQUIRED = Kind(426, Outcome.REJECTED, "UpgradeRequired")
IN_FLIGHT = Kind(429, Outcome.REJECTED, "InvocationInFlight")
HEADERS_TOO_LARGE = Kind(431, Outcome.REJECTED, "HeadersTooLarge")
CANCELLED = Kind(499, Outcome.CANCELLED, "Cancelled")
FUNCTION_ERROR = Kind(500, Outcome.FUNCTION_ERROR, "FunctionError")
OUTCOME_UNKNOWN = Kind(502, Outcome.UNKNOWN, "OutcomeUnknown")
NOT_READY = Kind(503, Outcome.NOT_DISPATCHED, "NotReady")
OWNER_UNREACHABLE = Kind(503, Outcome.NOT_DISPATCHED, "OwnerUnreachable")
AUTHORIZATION_UNAVAILABLE = Kind(503, Outcome.NOT_DISPATCHED, "AuthorizationUnavailable")
OVERLOADED = Kind(503, Outcome.NOT_DISPATCHED, "Overloaded")
DEADLINE_EXCEEDED = Kind(504, Outcome.TIMEOUT, "DeadlineExceeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed request, ready to be answered by any transport.

    message: a sentence for a person, without token, payload or address. retry_after: whole seconds.
    details: small and JSON-encodable; a function error carries type, message and traceback here.
    """

    kind: Kind
    message: str
    component: str
    invocation_id: str | None = None
    retry_after: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def headers(self) -> dict[str, str]:
        """The response headers that every failure carries (names in lower case)."""
        headers = {
            "content-type": "application/json",
            OUTCOME: self.kind.outcome.value,
            RETRY_SAFE: "true" if self.kind.outcome.retry_safe else "false",
        }
        if self.invocation_id is not None:
            headers[INVOCATION_ID] = self.invocation_id
        if self.retry_after is not None:
            headers[RETRY_AFTER] = str(self.retry_after)
        return headers | _STATUS_HEADERS.get(self.kind.status, {})

    def body(self) -> bytes:
        """The JSON error document."""
        return _encode(
            {
                "error": {
                    "reason": self.kind.reason,
                    "message": self.message,
                    "component": self.component,
                    "invocationId": self.invocation_id,
                    "outcome": self.kind.outcome.value,
                    "retrySafe": self.kind.outcome.retry_safe,
                    "details": self.details,
                }
            }
        )


_STATUS_HEADERS = {401: {"www-authenticate": "Bearer"}, 405: {"allow": "POST"}}
"""What RFC 9110 demands beside these statuses."""
_encode = msgspec.json.Encoder().encode
_INVOCATION_ID = re.compile(rf"[!-~]{{1,{MAX_INVOCATION_ID_BYTES}}}")


def valid_invocation_id(value: str) -> bool:
    """Whether *value* is 1 to 128 bytes of visible ASCII (design §6)."""
    return _INVOCATION_ID.fullmatch(value) is not None


def parse_timeout_ms(value: str | None, *, default: float, maximum: float) -> float:
    """Returns the deadline in seconds that X-Kruntime-Timeout-Ms asks for.

    Raises ValueError with a sentence where the value is not a whole number of milliseconds between 1
    and the maximum; `int` alone would take `1_0`, signs, blanks and foreign digits.
    """
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise ValueError("X-Kruntime-Timeout-Ms is not a whole number of milliseconds")
    millis = int(value)
    if not 1 <= millis <= maximum * 1000:
        raise ValueError(f"X-Kruntime-Timeout-Ms must lie between 1 and {int(maximum * 1000)}")
    return millis / 1000
