"""The gateway Pod as it runs: the authz process against a real API server, and the Envoy that it makes ready."""

import asyncio
import base64
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from cryptography import x509
from tests.authz_world import World, world
from tests.gateway_rig import POLL_SECONDS, Gateway, eventually, random_uid

from kruntimes.authz.main import SIGNER
from kruntimes.common.api.names import METRICS_PORT, SERVING_SIGNER, Role, pod_dns
from kruntimes.common.api.views import CSR, Object
from kruntimes.common.kube import paths
from kruntimes.common.kube.transport import Kube

LIMIT_SECONDS = 60.0


def asked_names(request: CSR) -> set[str]:
    """The DNS names and addresses that are asked for."""
    parsed = x509.load_pem_x509_csr(base64.b64decode(request.spec.request))
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


async def sign(kube: Kube, made: Gateway) -> None:
    """Issues both certificates that the process asks for, as the operator would."""
    owed = {SIGNER: pod_dns(pod_uid=made.pod_uid, role=Role.GATEWAY), SERVING_SIGNER: made.host}
    async with asyncio.timeout(LIMIT_SECONDS):
        while owed:
            for request in (await kube.list(paths.csrs(), CSR))[0]:
                signer = request.spec.signer_name
                if signer not in owed or owed[signer] not in asked_names(request):
                    continue
                path = paths.csrs(request.metadata.name)
                held = await kube.get(path, dict)
                approved = {"type": "Approved", "status": "True", "reason": "Test", "message": "test"}
                held["status"] = {"conditions": [approved]}
                held = await kube.replace(f"{path}/approval", held, dict)
                chain = made.authority.sign(base64.b64decode(request.spec.request))
                held["status"]["certificate"] = base64.b64encode(chain).decode()
                await kube.replace(f"{path}/status", held, dict)
                del owed[signer]
            await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def authz_process(
    control_plane: Path, made: Gateway, *, ads_port: int, pod_name: str, namespace: str, ca_file: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KRUNTIMES_")} | {
        "KUBECONFIG": str(control_plane),
        "KRUNTIMES_NAMESPACE": namespace,
        "KRUNTIMES_POD_NAME": pod_name,
        "KRUNTIMES_POD_UID": made.pod_uid,
        "KRUNTIMES_CA_FILE": str(ca_file),
        "KRUNTIMES_ADS_ADDRESS": f"127.0.0.1:{ads_port}",
        "KRUNTIMES_GATEWAY_NAMES": f"localhost,{made.host}",
        "KRUNTIMES_GATEWAY_BIND_PORT": str(made.port),
        "KRUNTIMES_GATEWAY_DIR": str(made.folder),
        "KRUNTIMES_BIND_ADDRESS": made.host,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kruntimes.authz", env=environment, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT_SECONDS):
            _, log = await process.communicate()
        assert process.returncode == 0, log.decode()


async def healthy(made: Gateway, path: str) -> bool:
    try:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://{made.host}:{METRICS_PORT}{path}")).status_code == 200
    except httpx.TransportError:
        return False


async def add_pod(there: World, name: str) -> str:
    """The gateway's own Pod, which a finalizer keeps when it is deleted."""
    container = {"name": "envoy", "image": "none"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "finalizers": ["kruntimes.io/test"]},
        "spec": {"containers": [container], "nodeName": "nowhere", "terminationGracePeriodSeconds": 0},
    }
    return (await there.kube.create(paths.pods(there.namespace), body, Object)).metadata.uid


async def test_the_gateway_pod(control_plane: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("gw")
    async with world(control_plane) as there:
        made = Gateway(folder / "run")
        made.folder.mkdir()
        made.host, made.stats_port = f"127.80.{random.randrange(1, 255)}.{random.randrange(1, 255)}", 9901
        made.namespace = there.namespace
        made.pod_uid = await add_pod(there, "gateway-0")
        ca_file = folder / "ca.crt"
        ca_file.write_bytes(made.authority.pem)
        rules = [{"apiGroups": ["kruntimes.io"], "resources": ["runs"], "verbs": ["get", "list"]}]
        token = await there.add_caller("caller", rules)
        uid = await there.add_run("hello")
        async with (
            made.serving_routes() as ads_port,
            authz_process(
                control_plane,
                made,
                ads_port=ads_port,
                pod_name="gateway-0",
                namespace=there.namespace,
                ca_file=ca_file,
            ),
        ):
            assert not (made.folder / "envoy.yaml").exists()
            await sign(there.kube, made)
            await eventually(lambda: healthy(made, "/healthz"))
            await eventually(lambda: healthy(made, "/readyz"))
            made.publish()
            await made.start_envoy()
            try:
                await eventually(made.is_ready)
                await drive(there, made, uid=uid, token=token)
            finally:
                await made.stop_envoy()
                await there.kube.patch_merge(
                    paths.pods(there.namespace, "gateway-0"), {"metadata": {"finalizers": None}}, dict
                )


async def drive(there: World, made: Gateway, *, uid: str, token: str) -> None:
    """Is refused, invokes, and drains while the invocation is under way."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        begun.set()
        await go_on.wait()
        return web.Response(body=b"done")

    drain = f"http://{made.host}:{METRICS_PORT}/drain"
    caller, stranger = {"authorization": f"Bearer {token}"}, {"authorization": "Bearer garbage"}
    async with made.pod(answer) as pod, made.client() as client, httpx.AsyncClient(timeout=LIMIT_SECONDS) as operator:
        path = made.path(await made.add_run(pod, uid=uid))
        unknown = await client.post(made.path(random_uid()), headers=caller)
        assert (unknown.status_code, unknown.json()["error"]["reason"]) == (404, "RunNotFound")
        refused = await client.post(path, headers=stranger)
        assert (refused.status_code, refused.json()["error"]["component"]) == (401, "authz")

        async with asyncio.TaskGroup() as group:
            invoking = group.create_task(client.post(path, headers=caller, content=b"{}"))
            await begun.wait()
            assert (await operator.get(drain)).status_code == 409, "our Pod is not being deleted"
            await there.kube.delete(paths.pods(there.namespace, "gateway-0"))
            draining = group.create_task(operator.get(drain))
            await eventually(lambda: closing(client))
            assert not draining.done(), "it is held until the last request has ended"
            go_on.set()
        assert (invoking.result().status_code, invoking.result().content) == (200, b"done")
        assert draining.result().status_code == 200
        [(_, seen, headers, body)] = pod.seen
        assert (seen, headers["x-kr-epoch"], body) == (path, f"{uid}/1/{pod.uid}", b"{}")


async def closing(client: httpx.AsyncClient) -> bool:
    """Whether Envoy asks callers to go elsewhere."""
    return (await client.post("/x")).headers.get("connection") == "close"
