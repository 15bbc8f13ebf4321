"""The messages of envoy-data-plane that the tests read, imported once.

Its models use a decorator that the installed pydantic will drop, and say so with a warning for each; warnings are
errors here, so these are let pass, and no others.
"""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Using `@model_validator`", category=DeprecationWarning)
    from envoy_data_plane.envoy.config.cluster.v3 import Cluster, ClusterDiscoveryType, ClusterLbPolicy
    from envoy_data_plane.envoy.config.core.v3 import HeaderValueOptionHeaderAppendAction, Node
    from envoy_data_plane.envoy.config.route.v3 import Route, RouteConfiguration, ScopedRouteConfiguration
    from envoy_data_plane.envoy.extensions.filters.http.buffer.v3 import BufferPerRoute
    from envoy_data_plane.envoy.extensions.filters.http.ext_authz.v3 import ExtAuthzPerRoute
    from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
        SubjectAltNameMatcherSanType,
        TlsParametersTlsProtocol,
        UpstreamTlsContext,
    )
    from envoy_data_plane.envoy.extensions.upstreams.http.v3 import HttpProtocolOptions
    from envoy_data_plane.envoy.service.discovery.v3 import (
        DeltaDiscoveryRequest,
        DeltaDiscoveryResponse,
    )
    from envoy_data_plane.envoy.type.matcher.v3 import HttpRequestHeaderMatchInput
    from envoy_data_plane.google.protobuf import Any
    from envoy_data_plane.google.rpc import Status

__all__ = [
    "Any",
    "BufferPerRoute",
    "Cluster",
    "ClusterDiscoveryType",
    "ClusterLbPolicy",
    "DeltaDiscoveryRequest",
    "DeltaDiscoveryResponse",
    "ExtAuthzPerRoute",
    "HeaderValueOptionHeaderAppendAction",
    "HttpProtocolOptions",
    "HttpRequestHeaderMatchInput",
    "Node",
    "Route",
    "RouteConfiguration",
    "ScopedRouteConfiguration",
    "Status",
    "SubjectAltNameMatcherSanType",
    "TlsParametersTlsProtocol",
    "UpstreamTlsContext",
]
