"""The two messages of the protocol, against envoy-data-plane and against noise."""

from hypothesis import given
from hypothesis import strategies as st
from tests.xds_messages import DeltaDiscoveryRequest, DeltaDiscoveryResponse, Node, Status

from kruntimes.router.discovery import MAX_ERROR_CHARACTERS, Request, Response, decode, encode
from kruntimes.router.snapshot import Resource

NAMES = st.text(min_size=1, max_size=12)


@given(
    subscribe=st.lists(NAMES, max_size=4),
    unsubscribe=st.lists(NAMES, max_size=4),
    versions=st.dictionaries(NAMES, NAMES, max_size=4),
    nonce=st.text(max_size=5),
    error=st.none() | st.text(max_size=20),
)
def test_decode_reads_what_envoy_writes(
    subscribe: list[str], unsubscribe: list[str], versions: dict[str, str], nonce: str, error: str | None
) -> None:
    message = DeltaDiscoveryRequest(
        node=Node(id="pod-uid", cluster="kruntimes-gateway"),
        type_url="T",
        resource_names_subscribe=subscribe,
        resource_names_unsubscribe=unsubscribe,
        initial_resource_versions=versions,
        response_nonce=nonce,
        error_detail=None if error is None else Status(code=13, message=error),
    )
    assert decode(bytes(message)) == Request(
        "T", tuple(subscribe), tuple(unsubscribe), versions, nonce, error, "pod-uid"
    )


@given(
    resources=st.dictionaries(NAMES, st.tuples(NAMES, st.binary(max_size=40)), max_size=4),
    removed=st.lists(NAMES, max_size=4),
)
def test_encode_writes_what_envoy_reads(resources: dict[str, tuple[str, bytes]], removed: list[str]) -> None:
    sent = {name: Resource(version, body) for name, (version, body) in resources.items()}
    read = DeltaDiscoveryResponse.parse(encode(Response("type.googleapis.com/T", "7", sent, tuple(removed))))
    assert (read.type_url, read.nonce, read.removed_resources) == ("type.googleapis.com/T", "7", removed)
    found = {each.name: (each.version, each.resource) for each in read.resources}
    assert found.keys() == resources.keys()
    for name, (version, any_) in found.items():
        assert any_ is not None
        assert (any_.type_url, (version, any_.value)) == ("type.googleapis.com/T", resources[name])


@given(st.binary(max_size=200))
def test_noise_is_a_request_or_a_value_error(data: bytes) -> None:
    try:
        assert isinstance(decode(data), Request)
    except ValueError:
        return


def test_a_long_complaint_is_cut() -> None:
    message = DeltaDiscoveryRequest(type_url="T", error_detail=Status(message="x" * 10 * MAX_ERROR_CHARACTERS))
    assert decode(bytes(message)).error == "x" * MAX_ERROR_CHARACTERS
