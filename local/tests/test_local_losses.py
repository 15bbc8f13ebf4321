"""What a person is told of what dies."""

import pytest

from kruntimes.local.losses import seen, sentences
from kruntimes.local.node.pods import NodePod, NodePodMeta, NodePodStatus


def pod(name: str, *, uid: str = "", deleting: bool = False, **restarts: int) -> NodePod:
    statuses = tuple({"name": container, "restartCount": count} for container, count in restarts.items())
    meta = NodePodMeta(name=name, uid=uid or name, deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None)
    return NodePod(
        metadata=meta, status=NodePodStatus(container_statuses=statuses[:1], init_container_statuses=statuses[1:])
    )


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        pytest.param([pod("a", x=1)], [pod("a", x=1)], [], id="nothing-happens"),
        pytest.param([], [pod("a", x=0)], [], id="a-pod-begins"),
        pytest.param(
            [pod("a", x=0, y=1)],
            [pod("a", x=1, y=2)],
            ["y of Pod a ended, and is started again", "x of Pod a ended, and is started again"],
            id="restarts",
        ),
        pytest.param([pod("a", x=0), pod("b")], [pod("b")], ["Pod a is lost"], id="a-pod-is-lost"),
        pytest.param([pod("a", x=0, deleting=True)], [], [], id="a-pod-that-was-to-go-goes"),
        pytest.param([pod("a", uid="1", x=4)], [pod("a", uid="2", x=0)], ["Pod a is lost"], id="another-of-that-name"),
    ],
)
def test_what_is_told(before: list[NodePod], now: list[NodePod], said: list[str]) -> None:
    def named(pods: list[NodePod]) -> dict[str, NodePod]:
        return {one.metadata.name: one for one in pods}

    assert sentences(seen(named(before)), seen(named(now))) == said
