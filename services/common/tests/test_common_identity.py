"""A workload's name in its certificate, read strictly."""

import pytest

from kruntimes.common import identity
from kruntimes.common.api.names import Role, spiffe_id
from kruntimes.common.identity import Peer

GOOD = "spiffe://cluster.local/ns/demo/runtimed/python-3.11/pod/2c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"


def test_the_name_that_is_asked_for_is_the_name_that_is_read() -> None:
    peer = Peer(trust_domain="td.example", namespace="demo", role=Role.GATEWAY, owner="Release_1", pod_uid="u-1")
    uri = spiffe_id(
        trust_domain=peer.trust_domain,
        namespace=peer.namespace,
        role=peer.role,
        owner=peer.owner,
        pod_uid=peer.pod_uid,
    )
    assert identity.parse(uri) == peer


@pytest.mark.parametrize(
    "uri",
    [
        "",
        GOOD + "/",
        GOOD + "\n",
        GOOD.replace("spiffe://", "https://"),
        GOOD.replace("spiffe://", "SPIFFE://"),
        GOOD.replace("cluster.local", ""),
        GOOD.replace("cluster.local", "cluster.local:443"),
        GOOD.replace("/demo/", "/Demo/"),
        GOOD.replace("/demo/", "/../"),
        GOOD.replace("runtimed", "operator"),
        GOOD.replace("runtimed/", "runtimed/x/"),
        GOOD.replace("/pod/", "/sa/"),
        GOOD.replace("python-3.11", "py%2Fthon"),
        GOOD.replace("-3dd16a12d1e6", "-É"),
    ],
    ids=repr,
)
def test_anything_else_names_nobody(uri: str) -> None:
    assert identity.parse(uri) is None


@pytest.mark.parametrize("uris", [[], [GOOD, GOOD], [GOOD, "https://example.org"]], ids=["none", "twice", "two"])
def test_only_a_single_uri_names_somebody(uris: list[str]) -> None:
    assert identity.from_uris([GOOD]) is not None
    assert identity.from_uris(uris) is None
