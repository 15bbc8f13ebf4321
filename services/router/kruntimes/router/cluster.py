"""The fallback's clusters: one for each Runtime, with the addresses of its ready Pods (design §6, "Routing").

They speak as Envoy's static cluster `runs` does: HTTP/1.1 on mTLS with the gateway's own certificate, and no hidden
queue. Only the identity differs: not one Pod, but any runtimed of this Runtime.

Field numbers are those of envoy.config.cluster.v3.Cluster and of what it holds; the tests decode it with
envoy-data-plane.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kruntimes.common.api.names import INVOKE_PORT, runtime_dns
from kruntimes.router.encode import any_of, duration
from kruntimes.router.protobuf import message, number, text

CONNECT_SECONDS = 1.0
"""A Pod that does not answer within this is not there; the caller may try again at once."""
IDLE_SECONDS = 30.0
"""Well below the 120 s of runtimed's keep-alive, so that no call is sent on a connection that is about to close."""
MAX_PENDING = 1024
"""Cold connections count as pending; beyond this a call is refused rather than queued."""
CONNECTIONS_PER_CAPACITY = 4
SPARE_CONNECTIONS = 64
"""Bound per Pod: 4 × capacity + 64, since a refused overlap needs a connection too."""
NO_BOUND = 1_000_000
"""For the cluster's totals: the bound that counts is the one per Pod."""
MAX_CAPACITY = 10_000
"""Above any Pod that exists; a larger number in a Runtime is taken for this one."""

_LEAST_REQUEST = 1
_TLS_1_2 = 3
_TLS_1_3 = 4
_SAN_DNS = 2
_V3 = 2


@dataclass(frozen=True, slots=True)
class Secrets:
    """Where an Envoy finds its upstream certificate and the CA: SDS files and the names of the secrets in them."""

    certificate_path: str
    certificate_name: str
    ca_path: str
    ca_name: str


def cluster_name(*, namespace: str, runtime: str) -> str:
    """The cluster of one Runtime, which `x-kr-runtime` names."""
    return f"{namespace}/{runtime}"


def cluster(*, namespace: str, runtime: str, addresses: Iterable[str], capacity: int, secrets: Secrets) -> bytes:
    """A Cluster with static endpoints: *addresses* are bare IP addresses, in the order in which they are written.

    capacity is the number of Runs that one Pod of the Runtime holds. Without addresses Envoy answers 503 (UH).
    """
    name = cluster_name(namespace=namespace, runtime=runtime)
    endpoints = b"".join(message(2, message(1, message(1, _address(address)))) for address in addresses)
    per_host = CONNECTIONS_PER_CAPACITY * min(capacity, MAX_CAPACITY) + SPARE_CONNECTIONS
    return (
        text(1, name)
        + message(4, duration(CONNECT_SECONDS))
        + number(6, _LEAST_REQUEST)
        + message(10, _CLUSTER_BOUNDS, message(2, _bound(2, per_host)))
        + message(24, _transport_socket(runtime_dns(namespace=namespace, runtime=runtime), secrets))
        + message(33, text(1, name), message(2, endpoints))
        + message(36, text(1, "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"), message(2, _HTTP))
    )


def _bound(field: int, value: int) -> bytes:
    """A field of CircuitBreakers.Thresholds, which are wrapped so that zero can be said."""
    return message(field, number(1, value))


def _address(address: str) -> bytes:
    """An Address of the invoke port at an IP address."""
    return message(1, text(2, address), number(3, INVOKE_PORT))


def _transport_socket(san: str, secrets: Secrets) -> bytes:
    """mTLS with the certificate that the bootstrap's SDS files hold, to whoever proves to be *san*."""
    versions = message(1, number(1, _TLS_1_2), number(2, _TLS_1_3))
    own = message(6, _sds(secrets.certificate_name, secrets.certificate_path))
    pinned = message(15, number(1, _SAN_DNS), message(2, text(1, san)))
    trusted = message(8, message(1, pinned), message(2, _sds(secrets.ca_name, secrets.ca_path)))
    context = message(1, versions, own, trusted) + text(2, san)
    kind = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
    return text(1, "envoy.transport_sockets.tls") + message(3, any_of(kind, context))


def _sds(name: str, path: str) -> bytes:
    """An SdsSecretConfig read from a file of resources."""
    return text(1, name) + message(2, number(6, _V3), message(8, text(1, path)))


_CLUSTER_BOUNDS = message(1, _bound(2, NO_BOUND), _bound(3, MAX_PENDING), _bound(4, NO_BOUND), _bound(5, 0))
"""connections, pending requests, requests, retries: none of these ever."""
_HTTP = any_of(
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    message(1, message(1, duration(IDLE_SECONDS))) + message(3, message(1)),
)
"""HTTP/1.1, idle connections closed by us first."""
