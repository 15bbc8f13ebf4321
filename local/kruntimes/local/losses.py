"""What a person is told when something dies while everything runs (design §10). Pure: Pods in, sentences out."""

from collections.abc import Mapping
from dataclasses import dataclass

from kruntimes.local.node.pods import NodePod


@dataclass(frozen=True, slots=True)
class Seen:
    """What is remembered of the Pods of a node: restarts by Pod UID and container, and names by UID.

    ending: Pods whose deletion somebody asked for; their end is no loss.
    """

    restarts: Mapping[tuple[str, str], int]
    names: Mapping[str, str]
    ending: frozenset[str]


def seen(pods: Mapping[str, NodePod]) -> Seen:
    """What is to be remembered of *pods*."""
    restarts = {
        (pod.metadata.uid, str(status.get("name"))): int(status.get("restartCount") or 0)
        for pod in pods.values()
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    }
    names = {pod.metadata.uid: pod.metadata.name for pod in pods.values()}
    return Seen(restarts, names, frozenset(pod.metadata.uid for pod in pods.values() if pod.metadata.deleting))


def sentences(before: Seen, now: Seen) -> list[str]:
    """One for each container that was started again, and for each Pod that went without being asked to."""
    found = [
        f"{container} of Pod {now.names[uid]} ended, and is started again"
        for (uid, container), count in now.restarts.items()
        if count > before.restarts.get((uid, container), 0)
    ]
    gone = sorted(name for uid, name in before.names.items() if uid not in now.names and uid not in before.ending)
    return found + [f"Pod {name} is lost" for name in gone]
