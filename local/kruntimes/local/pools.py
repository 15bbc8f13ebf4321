"""Whether a Runtime can serve on this node. Pure: objects in, numbers out (design §10)."""

from collections.abc import Iterable

from kruntimes.common.api.names import RUNTIME_LABEL
from kruntimes.common.api.views import Runtime
from kruntimes.local.node.pods import NodePod


def serving(runtime: Runtime, pods: Iterable[NodePod]) -> int:
    """How many of *pods*, those of this node, serve *runtime*, and are known to do so by the operator.

    Its status alone may still speak of the Pods of an instance before this one, on a control plane that outlives them.
    """
    meta = runtime.metadata
    ready = sum(
        pod.gate_open("Ready") and not pod.metadata.deleting
        for pod in pods
        if (pod.metadata.namespace, pod.metadata.labels.get(RUNTIME_LABEL)) == (meta.namespace, meta.name)
    )
    return min(runtime.status.ready_replicas, ready)
