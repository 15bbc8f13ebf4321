"""The RouteConfiguration for paths whose shard is not known: a constant (design §6, "Invoke contract").

Every request begins here. What has the form of an invocation or a cancellation goes to the fallback once the authorizer
has read its path strictly; for a canonical invocation it names the shard, and the route is looked up again there.
Every other path is answered here and now, from the headers alone: the authorizer is never asked, so nothing can be
learnt from the answer, and not a byte of a stranger's body is held. CONNECT has no path; without
an entry of its own Envoy would wait for a body before it refuses it.
The gateway's local replies give these answers their body.
"""

from kruntimes.router.encode import OTHER, RUNTIME_HEADER, any_of, duration
from kruntimes.router.protobuf import message, number, text

EXT_AUTHZ_FILTER = "envoy.filters.http.ext_authz"
BUFFER_FILTER = "envoy.filters.http.buffer"
"""The filters' names in the gateway's chain, by which a route turns them off."""
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
        message(1, message(12)) + _answer(400),
    )
    host = text(1, OTHER) + text(2, "*") + b"".join(message(3, route) for route in routes)
    return text(1, OTHER) + message(2, host)


def _answer(status: int) -> bytes:
    """The fields of a Route that answers by itself, with the authorizer and the buffer turned off."""
    return message(7, number(1, status)) + b"".join(
        message(13, text(1, name), message(2, any_of(kind, number(1, True))))
        for name, kind in (
            (EXT_AUTHZ_FILTER, "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"),
            (BUFFER_FILTER, "envoy.extensions.filters.http.buffer.v3.BufferPerRoute"),
        )
    )
