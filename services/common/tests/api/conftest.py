"""A real API server that knows our kinds, and a namespace of our own on it."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.api_server import FUNCTION, GROUP, RUNTIME, Server, until

from kruntimes.common.api import manifests


@pytest.fixture(scope="session")
def server(control_plane: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server with our CRDs."""
    server = Server(control_plane, tmp_path_factory.mktemp("kubeconfig"))
    with server.http:
        for crd in manifests.crds():
            name = crd["metadata"]["name"]
            applied = server.apply(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", crd)
            assert applied["kind"] == "CustomResourceDefinition", applied
        probe = f"{GROUP}/namespaces/default"
        for plural, obj in (("runs", FUNCTION), ("runtimes", RUNTIME)):
            until(lambda p=plural, o=obj: server.call("POST", f"{probe}/{p}", o, dryRun="All").get("kind") == o["kind"])
        yield server


@pytest.fixture(scope="session")
def namespace(server: Server) -> Iterator[str]:
    """A namespace that goes with the tests."""
    name = f"api-{uuid.uuid4().hex[:8]}"
    server.done("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    server.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def runs(namespace: str) -> str:
    """The path of the Runs of our namespace."""
    return f"{GROUP}/namespaces/{namespace}/runs"


@pytest.fixture(scope="session")
def runtimes(namespace: str) -> str:
    """The path of the Runtimes of our namespace."""
    return f"{GROUP}/namespaces/{namespace}/runtimes"
