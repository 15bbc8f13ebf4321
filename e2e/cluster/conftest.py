"""The tests of an installation by its chart; only with `--cluster`, since they install it."""

import pytest
from cluster.release import Cluster


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster that KUBECONFIG names."""
    found: Cluster = request.getfixturevalue("release_cluster")
    return found


@pytest.fixture
def release(cluster: Cluster) -> Cluster:
    """The cluster with the release on it."""
    cluster.install()
    return cluster
