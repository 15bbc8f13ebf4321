"""The bytes of what is published for every Run: route entries, shards, scopes (design §6, "Routing").

A shard is one RouteConfiguration with an exact-match tree on the full path; what it does not match goes to
the fallback, a cluster named by a request header. Nothing here validates: Envoy refuses a whole shard for one
bad entry, so `kruntimes.router.compile` lets only well-formed values in.

Field numbers are those of envoy.config.route.v3, envoy.config.core.v3 and xds.type.matcher.v3; the tests decode
every form with envoy-data-plane.
"""

from collections.abc import Iterable
from functools import lru_cache

from kruntimes.common.api.epoch import HEADER as EPOCH_HEADER
from kruntimes.router.protobuf import message, number, text

_GOOGLEAPIS = "type.googleapis.com/"
SCOPES = f"{_GOOGLEAPIS}envoy.config.route.v3.ScopedRouteConfiguration"
ROUTES = f"{_GOOGLEAPIS}envoy.config.route.v3.RouteConfiguration"
CLUSTERS = f"{_GOOGLEAPIS}envoy.config.cluster.v3.Cluster"

RUNS_CLUSTER = "runs"
"""The cluster of Envoy's bootstrap whose address, SNI and thereby identity the route decides."""
SMALL_RUNS_CLUSTERS = ((8, "runs-8"), (32, "runs-32"))
"""The same for Pods that hold at most so many Runs: fewer connections to each, so that a crowd of first calls does not
make more handshakes than the Pod can do in time."""
DESTINATION_HEADER = "x-kr-dst"
SNI_HEADER = "x-kr-sni"
RUNTIME_HEADER = "x-kr-runtime"
"""Names the fallback's cluster, `NAMESPACE/RUNTIME`."""

SHARD_DIGITS = 3
"""Leading hexadecimal digits of a Run's UID that choose its shard: 4,096 shards keep one at about 25 entries with
100,000 Runs."""
OTHER = "other"
"""Scope and RouteConfiguration of every path that has no shard."""

_DESTINATION, _SNI, _EPOCH = text(1, DESTINATION_HEADER), text(1, SNI_HEADER), text(1, EPOCH_HEADER)
_OVERWRITE = number(3, 2)
"""HeaderValueOption.append_action OVERWRITE_IF_EXISTS_OR_ADD: a client's own header never survives."""
_ANY_PATH = message(1, text(1, "/"))
"""Route.match: every path; the tree has already matched."""


def shard_names() -> tuple[str, ...]:
    """All scope keys of shards in order, `000` to `fff`."""
    return tuple(f"{index:0{SHARD_DIGITS}x}" for index in range(16**SHARD_DIGITS))


def shard_of(uid: str) -> str:
    """The scope key of the shard that holds this Run UID."""
    return uid[:SHARD_DIGITS]


def runs_cluster(capacity: int | None) -> str:
    """The cluster for a Pod that holds *capacity* Runs; None where that is not known."""
    if capacity is not None:
        for most, name in SMALL_RUNS_CLUSTERS:
            if capacity <= most:
                return name
    return RUNS_CLUSTER


def configuration_name(shard: str) -> str:
    """The name of a shard's RouteConfiguration."""
    return f"runs-{shard}"


def any_of(kind: str, body: bytes) -> bytes:
    """The content of a google.protobuf.Any that holds a message of type *kind*."""
    return text(1, _GOOGLEAPIS + kind) + message(2, body)


def duration(seconds: float) -> bytes:
    """The content of a google.protobuf.Duration, to the millisecond."""
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    return number(1, whole) + number(2, milliseconds * 1_000_000)


def scope(*, key: str, configuration: str) -> bytes:
    """A ScopedRouteConfiguration: requests whose shard header is *key* use *configuration*."""
    fragment = message(1, text(1, key))
    return text(1, key) + text(2, configuration) + message(3, fragment)


def entry(*, path: str, cluster: str, address: str, sni: str, epoch: str, timeout: float) -> bytes:
    """One entry of a shard's tree: *path* exactly, to the Pod at *address* (`IP:PORT`) that proves to be *sni*.

    cluster is that of `runs_cluster`. timeout is in seconds. About 450 bytes; kept by the caller, since a shard is made
    of them again and again.
    """
    route = (
        _direct_route(cluster, timeout) + _header(_DESTINATION, address) + _header(_SNI, sni) + _header(_EPOCH, epoch)
    )
    return message(1, text(1, path), message(2, _action(route)))


@lru_cache(maxsize=8)
def _direct_route(cluster: str, timeout: float) -> bytes:
    """What is the same in the Route of every entry to Pods of a size."""
    return _ANY_PATH + message(2, text(1, cluster), message(8, duration(timeout)))


@lru_cache(maxsize=8)
def fallback_route(timeout: float) -> bytes:
    """A Route to the cluster that the header `x-kr-runtime` names; timeout is in seconds."""
    return _ANY_PATH + message(2, text(2, RUNTIME_HEADER), message(8, duration(timeout)))


def shard(*, name: str, entries: Iterable[bytes], timeout: float) -> bytes:
    """A shard's RouteConfiguration, made of `entry` bytes in the order given; timeout is that of the fallback.

    Without entries it is a plain list of one route, the fallback: most of the 4,096 shards are empty, and a tree may
    not be.
    """
    tree = b"".join(entries)
    host = text(1, "runs") + text(2, "*")
    if tree:
        matcher = message(2, _PATH_INPUT, message(2, tree)) + message(3, _action(fallback_route(timeout)))
        host += message(21, matcher)
    else:
        host += message(3, fallback_route(timeout))
    return text(1, name) + message(2, host)


def _header(key: bytes, value: str) -> bytes:
    """Route.request_headers_to_add: sets the header of HeaderValue.key *key* whatever the request brought."""
    return message(9, message(1, key, text(2, value)), _OVERWRITE)


def _action(route: bytes) -> bytes:
    """An OnMatch whose action is *route*."""
    return message(2, _ACTION_NAME, message(2, _ROUTE_TYPE, message(2, route)))


_ACTION_NAME = text(1, "route")
_ROUTE_TYPE = text(1, f"{_GOOGLEAPIS}envoy.config.route.v3.Route")
_PATH_INPUT = message(
    1,
    text(1, "path"),
    message(2, any_of("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", text(1, ":path"))),
)
"""MatcherTree.input: the `:path` header with its query string, so that no query can ride along."""
