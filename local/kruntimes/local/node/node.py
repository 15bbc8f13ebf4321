"""The node of `krt dev`: registers itself, binds Pods to itself, and runs each as processes (design §10)."""

import asyncio
import logging
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from kruntimes.common import clock
from kruntimes.common.api.names import GROUP
from kruntimes.common.api.views import Object
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import AlreadyExists, ApiError, Conflict, Missing
from kruntimes.common.kube.reflector import Reflector
from kruntimes.local.node.context import HOST_IP, Context
from kruntimes.local.node.plan import Ending, backoff
from kruntimes.local.node.pods import NodePod
from kruntimes.local.node.runner import Runner
from kruntimes.local.node.volumes import ConfigMap

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
"""Below the 20 s and more after which a controller manager calls a silent node unreachable."""
RETRY_SECONDS = 0.5
LOCAL_LABEL = f"{GROUP}/local"
"""On nodes that are no machines of a cluster but processes of a person's own."""
SCHEDULER = "default-scheduler"
FORGET_LOSSES_SECONDS = 60.0
"""A controller whose Pods were not lost for so long starts its back-off anew."""


def labels(name: str) -> dict[str, str]:
    """The labels that every node has."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine,
        LOCAL_LABEL: "true",
    }


def status(*, now: str, since: str, log_port: int | None) -> dict[str, Any]:
    """The node's status: ready, with room for as many Pods as it has addresses."""
    resources = {"cpu": str(os.cpu_count() or 1), "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "250"}
    conditions = [
        {"type": "Ready", "status": "True", "reason": "KrtDevReady", "message": "krt dev runs Pods as processes"},
        {"type": "MemoryPressure", "status": "False", "reason": "NotMeasured", "message": ""},
        {"type": "DiskPressure", "status": "False", "reason": "NotMeasured", "message": ""},
        {"type": "PIDPressure", "status": "False", "reason": "NotMeasured", "message": ""},
    ]
    document: dict[str, Any] = {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": "localhost"}],
        "nodeInfo": {
            "kubeletVersion": f"v{version('kruntimes')}+krt-dev",
            "kernelVersion": platform.release(),
            "architecture": platform.machine(),
            "operatingSystem": "linux",
            "osImage": "",
            "containerRuntimeVersion": "process://",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kubeProxyVersion": "",
        },
        "conditions": [c | {"lastHeartbeatTime": now, "lastTransitionTime": since} for c in conditions],
    }
    if log_port is not None:
        document["daemonEndpoints"] = {"kubeletEndpoint": {"Port": log_port}}
    return document


class Node:
    """One node. `run` until cancelled; `stop` ends its Pods first, while `run` still runs.

    The node is its own scheduler: it takes every Pod that asks for *scheduler* and is not bound yet, for the control
    plane it stands on has no other node.
    """

    def __init__(self, context: Context, *, log_port: int | None = None, scheduler: str = SCHEDULER) -> None:
        self._kube = context.kube
        self._log_port = log_port
        self._runners: dict[str, Runner] = {}
        self._losses: dict[str, tuple[int, float]] = {}
        self._since = clock.rfc3339(clock.utcnow())
        self._stopping = False
        self._known = asyncio.Lock()
        """Held while the Node object is made and while it is deleted: an end in the midst of a start is after it."""
        self._started: asyncio.Queue[Runner] = asyncio.Queue()
        self._bindable: asyncio.Queue[str] = asyncio.Queue()
        bound, free = f"spec.nodeName={context.name}", f"spec.nodeName=,spec.schedulerName={scheduler}"
        self._pods = Reflector(self._kube, paths.pods(None), NodePod, field_selector=bound, on_change=self._seen)
        self._unbound = Reflector(
            self._kube, paths.pods(None), Object, field_selector=free, metadata_only=True,
            on_change=self._bindable.put_nowait,
        )  # fmt: skip
        self._config_maps = Reflector(
            self._kube, paths.configmaps(None), ConfigMap, on_change=lambda _: self._refresh()
        )
        self._context = replace(context, config_maps=self._config_maps.store)

    @property
    def pods(self) -> Mapping[str, NodePod]:
        """The Pods bound to this node, `namespace/name`."""
        return self._pods.store

    def config_map(self, key: str) -> ConfigMap | None:
        """A ConfigMap by `namespace/name`, as far as it is known yet."""
        return self._config_maps.store.get(key)

    async def run(self) -> None:
        """Runs the node until cancelled; then every process that is left is killed."""
        await self._register()
        async with asyncio.TaskGroup() as group:
            for service in (
                self._heartbeat(),
                self._config_maps.run(),
                self._pods.run(),
                self._unbound.run(),
                self._bind(),
            ):
                group.create_task(service)
            while True:
                runner = await self._started.get()
                group.create_task(self._run(runner))

    async def stop(self, *, grace: float, limit: float) -> None:
        """Ends every Pod: those that a controller made first, so that they are drained while the services live.

        grace: seconds that each Pod gets at the most. limit: seconds after which what is left is given up on.
        """
        self._stopping = True
        try:
            async with asyncio.timeout(limit):
                await self._end([r for r in self._runners.values() if r.pod.controlled], grace)
                await self._end(list(self._runners.values()), grace)
                async with self._known:
                    await self._kube.delete(paths.nodes(self._context.name))
        except (TimeoutError, ApiError) as error:
            log.warning("node not stopped in order", extra={"error": str(error)})

    async def clear(self) -> None:
        """Removes the Pods that an instance before this one has left: its processes ended with it."""
        old, _ = await self._kube.list(paths.pods(None), Object, field_selector=f"spec.nodeName={self._context.name}")
        for pod in old:
            try:
                path = paths.pods(pod.metadata.namespace, pod.metadata.name)
                await self._kube.delete(path, uid=pod.metadata.uid, grace_seconds=0)
            except (Missing, Conflict):
                continue

    async def _register(self) -> None:
        """Makes the Node object, unless the node is to end."""
        name = self._context.name
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels(name)}}
        async with self._known:
            if self._stopping:
                return
            try:
                await self._kube.create(paths.nodes(), body, Object)
            except AlreadyExists:
                log.debug("node exists")
            await self._write_status()

    async def _write_status(self) -> None:
        now = clock.rfc3339(clock.utcnow())
        body = {"status": status(now=now, since=self._since, log_port=self._log_port)}
        await self._kube.patch_merge(paths.nodes(self._context.name, "status"), body, Object)

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await self._write_status()
            except ApiError as error:
                log.warning("heartbeat failed", extra={"error": str(error)})

    async def _bind(self) -> None:
        """Binds each Pod that has no node yet; one that was bound or deleted meanwhile is left alone."""
        while True:
            key = await self._bindable.get()
            pod = self._unbound.store.get(key)
            if pod is None or pod.metadata.deleting or self._stopping:
                continue
            meta = pod.metadata
            target = {"apiVersion": "v1", "kind": "Node", "name": self._context.name}
            body = {
                "apiVersion": "v1", "kind": "Binding", "target": target,
                "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            }  # fmt: skip
            try:
                await self._kube.create(paths.pods(meta.namespace, meta.name, "binding"), body, dict)
            except (Missing, Conflict):
                continue
            except ApiError as error:
                log.warning("pod not bound", extra={"pod": key, "error": str(error)})
                await asyncio.sleep(RETRY_SECONDS)
                self._bindable.put_nowait(key)

    def _seen(self, key: str) -> None:
        """A Pod of this node appeared, changed, or went."""
        pod = self._pods.store.get(key)
        for runner in self._runners.values():
            if runner.pod.metadata.key == key and (pod is None or runner.pod.metadata.uid != pod.metadata.uid):
                runner.gone = True
                runner.wake()
        if pod is None:
            return
        known = self._runners.get(pod.metadata.uid)
        if known is not None:
            known.update(pod)
        elif pod.status.phase not in ("Succeeded", "Failed"):
            runner = self._runners[pod.metadata.uid] = Runner(self._context, pod)
            self._started.put_nowait(runner)

    def _refresh(self) -> None:
        for runner in self._runners.values():
            runner.refresh()

    async def _run(self, runner: Runner) -> None:
        """Runs one Pod; a fault in our own code costs that Pod and no other."""
        meta = runner.pod.metadata
        owner = next((o.uid for o in meta.owner_references if o.controller), "")
        await asyncio.sleep(self._delay(owner))
        try:
            ended = await runner.run()
        except Exception:
            log.exception("pod failed", extra={"pod": meta.key})
            ended = Ending.LOST
        finally:
            self._runners.pop(meta.uid, None)
            runner.finished.set()
        if ended is Ending.LOST:
            self._losses[owner] = (self._losses.get(owner, (0, 0.0))[0] + 1, clock.monotonic())

    def _delay(self, owner: str) -> float:
        """How long the next Pod of a controller whose Pods are lost one after the other has to wait."""
        count, last = self._losses.get(owner, (0, 0.0))
        if clock.monotonic() - last > FORGET_LOSSES_SECONDS:
            self._losses.pop(owner, None)
            return 0.0
        return backoff(count - 1)

    async def _end(self, runners: Sequence[Runner], grace: float) -> None:
        """Deletes Pods and waits until nothing of them runs."""
        async with asyncio.TaskGroup() as group:
            for runner in runners:
                runner.grace_cap = grace
                group.create_task(self._delete(runner, grace))
        for runner in runners:
            await runner.finished.wait()

    async def _delete(self, runner: Runner, grace: float) -> None:
        meta = runner.pod.metadata
        try:
            path = paths.pods(meta.namespace, meta.name)
            await self._kube.delete(path, uid=meta.uid, grace_seconds=math.ceil(grace))
        except ApiError:
            runner.gone = True
        runner.wake()
