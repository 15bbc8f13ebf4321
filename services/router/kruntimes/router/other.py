"""The RouteConfiguration for paths whose shard is not known: a constant (design §6, "Invoke contract").

Every request begins here. What has the form of an invocation or a cancellation goes to the fallback once the authorizer
has read its path strictly; for a canonical invocation it names the shard, and the route is looked up again there.
Every other path is answered here and now, and the authorizer is never asked, so nothing can be learnt from the answer.
The gateway's local replies give these answers their body.
"""

from kruntimes.router.encode import OTHER, RUNTIME_HEADER, any_of, duration
from kruntimes.router.protobuf import message, number, text

EXT_AUTHZ_FILTER = "envoy.filters.http.ext_authz"
"""The filter's name in the gateway's chain, by which a route turns it off."""
_INVOKE = "/v1/namespaces/[^/]+/runtimes/[^/]+/(functions|runs)/[^/]+:invoke"
_CANCEL = "/v1/namespaces/[^/]+/runtimes/[^/]+/(functions|runs)/[^/]+/invocations/[^/]+:cancel"


def other(*, timeout: float) -> bytes:
    """The RouteConfiguration `other`; timeout, in seconds, is that of the fallback."""
    fallback = message(2, text(2, RUNTIME_HEADER), message(8, duration(timeout)))
    routes = (
        message(1, message(10, text(2, _INVOKE))) + fallback,
        message(1, message(10, text(2, _CANCEL))) + fallback,
        message(1, text(1, "/v1/namespaces/")) + _answer(400),
        message(1, text(1, "/")) + _answer(404),
    )
    host = text(1, OTHER) + text(2, "*") + b"".join(message(3, route) for route in routes)
    return text(1, OTHER) + message(2, host)


def _answer(status: int) -> bytes:
    """The fields of a Route that answers by itself, with the authorizer turned off."""
    disabled = any_of("envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute", number(1, True))
    return message(7, number(1, status)) + message(13, text(1, EXT_AUTHZ_FILTER), message(2, disabled))
