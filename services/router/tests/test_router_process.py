"""`python -m kruntimes.router` against a real kube-apiserver: from objects to the wire."""

import asyncio
import base64
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.router_client import Client, connected
from tests.router_gateway import LIMIT_SECONDS, Pki

from kruntimes.common.api import manifests
from kruntimes.common.api.names import ADS_PORT, METRICS_PORT, Role
from kruntimes.common.api.views import CSR
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.transport import MERGE_PATCH, Kube
from kruntimes.router.encode import CLUSTERS, ROUTES
from kruntimes.router.main import SIGNER

NAMESPACE = f"router-{os.getpid()}"
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "FunctionRegistered",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
HOST = f"127.79.{os.getpid() % 250}.1"


async def set_status(kube: Kube, path: str, status: dict[str, Any]) -> None:
    await kube.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)


async def install(kube: Kube) -> None:
    """The CRDs, established, and a namespace of our own."""
    for crd in manifests.crds():
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        await kube.apply(path, crd, dict, manager="test")
    async with asyncio.timeout(LIMIT_SECONDS):
        for path in (paths.runs(None), paths.runtimes(None)):
            while True:
                try:
                    await kube.list(path, dict)
                    break
                except errors.Missing:
                    await asyncio.sleep(0.05)
    await kube.create(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, dict
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            try:
                await kube.get(paths.serviceaccounts(NAMESPACE, "default"), dict)
                return
            except errors.Missing:
                await asyncio.sleep(0.05)


@pytest.fixture
async def kube(control_plane: Path) -> AsyncIterator[Kube]:
    made = await Kube.connect(kubeconfig=control_plane)
    try:
        await install(made)
        yield made
        await made.delete(f"/api/v1/namespaces/{NAMESPACE}")
    finally:
        await made.close()


async def sign(kube: Kube, pki: Pki) -> None:
    """Issues what the router's process asks for, as the operator would."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            found, _ = await kube.list(paths.csrs(), CSR, field_selector=f"spec.signerName={SIGNER}")
            if waiting := [each for each in found if not each.status.certificate and not each.status.conditions]:
                break
            await asyncio.sleep(0.05)
    for request in waiting:
        path = paths.csrs(request.metadata.name)
        held = await kube.get(path, dict)
        condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "test"}
        held["status"] = {"conditions": [condition]}
        held = await kube.replace(f"{path}/approval", held, dict)
        chain = pki.sign_request(base64.b64decode(request.spec.request))
        held["status"]["certificate"] = base64.b64encode(chain).decode()
        await kube.replace(f"{path}/status", held, dict)


@contextlib.asynccontextmanager
async def router_process(control_plane: Path, ca_file: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KRUNTIMES_")} | {
        "KUBECONFIG": str(control_plane),
        "KRUNTIMES_NAMESPACE": "kruntimes-system",
        "KRUNTIMES_POD_UID": "5f0c8a4e-0000-4000-8000-000000000001",
        "KRUNTIMES_TRUST_DOMAIN": "test",
        "KRUNTIMES_CA_FILE": str(ca_file),
        "KRUNTIMES_BIND_ADDRESS": HOST,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kruntimes.router", env=environment, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until_ready(process: asyncio.subprocess.Process) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(LIMIT_SECONDS):
        while process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://{HOST}:{METRICS_PORT}/readyz") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.05)
    raise AssertionError("the router has ended")


async def a_function(kube: Kube, name: str, pod_uid: str) -> str:
    """Makes a Run that is Ready on that Pod; returns its UID."""
    run = {
        "apiVersion": "kruntimes.io/v1alpha1",
        "kind": "Run",
        "metadata": {"name": name},
        "spec": {
            "runtime": "python",
            "source": {"inline": "def handler(event): return event", "inlinePath": "f.py"},
            "mode": {"function": {"handler": "f.handler"}},
        },
    }
    made = await kube.create(paths.runs(NAMESPACE), run, dict)
    status = {
        "phase": "Ready",
        "assignedPod": "p",
        "assignedPodUID": pod_uid,
        "attempt": 1,
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [READY],
    }
    await set_status(kube, paths.runs(NAMESPACE, name, "status"), status)
    return str(made["metadata"]["uid"])


async def test_the_process_publishes_what_the_api_server_holds(kube: Kube, control_plane: Path, tmp_path: Path) -> None:
    pki = Pki()
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(pki.ca)
    template = {"spec": {"containers": [{"name": "runtime", "image": "x"}]}}
    runtime = {
        "apiVersion": "kruntimes.io/v1alpha1",
        "kind": "Runtime",
        "metadata": {"name": "python"},
        "spec": {"template": template, "replicas": 1},
    }
    await kube.create(paths.runtimes(NAMESPACE), runtime, dict)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"runtime": "python"}},
        "spec": {**template["spec"], "nodeName": "nowhere", "terminationGracePeriodSeconds": 0},
    }
    pod_uid = (await kube.create(paths.pods(NAMESPACE), pod, dict))["metadata"]["uid"]
    ready = {"phase": "Running", "podIP": "10.9.8.7", "podIPs": [{"ip": "10.9.8.7"}], "conditions": [READY]}
    await set_status(kube, paths.pods(NAMESPACE, "p", "status"), ready)
    first = await a_function(kube, "first", pod_uid)

    async with router_process(control_plane, ca_file) as process:
        async with asyncio.TaskGroup() as group:
            group.create_task(sign(kube, pki))
            group.create_task(until_ready(process))
        gateway = pki.issue(Role.GATEWAY, pod_uid="g")
        async with connected(f"{HOST}:{ADS_PORT}", gateway, pki.ca) as client:
            await client.send(CLUSTERS)
            await client.until(CLUSTERS, f"{NAMESPACE}/python", b"10.9.8.7")
            await subscribe(client, first)
            await client.until(ROUTES, f"runs-{first[:3]}", f"{first}/1/{pod_uid}".encode())

            second = await a_function(kube, "second", pod_uid)
            await subscribe(client, second)
            await client.until(ROUTES, f"runs-{second[:3]}", b"10.9.8.7:9443")

            lost = {"conditions": [{**READY, "status": "False", "reason": "RuntimePodLost"}]}
            await set_status(kube, paths.runs(NAMESPACE, "first", "status"), lost)
            await withdrawn(client, first)
            await set_status(kube, paths.runs(NAMESPACE, "second", "status"), {"phase": "Cancelled"})
            await withdrawn(client, second)
            await kube.delete(paths.runtimes(NAMESPACE, "python"))
            await client.until(CLUSTERS, f"{NAMESPACE}/python", None)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT_SECONDS):
            assert await process.wait() == 0


async def subscribe(client: Client, uid: str) -> None:
    await client.send(ROUTES, resource_names_subscribe=[f"runs-{uid[:3]}"])


async def withdrawn(client: Client, uid: str) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while uid.encode() in client.world[ROUTES][f"runs-{uid[:3]}"]:
            await client.receive()
