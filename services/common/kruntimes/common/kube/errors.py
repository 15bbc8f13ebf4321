"""What can go wrong between us and the API server, each answer mapped to one exception, once.

Foreign exceptions (aiohttp, kubernetes_asyncio, msgspec) end in the transport and become one of these. A message
is the API server's own sentence, cut short; it never holds a token or a request's body.
"""

import re
from collections.abc import Mapping

import msgspec

from kruntimes.common.errors import Busy, Denied, KruntimesError, NotFound

MESSAGE_CHARS = 500
"""This much tells a person what is wrong."""
_QUOTED = re.compile(r'Invalid value: "(?:[^"\\]|\\.){80,}(?:"|$)', re.DOTALL)
"""The API server may quote a whole rejected object, which can hold a secret or a source."""


class ApiError(KruntimesError):
    """A request to the Kubernetes API that did not succeed.

    status: the HTTP status, 0 where there was no answer. reason: the machine-readable word of `metav1.Status`,
    or the empty string. retry_after: seconds that the server asked to wait, or None.
    """

    def __init__(self, *, status: int, reason: str = "", message: str = "", retry_after: float | None = None) -> None:
        self.status = status
        self.reason = reason
        self.message = _QUOTED.sub("Invalid value: …", message)[:MESSAGE_CHARS]
        self.retry_after = retry_after
        super().__init__(f"{status or 'no answer'} {reason}: {self.message}")


class BadRequest(ApiError):
    """400: the request itself is wrong; a repeat cannot help."""


class Unauthorized(ApiError, Denied):
    """401: no credential, or one that the server does not accept. An answer, not an outage."""


class Forbidden(ApiError, Denied):
    """403: the server knows who asks and refuses."""


class Missing(ApiError, NotFound):
    """404: no such object, or no such kind of object."""


class Conflict(ApiError):
    """409, or a JSON patch whose `test` failed: the object is not what the writer took it for. Read again."""


class AlreadyExists(ApiError):
    """409 of a create: the name is taken."""


class Gone(ApiError):
    """410: the resourceVersion or the page is too old. List again."""


class Invalid(ApiError):
    """422: the schema, a CEL rule or admission refuses the object as it stands."""


class TooManyRequests(ApiError, Busy):
    """429: nothing was done; `retry_after` says when to come again."""


class ServerError(ApiError):
    """Any 5xx, whoever on the way sent it."""


class Unreachable(ApiError):
    """No answer: refused, reset, timed out, or cut off. Whether a write was done is not known."""


class Silent(Unreachable):
    """A watch on which nothing came for as long as it may be silent; nothing else is known to be wrong with it."""


class Malformed(ApiError):
    """An answer with a good status whose body is not what was asked for."""


class _Cause(msgspec.Struct):
    message: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: list[_Cause] = []
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_decode = msgspec.json.Decoder(_Status).decode
_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: Missing,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_PLAIN_CHARS = 120


def from_answer(*, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Builds the exception for an answer whose status is not 2xx.

    The body may be a `metav1.Status`, or, from a proxy on the way, anything else.
    """
    try:
        parsed = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = " ".join(body[: 4 * _PLAIN_CHARS].decode("utf-8", "replace").split())[:_PLAIN_CHARS]
        parsed = _Status(message=f"not a Status: {text}" if text else "an empty answer")
    return from_status(parsed, status=status, retry_after=_seconds(headers.get("Retry-After")))


def from_watch_event(body: bytes | msgspec.Raw) -> ApiError:
    """Builds the exception for the `metav1.Status` inside a watch event of type ERROR."""
    try:
        parsed = _decode(body)
    except msgspec.MsgspecError:
        parsed = _Status(message="an ERROR event without a Status")
    return from_status(parsed, status=parsed.code or 500, retry_after=None)


def from_status(parsed: _Status, *, status: int, retry_after: float | None) -> ApiError:
    """The one table from status and reason to exception."""
    if retry_after is None and parsed.details is not None and parsed.details.retry_after_seconds > 0:
        retry_after = float(parsed.details.retry_after_seconds)
    kind = _BY_STATUS.get(status) or (ServerError if status >= 500 else ApiError)
    if kind is Conflict and parsed.reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(status=status, reason=parsed.reason, message=parsed.message, retry_after=retry_after)


def _seconds(text: str | None) -> float | None:
    """Retry-After in whole seconds; its other form, a date, is not used by API servers."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 6):
        return None
    return float(text)
