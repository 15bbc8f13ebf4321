"""The RouteConfiguration for paths without a shard: a constant (design §6, "Invoke contract").

The alias spelling and cancellations go to the fallback, after authorization, which reads the path strictly. Every
other path is answered here and now, and the authorizer is never asked, so nothing can be learnt from the answer.
"""

from kruntimes.router.encode import OTHER, RUNTIME_HEADER, any_of, duration
from kruntimes.router.protobuf import message, number, text

EXT_AUTHZ_FILTER = "envoy.filters.http.ext_authz"
"""The filter's name in the gateway's chain, by which a route turns it off."""
_ALIAS = "/v1/namespaces/[^/]+/runtimes/[^/]+/runs/[^/]+:invoke"
_CANCEL = "/v1/namespaces/[^/]+/runtimes/[^/]+/(functions|runs)/[^/]+/invocations/[^/]+:cancel"
BAD_PATH = "the path is not of the form /v1/namespaces/NAMESPACE/runtimes/RUNTIME/functions/UID:invoke"
NO_PATH = "there is nothing at this path"


def other(*, timeout: float) -> bytes:
    """The RouteConfiguration `other`; timeout, in seconds, is that of the fallback."""
    fallback = message(2, text(2, RUNTIME_HEADER), message(8, duration(timeout)))
    routes = (
        message(1, message(10, text(2, _ALIAS))) + fallback,
        message(1, message(10, text(2, _CANCEL))) + fallback,
        message(1, text(1, "/v1/namespaces/")) + _answer(400, BAD_PATH),
        message(1, text(1, "/")) + _answer(404, NO_PATH),
    )
    host = text(1, OTHER) + text(2, "*") + b"".join(message(3, route) for route in routes)
    return text(1, OTHER) + message(2, host)


def _answer(status: int, sentence: str) -> bytes:
    """The fields of a Route that answers by itself, with the authorizer turned off."""
    disabled = any_of("envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute", number(1, True))
    return message(7, number(1, status), message(2, text(3, sentence))) + message(
        13, text(1, EXT_AUTHZ_FILTER), message(2, disabled)
    )
