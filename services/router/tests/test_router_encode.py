"""Every hand-written message is read back with envoy-data-plane, and must be what its objects would have said."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.xds_messages import (
    Any,
    BufferPerRoute,
    Cluster,
    ClusterDiscoveryType,
    ClusterLbPolicy,
    ExtAuthzPerRoute,
    HeaderValueOptionHeaderAppendAction,
    HttpProtocolOptions,
    HttpRequestHeaderMatchInput,
    Route,
    RouteConfiguration,
    ScopedRouteConfiguration,
    SubjectAltNameMatcherSanType,
    TlsParametersTlsProtocol,
    UpstreamTlsContext,
)

from kruntimes.common.protobuf import fields
from kruntimes.router.cluster import Secrets, cluster
from kruntimes.router.encode import duration, entry, fallback_route, scope, shard, shard_names, shard_of
from kruntimes.router.other import other
from kruntimes.router.protobuf import message, number, text, varint

PATH = "/v1/namespaces/demo/runtimes/python/functions/0a1b2c3d-0000-4000-8000-000000000001:invoke"
SECRETS = Secrets("/run/kruntimes-gateway/client.yaml", "client", "/run/kruntimes-gateway/ca.yaml", "ca")


def entry_of(path: str = PATH, uid: str = "u") -> bytes:
    return entry(
        path=path,
        cluster="runs-8",
        address="10.1.2.3:9443",
        sni="pod-1.runtimed.kruntimes.internal",
        epoch=f"{uid}/1/pod-1",
        timeout=905.5,
    )


def route_in(any_: Any | None) -> Route:
    assert any_ is not None
    assert any_.type_url == "type.googleapis.com/envoy.config.route.v3.Route"
    return Route.parse(any_.value)


def test_an_entry_sends_the_exact_path_to_the_pod_with_identity_and_epoch() -> None:
    configuration = RouteConfiguration.parse(shard(name="runs-0a1", entries=[entry_of()], timeout=905.5))
    assert configuration.name == "runs-0a1"
    (host,) = configuration.virtual_hosts
    assert host.domains == ["*"]
    assert host.routes == []
    assert host.matcher is not None
    tree = host.matcher.matcher_tree
    assert tree is not None
    assert tree.input is not None
    assert tree.input.typed_config is not None
    assert HttpRequestHeaderMatchInput.parse(tree.input.typed_config.value).header_name == ":path"
    assert tree.exact_match_map is not None
    assert list(tree.exact_match_map.map) == [PATH]
    action = tree.exact_match_map.map[PATH].action
    assert action is not None
    route = route_in(action.typed_config)
    assert route.match is not None
    assert route.match.prefix == "/"
    assert route.route is not None
    assert route.route.cluster == "runs-8"
    assert route.route.timeout == datetime.timedelta(seconds=905.5)
    headers = {option.header.key: option.header.value for option in route.request_headers_to_add if option.header}
    assert headers == {
        "x-kr-dst": "10.1.2.3:9443",
        "x-kr-sni": "pod-1.runtimed.kruntimes.internal",
        "x-kr-epoch": "u/1/pod-1",
    }
    overwrite = HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    assert {option.append_action for option in route.request_headers_to_add} == {overwrite}


def test_what_a_shard_does_not_match_goes_to_the_cluster_of_its_runtime() -> None:
    configuration = RouteConfiguration.parse(shard(name="runs-0a1", entries=[entry_of()], timeout=60))
    matcher = configuration.virtual_hosts[0].matcher
    assert matcher is not None
    assert matcher.on_no_match is not None
    assert matcher.on_no_match.action is not None
    route = route_in(matcher.on_no_match.action.typed_config)
    assert route == Route.parse(fallback_route(60))
    assert route.route is not None
    assert route.route.cluster_header == "x-kr-runtime"
    assert route.route.timeout == datetime.timedelta(seconds=60)


def test_an_empty_shard_is_one_plain_route_to_the_fallback() -> None:
    body = shard(name="runs-fff", entries=[], timeout=60)
    (host,) = RouteConfiguration.parse(body).virtual_hosts
    assert host.matcher is None
    assert host.routes == [Route.parse(fallback_route(60))]
    assert len(body) < 80


def test_a_shard_is_its_entries_in_the_order_given() -> None:
    paths = [PATH.replace("0001", f"{index:04}") for index in range(30)]
    configuration = RouteConfiguration.parse(shard(name="n", entries=[entry_of(path) for path in paths], timeout=1))
    matcher = configuration.virtual_hosts[0].matcher
    assert matcher is not None
    assert matcher.matcher_tree is not None
    assert matcher.matcher_tree.exact_match_map is not None
    assert list(matcher.matcher_tree.exact_match_map.map) == paths


def test_a_scope_is_one_key_and_one_configuration() -> None:
    read = ScopedRouteConfiguration.parse(scope(key="0a1", configuration="runs-0a1"))
    assert (read.name, read.route_configuration_name, read.on_demand) == ("0a1", "runs-0a1", False)
    assert read.key is not None
    assert [fragment.string_key for fragment in read.key.fragments] == ["0a1"]


def test_every_uid_has_a_shard() -> None:
    names = shard_names()
    assert (len(names), names[0], names[-1]) == (4096, "000", "fff")
    assert shard_of("0a1b2c3d-0000-4000-8000-000000000001") in names


def test_paths_without_a_shard_are_answered_or_fall_back() -> None:
    configuration = RouteConfiguration.parse(other(timeout=905))
    assert configuration.name == "other"
    invoke, cancel, bad, unknown, connect = configuration.virtual_hosts[0].routes
    for route in (invoke, cancel):
        assert route.match is not None
        assert route.match.safe_regex is not None
        assert route.route is not None
        assert route.route.cluster_header == "x-kr-runtime"
        assert route.typed_per_filter_config == {}
    for route, prefix, status in ((bad, "/v1/namespaces/", 400), (unknown, "/", 404)):
        assert route.match is not None
        assert route.match.prefix == prefix
        assert route.direct_response is not None
        assert route.direct_response.status == status
    assert connect.match is not None
    assert connect.match.connect_matcher is not None
    assert connect.direct_response is not None
    assert connect.direct_response.status == 400
    for route in (bad, unknown, connect):
        off = route.typed_per_filter_config
        assert ExtAuthzPerRoute.parse(off["envoy.filters.http.ext_authz"].value).disabled is True
        assert BufferPerRoute.parse(off["envoy.filters.http.buffer"].value).disabled is True


def test_the_fallback_cluster_is_bounded_and_pinned_to_its_runtime() -> None:
    body = cluster(namespace="demo", runtime="python", addresses=["10.0.0.1", "fd00::2"], capacity=3, secrets=SECRETS)
    read = Cluster.parse(body)
    assert read.name == "demo/python"
    assert read.type is ClusterDiscoveryType.STATIC or not read.type
    assert read.lb_policy is ClusterLbPolicy.LEAST_REQUEST
    assert read.connect_timeout == datetime.timedelta(seconds=1)
    assert read.load_assignment is not None
    assert read.load_assignment.cluster_name == "demo/python"
    sockets = [
        lb.endpoint.address.socket_address
        for group in read.load_assignment.endpoints
        for lb in group.lb_endpoints
        if lb.endpoint and lb.endpoint.address
    ]
    assert [(s.address, s.port_value) for s in sockets if s] == [("10.0.0.1", 9443), ("fd00::2", 9443)]
    breakers = read.circuit_breakers
    assert breakers is not None
    (total,) = breakers.thresholds
    assert (total.max_pending_requests, total.max_retries) == (1024, 0)
    assert (total.max_connections, total.max_requests) == (1_000_000, 1_000_000)
    assert [each.max_connections for each in breakers.per_host_thresholds] == [4 * 3 + 64]


def test_the_fallback_cluster_speaks_http1_on_mutual_tls() -> None:
    read = Cluster.parse(cluster(namespace="demo", runtime="python", addresses=[], capacity=1, secrets=SECRETS))
    options = read.typed_extension_protocol_options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
    http = HttpProtocolOptions.parse(options.value)
    assert http.explicit_http_config is not None
    assert http.explicit_http_config.http_protocol_options is not None
    assert http.explicit_http_config.http2_protocol_options is None
    assert http.common_http_protocol_options is not None
    assert http.common_http_protocol_options.idle_timeout == datetime.timedelta(seconds=30)

    assert read.transport_socket is not None
    assert read.transport_socket.typed_config is not None
    tls = UpstreamTlsContext.parse(read.transport_socket.typed_config.value)
    assert tls.sni == "python.demo.runtime.kruntimes.internal"
    common = tls.common_tls_context
    assert common is not None
    assert common.tls_params is not None
    assert common.tls_params.tls_minimum_protocol_version is TlsParametersTlsProtocol.TLSv1_2
    (own,) = common.tls_certificate_sds_secret_configs
    combined = common.combined_validation_context
    assert combined is not None
    assert combined.default_validation_context is not None
    (pinned,) = combined.default_validation_context.match_typed_subject_alt_names
    assert pinned.san_type is SubjectAltNameMatcherSanType.DNS
    assert pinned.matcher is not None
    assert pinned.matcher.exact == tls.sni
    trusted = combined.validation_context_sds_secret_config
    assert trusted is not None
    for secret, name, path in (
        (own, SECRETS.certificate_name, SECRETS.certificate_path),
        (trusted, SECRETS.ca_name, SECRETS.ca_path),
    ):
        assert secret.name == name
        assert secret.sds_config is not None
        assert secret.sds_config.path_config_source is not None
        assert secret.sds_config.path_config_source.path == path


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        pytest.param(0, b"\x00", id="zero"),
        pytest.param(127, b"\x7f", id="one-byte"),
        pytest.param(128, b"\x80\x01", id="two-bytes"),
        pytest.param(300, b"\xac\x02", id="of-the-specification"),
    ],
)
def test_varint(value: int, wire: bytes) -> None:
    assert varint(value) == wire


@given(st.floats(min_value=0, max_value=1_000_000))
def test_a_duration_is_kept_to_the_millisecond(seconds: float) -> None:
    said = dict(fields(duration(seconds)))
    whole, nanos = said.get(1, 0), said.get(2, 0)
    assert isinstance(whole, int)
    assert isinstance(nanos, int)
    assert 0 <= nanos < 1_000_000_000
    assert whole * 1000 + nanos // 1_000_000 == round(seconds * 1000)


@given(st.lists(st.tuples(st.integers(1, 63), st.binary(max_size=300) | st.integers(1, 2**64 - 1)), max_size=8))
def test_fields_reads_what_was_written(values: list[tuple[int, bytes | int]]) -> None:
    wire = b"".join(message(f, v) if isinstance(v, bytes) else number(f, v) for f, v in values)
    assert list(fields(wire)) == values


@given(st.binary(max_size=200))
def test_fields_of_anything_is_a_value_or_a_value_error(data: bytes) -> None:
    try:
        consumed = list(fields(data))
    except ValueError:
        return
    assert all(field >= 1 for field, _ in consumed)


def test_text_is_utf8() -> None:
    assert text(1, "é") == b"\x0a\x02\xc3\xa9"
