"""What a caller is told of a request that could not be served: the error document of every other failure. Pure."""

from kruntimes.common.api import outcomes
from kruntimes.common.api.outcomes import Failure, Kind
from kruntimes.common.http1.messages import Fault, Request, Response, Wrong

_KINDS: dict[Wrong, Kind] = {
    Wrong.MALFORMED: outcomes.BAD_REQUEST,
    Wrong.VERSION: outcomes.BAD_REQUEST,
    Wrong.EXPECTATION: outcomes.BAD_REQUEST,
    Wrong.TIMED_OUT: outcomes.REQUEST_TIMEOUT,
    Wrong.HEAD_TOO_LARGE: outcomes.HEADERS_TOO_LARGE,
}


def invocation_id_of(request: Request | None) -> str | None:
    """The one valid id of the invocation, or None."""
    given = request.once(outcomes.INVOCATION_ID.encode()) if request is not None else None
    return given if given is not None and outcomes.valid_invocation_id(given) else None


def failure_of(fault: Fault, *, component: str, internal: Kind) -> Failure:
    """The failure that *fault* is. internal: what it means for the caller that we failed ourselves."""
    return Failure(
        kind=_KINDS.get(fault.wrong, internal),
        message=fault.message,
        component=component,
        invocation_id=invocation_id_of(fault.request),
    )


def response_of(failure: Failure, *, close: bool = False) -> Response:
    """The answer that tells *failure*."""
    return Response(status=failure.kind.status, headers=failure.headers(), body=failure.body(), close=close)
