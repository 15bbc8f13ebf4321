"""A real control plane with an installation of ours in it, and the parts that the tests play themselves.

There is no node: the test is kubelet (it says that a Pod is ready) and runtimed (it renews the heartbeat).
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml
from prometheus_client import CollectorRegistry

from kruntimes.common import clock
from kruntimes.common.api import manifests
from kruntimes.common.api.settings import Settings
from kruntimes.common.api.views import Pod, Runtime
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import ApiError, Missing
from kruntimes.common.kube.transport import Kube
from kruntimes.controller.main import LEASE, Operator
from kruntimes.controller.metrics import Metrics
from kruntimes.controller.signer import ensure_authority
from kruntimes.controller.views import ControlledRun

Json = dict[str, Any]
T = TypeVar("T")

LIMIT_SECONDS = 30.0
"""For anything that a controller of Kubernetes or of ours must do; on a busy machine a few seconds."""


async def eventually(what: Callable[[], Awaitable[T | None]], limit: float = LIMIT_SECONDS) -> T:
    """Asks again until there is an answer that is neither None nor False."""
    async with asyncio.timeout(limit):
        while True:
            found = await what()
            if found is not None and found is not False:
                return found
            await asyncio.sleep(0.02)


class World:
    """An administrator's client, the installation's namespace, and one for Runtimes and Runs."""

    def __init__(self, admin: Kube, kubeconfig: Path, folder: Path) -> None:
        self.admin = admin
        self._kubeconfig = kubeconfig
        self._folder = folder
        tag = uuid.uuid4().hex[:8]
        self.system, self.namespace = f"op-{tag}", f"fn-{tag}"

    async def install(self) -> None:
        """Namespaces, CRDs and roles, as an installation makes them."""
        for name in (self.system, self.namespace):
            await self.admin.create(paths.namespaces(), {"metadata": {"name": name}}, dict)
        for crd in manifests.crds():
            await self._apply(paths.crds(crd["metadata"]["name"]), crd)
        for obj in manifests.rbac(namespace=self.system):
            meta = obj["metadata"]
            group = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
            scope = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
            await self._apply(f"{group}{scope}/{obj['kind'].lower()}s/{meta['name']}", obj)
        await eventually(self._served)

    async def remove(self) -> None:
        """Takes the namespaces with everything in them; finalizers of Runs first."""
        runs, _ = await self.admin.list(paths.runs(self.namespace), ControlledRun)
        for run in runs:
            path = paths.runs(self.namespace, run.metadata.name)
            await self.admin.patch_merge(path, {"metadata": {"finalizers": None}}, dict)
        for name in (self.system, self.namespace):
            await self.admin.delete(paths.namespaces(name))

    def kubeconfig(self, token: str) -> Path:
        """A kubeconfig that acts with a ServiceAccount's *token*."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        config["users"] = [{"name": one["name"], "user": {"token": token}} for one in config["users"]]
        file = self._folder / f"{uuid.uuid4().hex}.kubeconfig"
        file.write_text(yaml.safe_dump(config))
        return file

    async def client(self, token: str) -> Kube:
        """A client that acts with a ServiceAccount's *token*."""
        return await Kube.connect(kubeconfig=self.kubeconfig(token))

    async def token(self, namespace: str, account: str, pod: Pod | None = None) -> str:
        """A token of a ServiceAccount, bound to *pod* where one is given."""
        spec: Json = {"expirationSeconds": 600}
        if pod is not None:
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
            }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made: Json = await self.admin.create(paths.serviceaccounts(namespace, account, "token"), body, dict)
        return str(made["status"]["token"])

    def settings(self, **more: Any) -> Settings:
        """The operator's, for this installation."""
        values: Json = {
            "namespace": self.system,
            "gateway_url": "https://gateway.test:8443",
            "daemon_image": "registry.test/kruntimes:1",
            "gateway_names": ("gateway.test", "127.0.0.1"),
        }
        return Settings(**(values | more))

    @asynccontextmanager
    async def operator(self, client: type[Kube] = Kube) -> AsyncIterator[Operator]:
        """A leading operator with the roles of an installation and no more. client: what it speaks through."""
        token = await self.token(self.system, "kruntimes-operator")
        kube = await client.connect(kubeconfig=self.kubeconfig(token))
        authority = await ensure_authority(kube, self.system)
        operator = Operator(kube, self.settings(), authority, metrics=Metrics(CollectorRegistry()))
        task = asyncio.create_task(operator.run())
        # An election renews its Lease all the time, which is the sign of life of the heartbeats' watch.
        renewing = asyncio.create_task(self._renew_election())
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while not operator.started:
                    assert not task.done(), task.exception()
                    await asyncio.sleep(0.01)
            yield operator
            assert not task.done(), task.exception()
        finally:
            for one in (task, renewing):
                one.cancel()
            await asyncio.gather(task, renewing, return_exceptions=True)
            await kube.close()

    async def runtime(self, name: str, *, replicas: int = 1, runs: int = 2, **spec: Any) -> Runtime:
        """Declares a Runtime, or changes it."""
        template = spec.pop("template", {"spec": {"containers": [{"name": "runtime", "image": "registry.test/py:1"}]}})
        body = {
            "apiVersion": "kruntimes.io/v1alpha1",
            "kind": "Runtime",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "template": template,
                "replicas": replicas,
                "capacity": {"resources": {"runs": str(runs)}},
            }
            | spec,
        }
        return await self.admin.apply(paths.runtimes(self.namespace, name), body, Runtime, manager="test")

    async def pods(self, runtime: str, count: int) -> list[Pod]:
        """Waits for a Runtime to have exactly *count* Pods that are not being deleted."""

        async def found() -> list[Pod] | None:
            pods, _ = await self.admin.list(paths.pods(self.namespace), Pod, label_selector=f"runtime={runtime}")
            left = [pod for pod in pods if not pod.metadata.deleting]
            return left if len(left) == count else None

        return await eventually(found)

    async def beat(self, pod: Pod, *, age: float = 0.0) -> None:
        """Renews a Pod's heartbeat as its runtimed does."""
        meta = pod.metadata
        body: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}],
            },
            "spec": {
                "holderIdentity": meta.uid,
                "leaseDurationSeconds": 30,
                "renewTime": _micro(clock.wall() - age),
            },
        }
        await self.admin.apply(paths.leases(meta.namespace, meta.name), body, dict, manager="test")

    async def make_ready(self, pod: Pod) -> None:
        """Says of a Pod what kubelet says when its containers run and its gate is open."""
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": clock.rfc3339(clock.utcnow())}
            for kind in ("ContainersReady", "Ready")
        ]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions},
        }
        path = paths.pods(pod.metadata.namespace, pod.metadata.name, "status")
        await self.admin.apply(path, body, dict, manager="kubelet")

    async def bind(self, pod: Pod) -> None:
        """Gives a Pod a node: one without is called Failed by Kubernetes soon after its deletion, which is a fence."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.metadata.name},
            "target": {"kind": "Node", "name": "elsewhere"},
        }
        await self.admin.create(f"{paths.pods(self.namespace, pod.metadata.name)}/binding", body, dict)

    async def ready_pods(self, runtime: str, count: int) -> list[Pod]:
        """Waits for a Runtime's Pods and brings them to life."""
        pods = await self.pods(runtime, count)
        for pod in pods:
            await self.beat(pod)
            await self.make_ready(pod)
        return pods

    async def create_run(self, name: str, runtime: str, **spec: Any) -> ControlledRun:
        """Declares a function Run."""
        body = {
            "apiVersion": "kruntimes.io/v1alpha1",
            "kind": "Run",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "runtime": runtime,
                "source": {"inline": "def handler(event): return event", "inlinePath": "f.py"},
                "mode": {"function": {"handler": "f.handler"}},
            }
            | spec,
        }
        return await self.admin.create(paths.runs(self.namespace), body, ControlledRun)

    async def run(self, name: str) -> ControlledRun | None:
        """The Run as it stands, None where there is none."""
        try:
            return await self.admin.get(paths.runs(self.namespace, name), ControlledRun)
        except Missing:
            return None

    async def until(self, name: str, holds: Callable[[ControlledRun], bool]) -> ControlledRun:
        """Waits for a Run to be as it should."""

        async def found() -> ControlledRun | None:
            run = await self.run(name)
            return run if run is not None and holds(run) else None

        return await eventually(found)

    async def write_status(self, name: str, status: Mapping[str, Any]) -> ControlledRun:
        """Writes a Run's status as its runtimed does."""
        path = paths.runs(self.namespace, name, "status")
        return await self.admin.patch_merge(path, {"status": status}, ControlledRun)

    async def _apply(self, path: str, body: Json) -> None:
        await self.admin.apply(path, body, dict, manager="test")

    async def _served(self) -> bool:
        try:
            await self.admin.list(paths.runs(None), ControlledRun)
            await self.admin.list(paths.runtimes(None), Runtime)
        except ApiError:
            return False
        return True

    async def _renew_election(self) -> None:
        while True:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": LEASE, "namespace": self.system},
                "spec": {"holderIdentity": "test", "renewTime": _micro(clock.wall())},
            }
            await self.admin.apply(paths.leases(self.system, LEASE), body, dict, manager="test")
            await asyncio.sleep(2)


def _micro(moment: float) -> str:
    return clock.rfc3339_micro(datetime.fromtimestamp(moment, UTC))


@asynccontextmanager
async def world(kubeconfig: Path, folder: Path) -> AsyncIterator[World]:
    """An installation that goes with the test."""
    admin = await Kube.connect(kubeconfig=kubeconfig)
    made = World(admin, kubeconfig, folder)
    await made.install()
    try:
        yield made
    finally:
        await made.remove()
        await admin.close()
