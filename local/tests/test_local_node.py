"""The node on a real API server: Pods become processes, and nothing of them is left."""

import asyncio
import os
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kruntimes.common.api.views import Lease, Object
from kruntimes.common.errors import Busy
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import Missing
from kruntimes.common.kube.transport import Kube
from kruntimes.local.instance import Instance
from kruntimes.local.node import claim
from kruntimes.local.node.context import Access, Context
from kruntimes.local.node.node import Node
from kruntimes.local.node.pods import NodePod
from kruntimes.local.node.probes import Prober

LIMIT = 20.0


async def until(what: Callable[[], Awaitable[Any]], limit: float = LIMIT) -> Any:
    """Waits until *what* returns something true, and returns it."""
    async with asyncio.timeout(limit):
        while not (found := await what()):
            await asyncio.sleep(0.05)
        return found


def access_of(kubeconfig: Path) -> Access:
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    return Access(server=cluster["server"], ca_file=Path(cluster["certificate-authority"]))


class World:
    """One node with a namespace of its own."""

    def __init__(self, kube: Kube, node: Node, instance: Instance, namespace: str) -> None:
        self.kube, self.node, self.instance, self.namespace = kube, node, instance, namespace

    async def create(self, name: str, spec: dict[str, Any], **meta: Any) -> NodePod:
        spec = {**spec, "schedulerName": self.namespace}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}
        return await self.kube.create(paths.pods(self.namespace), body, NodePod)

    async def pod(self, name: str) -> dict[str, Any] | None:
        try:
            return await self.kube.get(paths.pods(self.namespace, name), dict)
        except Missing:
            return None

    async def condition(self, name: str, kind: str) -> str:
        pod = await self.pod(name)
        found = [c["status"] for c in (pod or {}).get("status", {}).get("conditions", []) if c["type"] == kind]
        return found[0] if found else ""

    async def ready(self, name: str) -> dict[str, Any]:
        async def look() -> bool:
            return await self.condition(name, "Ready") == "True"

        await until(look)
        pod = await self.pod(name)
        assert pod is not None
        return pod

    async def gone(self, name: str) -> bool:
        return await self.pod(name) is None

    def log(self, pod: str, container: str) -> str:
        path = self.instance.logs / f"{self.namespace}_{pod}" / f"{container}.log"
        return path.read_text() if path.exists() else ""


@asynccontextmanager
async def node_on(control_plane: Path) -> AsyncIterator[World]:
    kube = await Kube.connect(kubeconfig=control_plane)
    instance = Instance.open(draw=random.Random())
    prober = Prober()
    name = f"test-{uuid.uuid4().hex[:8]}"
    context = Context(
        name=name, kube=kube, access=access_of(control_plane), addresses=instance.addresses, prober=prober,
        folder=instance.folder, logs=instance.logs, path=os.environ["PATH"], hold=instance.hold,
    )  # fmt: skip
    node = Node(context, scheduler=name)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await kube.create(paths.namespaces(), namespace, Object)

    async def account() -> bool:
        try:
            await kube.get(paths.serviceaccounts(name, "default"), Object)
            await kube.get(paths.configmaps(name, "kube-root-ca.crt"), Object)
        except Missing:
            return False
        return True

    await until(account)
    running = asyncio.create_task(node.run())
    try:
        yield World(kube, node, instance, name)
        await node.stop(grace=2.0, limit=15.0)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await kube.delete(paths.namespaces(name))
        await prober.close()
        await kube.close()
        await asyncio.to_thread(instance.close)
        assert not instance.folder.exists()


@pytest.fixture
async def world(control_plane: Path) -> AsyncIterator[World]:
    async with node_on(control_plane) as world:
        yield world


def sh(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "none", "command": ["sh", "-c", script], **more}


SERVE = "exec python3 -u -m http.server --bind $POD_IP 8000"
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
UP = {"httpGet": {"path": "/", "port": 8000}}


async def test_a_pod_is_bound_started_in_order_and_reported(world: World) -> None:
    spec = {
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "initContainers": [
            sh("first", "echo made > /shared/it", volumeMounts=[{"name": "shared", "mountPath": "/shared"}]),
            sh("helper", SERVE, env=[POD_IP], restartPolicy="Always", startupProbe=UP),
        ],
        "containers": [
            sh(
                "main", 'cat "$PLACE"; echo at $(MINE); sleep 600',
                env=[{"name": "PLACE", "value": "/shared/it"}, POD_IP, {"name": "MINE", "value": "[$(POD_IP)]"}],
                volumeMounts=[{"name": "shared", "mountPath": "/shared"}],
            ),
        ],
    }  # fmt: skip
    await world.create("p", spec)
    pod = await world.ready("p")
    address = pod["status"]["podIP"]
    assert address.startswith("127.77.")
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"

    async def said() -> bool:
        return world.log("p", "main") == f"made\nat [{address}]\n"

    await until(said)


async def test_a_readiness_gate_holds_ready_back_and_is_kept(world: World) -> None:
    gate = "example.com/Gate"
    await world.create("p", {"containers": [sh("main", "sleep 600")], "readinessGates": [{"conditionType": gate}]})

    async def containers_ready() -> bool:
        return await world.condition("p", "ContainersReady") == "True"

    await until(containers_ready)
    assert await world.condition("p", "Ready") == "False"
    pod = await world.pod("p")
    assert pod is not None
    conditions = [*pod["status"]["conditions"], {"type": gate, "status": "True"}]
    await world.kube.patch_merge(
        paths.pods(world.namespace, "p", "status"), {"status": {"conditions": conditions}}, dict
    )
    await world.ready("p")
    assert await world.condition("p", gate) == "True"


async def test_a_deleted_pod_ends_in_order_and_takes_every_process_along(world: World) -> None:
    detach = "(setsid sh -c 'echo $$$$ > /out/orphan; sleep 600' &) ; "
    mount = [{"name": "out", "mountPath": "/out"}]
    stop = {"preStop": {"httpGet": {"path": "/drain", "port": 8000, "host": ""}}}
    spec = {
        "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "out", "emptyDir": {}}],
        "initContainers": [sh("helper", SERVE, env=[POD_IP], restartPolicy="Always", startupProbe=UP)],
        "containers": [
            sh(
                "main", detach + "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1; done",
                volumeMounts=mount, lifecycle=stop,
            ),
        ],
    }  # fmt: skip
    pod = await world.create("p", spec)
    await world.ready("p")
    orphan = world.instance.folder / "p" / pod.metadata.uid[:8] / "v" / "out" / "orphan"

    async def detached() -> int:
        return int(orphan.read_text() or 0) if orphan.exists() else 0

    pid = await until(detached)
    await world.kube.delete(paths.pods(world.namespace, "p"))
    await until(lambda: world.gone("p"))
    assert not Path(f"/proc/{pid}").exists()
    assert "asked" in world.log("p", "main")
    assert "/drain" in world.log("p", "helper")

    async def removed() -> bool:
        return not orphan.exists()

    await until(removed)


async def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(world: World) -> None:
    spec = {"terminationGracePeriodSeconds": 1, "containers": [sh("main", "trap '' TERM; while :; do sleep 0.1; done")]}
    await world.create("p", spec)
    await world.ready("p")
    await world.kube.delete(paths.pods(world.namespace, "p"))
    await until(lambda: world.gone("p"))


async def test_a_killed_service_is_started_again(world: World) -> None:
    await world.create("p", {"containers": [sh("main", "echo started; sleep 600")]})
    before = (await world.ready("p"))["status"]["containerStatuses"][0]
    os.kill(int(before["containerID"].removeprefix("process://")), 9)

    async def again() -> bool:
        pod = await world.pod("p")
        assert pod is not None
        return bool(pod["status"]["containerStatuses"][0]["restartCount"] == 1)

    await until(again)
    await world.ready("p")
    assert world.log("p", "main") == "started\nstarted\n"


async def test_a_killed_process_of_a_controlled_pod_loses_the_pod_which_is_replaced(world: World) -> None:
    labels = {"app": "x"}
    pod = {"containers": [sh("main", "sleep 600")], "schedulerName": world.namespace}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "x"}, "spec": spec}
    await world.kube.create(paths.replicasets(world.namespace), body, Object)

    async def one() -> NodePod | None:
        pods, _ = await world.kube.list(paths.pods(world.namespace), NodePod)
        ready = [p for p in pods if p.gate_open("Ready") and not p.metadata.deleting]
        return ready[0] if ready else None

    first = await until(one)
    shown = await world.ready(first.metadata.name)
    os.kill(int(shown["status"]["containerStatuses"][0]["containerID"].removeprefix("process://")), 9)
    await until(lambda: world.gone(first.metadata.name))
    assert (await until(one)).metadata.uid != first.metadata.uid
    await world.kube.delete(paths.replicasets(world.namespace, "x"), propagation="Background")


async def test_volumes_hold_what_kubelet_would_write_and_a_token_of_that_pod(world: World) -> None:
    key = {"name": "settings", "namespace": world.namespace}
    where = "/var/run/secrets/kubernetes.io/serviceaccount"
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    spec = {
        "automountServiceAccountToken": False,
        "volumes": [
            {"name": "token", "projected": {"sources": sources}},
            {"name": "s", "configMap": {"name": "settings"}},
        ],
        "containers": [
            sh(
                "main", f"while :; do cat /etc/s/a > {where}/../seen; sleep 0.1; done",
                volumeMounts=[{"name": "token", "mountPath": where}, {"name": "s", "mountPath": "/etc/s"}],
            ),
        ],
    }  # fmt: skip
    pod = await world.create("p", spec)

    async def waits() -> str:
        found = await world.pod("p")
        statuses = (found or {}).get("status", {}).get("containerStatuses", [{}])
        return str(statuses[0].get("state", {}).get("waiting", {}).get("message", ""))

    assert await until(waits) == "ConfigMap settings does not exist"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": key, "data": {"a": "one"}}
    await world.kube.create(paths.configmaps(world.namespace), body, dict)
    await world.ready("p")
    folder = world.instance.folder / "p" / pod.metadata.uid[:8]
    assert (folder / "v" / "token" / "namespace").read_text() == world.namespace
    assert (folder / "v" / "token" / "ca.crt").read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert oct(folder.stat().st_mode & 0o777) == "0o700"
    own = await Kube.connect(kubeconfig=folder / "c" / "main" / "kubeconfig")
    try:
        who = await own.create(
            paths.self_subject_reviews(),
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            dict,
        )
    finally:
        await own.close()
    assert who["status"]["userInfo"]["username"] == f"system:serviceaccount:{world.namespace}:default"
    assert who["status"]["userInfo"]["extra"]["authentication.kubernetes.io/pod-uid"] == [pod.metadata.uid]
    await world.kube.patch_merge(paths.configmaps(world.namespace, "settings"), {"data": {"a": "two"}}, dict)
    seen = folder / "v" / "seen"

    async def two() -> bool:
        return seen.exists() and seen.read_text() == "two"

    await until(two)


async def test_a_container_that_names_no_command_says_so(world: World) -> None:
    await world.create("p", {"containers": [{"name": "main", "image": "registry.example/app:1"}]})

    async def trouble() -> str:
        pod = await world.pod("p")
        statuses = (pod or {}).get("status", {}).get("containerStatuses", [{}])
        return str(statuses[0].get("state", {}).get("terminated", {}).get("message", ""))

    assert "names no command" in await until(trouble)


async def test_one_instance_at_a_time_holds_a_node(control_plane: Path) -> None:
    kube = await Kube.connect(kubeconfig=control_plane)
    name = f"test-{uuid.uuid4().hex[:8]}"
    try:
        await claim.claim(kube, name=name)
        await claim.claim(kube, name=name)
        sleeper = await asyncio.create_subprocess_exec("sleep", "600")
        other = claim.Holder(claim.boot_id(), sleeper.pid, claim.start_ticks(sleeper.pid))
        body = {"spec": {"holderIdentity": str(other)}}
        await kube.patch_merge(paths.leases(claim.NAMESPACE, name), body, Lease)
        with pytest.raises(Busy, match=f"process {sleeper.pid}"):
            await claim.claim(kube, name=name)
        sleeper.kill()
        await sleeper.wait()
        await claim.claim(kube, name=name)
        assert (await kube.get(paths.leases(claim.NAMESPACE, name), Lease)).spec.holder_identity == str(
            claim.Holder.me()
        )
    finally:
        await claim.release(kube, name=name)
        await kube.close()


class SlowToCreate:
    """An API server that takes its time to create the node, and does not know one that is gone."""

    def __init__(self) -> None:
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()
        self.known: set[str] = set()

    async def create(self, path: str, body: Any, kind: Any) -> Any:
        self.asked.set()
        await self.goes_on.wait()
        self.known.add(f"{path}/{body['metadata']['name']}")

    async def patch_merge(self, path: str, body: Any, kind: Any) -> Any:
        if path.removesuffix("/status") not in self.known:
            raise Missing(status=404, reason="NotFound", message="no such node")

    async def delete(self, path: str) -> None:
        self.known.discard(path)


async def test_an_end_in_the_midst_of_the_registration_comes_after_it(tmp_path: Path) -> None:
    server = SlowToCreate()
    context = Context(
        name="n", kube=server, access=Access(server="", ca_file=tmp_path), addresses=None, prober=None,  # type: ignore[arg-type]
        folder=tmp_path, logs=tmp_path, path="",
    )  # fmt: skip
    node = Node(context)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(node._register())
        await server.asked.wait()
        ending = group.create_task(node.stop(grace=1.0, limit=LIMIT))
        for _ in range(3):
            await asyncio.sleep(0)
        server.goes_on.set()
    assert running.done()
    assert ending.done()
    assert server.known == set()
    await node._register()
    assert server.known == set(), "nothing is registered after the end"
