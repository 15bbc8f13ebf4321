"""When a Runtime counts as ready on a control plane that others have used before."""

import pytest

from kruntimes.common.api.views import Runtime, RuntimeStatus
from kruntimes.local.node.pods import NodePod, NodePodMeta, NodePodStatus
from kruntimes.local.pools import serving


def pod(*, of: str = "python", namespace: str = "default", ready: bool = True, deleting: bool = False) -> NodePod:
    deleted = "2026-01-01T00:00:00Z" if deleting else None
    meta = NodePodMeta(namespace=namespace, labels={"runtime": of}, deletion_timestamp=deleted)
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return NodePod(metadata=meta, status=NodePodStatus(conditions=(condition,)))


@pytest.mark.parametrize(
    ("status", "pods", "expected"),
    [
        pytest.param(2, [], 0, id="the-status-is-of-an-instance-before"),
        pytest.param(2, [pod(ready=False)], 0, id="not-ready-yet"),
        pytest.param(2, [pod(of="bash"), pod(namespace="other")], 0, id="others"),
        pytest.param(2, [pod(deleting=True)], 0, id="a-pod-that-goes"),
        pytest.param(2, [pod(), pod(ready=False)], 1, id="one-of-two"),
        pytest.param(0, [pod(), pod()], 0, id="the-operator-has-not-seen-it-yet"),
        pytest.param(2, [pod(), pod()], 2, id="all"),
    ],
)
def test_what_counts_is_what_runs_here(status: int, pods: list[NodePod], expected: int) -> None:
    meta = NodePodMeta(name="python", namespace="default")
    runtime = Runtime(metadata=meta, status=RuntimeStatus(ready_replicas=status))
    assert serving(runtime, pods) == expected
