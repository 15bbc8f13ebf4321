"""`python -m kruntimes.runtimed` as the node starts it: a certificate by CSR, the real Runtime Server, a real call.

The test plays operator (signs, assigns), node (makes the Pod) and gateway (calls with a certificate of that role).
"""

import asyncio
import base64
import json
import os
import signal
import ssl
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.runtimed_pods import Authority
from tests.runtimed_world import Cluster, cluster

from kruntimes.common.api.names import METRICS_PORT, Role
from kruntimes.common.api.views import CSR, Object, Run, condition
from kruntimes.common.kube import errors, paths

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]

HOST = "127.78.4.1"
ROOT = Path(__file__).parents[3]
CODE = "import os\n\ndef main(event):\n    return {'hello': event['name'], 'greeting': os.environ['GREETING']}\n"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def place(control_plane: Path) -> AsyncIterator[Cluster]:
    async with cluster(control_plane) as made:
        yield made


async def sign_for(place: Cluster, authority: Authority, uri: str) -> None:
    """Approves and signs every request for *uri*: the operator's part, without its checks."""
    while True:
        for request in (await place.kube.list(paths.csrs(), CSR))[0]:
            asked = x509.load_pem_x509_csr(base64.b64decode(request.spec.request))
            names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            if request.status.certificate or uri not in names.get_values_for_type(x509.UniformResourceIdentifier):
                continue
            chain = authority.issue(asked).public_bytes(serialization.Encoding.PEM)
            approved = {"type": "Approved", "status": "True", "reason": "Test", "message": "", "lastUpdateTime": None}
            name = request.metadata.name
            await place.kube.patch_merge(paths.csrs(name, "approval"), {"status": {"conditions": [approved]}}, dict)
            signed = {"status": {"certificate": base64.b64encode(chain).decode()}}
            await place.kube.patch_merge(paths.csrs(name, "status"), signed, dict)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def a_pod(place: Cluster, name: str) -> AsyncIterator[str]:
    """The UID of a Pod that nobody runs, with the label and address that a runtimed and its peers look for.

    Deleted, it stays until the end, as one does whose containers still work.
    """
    body = {
        "metadata": {"name": name, "labels": {"runtime": "python"}, "finalizers": ["tests.kruntimes.io/hold"]},
        "spec": {"containers": [{"name": "runtime", "image": "example.org/none"}]},
    }
    made = await place.kube.create(paths.pods(place.namespace), body, Object)
    address = {"status": {"phase": "Running", "podIP": HOST, "podIPs": [{"ip": HOST}]}}
    await place.kube.patch_merge(paths.pods(place.namespace, name, "status"), address, Object)
    try:
        yield made.metadata.uid
    finally:
        with suppress(errors.Missing):
            free = {"metadata": {"finalizers": []}}
            await place.kube.patch_merge(paths.pods(place.namespace, name), free, Object)


@asynccontextmanager
async def process(*arguments: str, env: dict[str, str], log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process of ours that is asked to end, and then made to."""
    with log.open("wb") as out:
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *arguments, env=os.environ | env, stdout=out, stderr=out, cwd=ROOT
        )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(15):
                    await running.wait()
            except TimeoutError:
                running.kill()
                await running.wait()


async def token_for(place: Cluster) -> str:
    """A ServiceAccount that may get Runs."""
    namespace, rbac = place.namespace, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}"
    await place.kube.create(paths.serviceaccounts(namespace), {"metadata": {"name": "caller"}}, dict)
    rules = [{"apiGroups": ["kruntimes.io"], "resources": ["runs"], "verbs": ["get"]}]
    await place.kube.create(f"{rbac}/roles", {"metadata": {"name": "caller"}, "rules": rules}, dict)
    binding = {
        "metadata": {"name": "caller"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "caller"},
        "subjects": [{"kind": "ServiceAccount", "name": "caller", "namespace": namespace}],
    }
    await place.kube.create(f"{rbac}/rolebindings", binding, dict)
    request = {"spec": {"expirationSeconds": 600}}
    answer = await place.kube.create(paths.serviceaccounts(namespace, "caller", "token"), request, dict)
    token: str = answer["status"]["token"]
    return token


async def health(session: aiohttp.ClientSession, path: str) -> int:
    """The status of that page of runtimed's, 0 where nobody answers."""
    try:
        async with session.get(f"http://{HOST}:{METRICS_PORT}{path}") as response:
            return response.status
    except aiohttp.ClientError:
        return 0


async def healthy(session: aiohttp.ClientSession, path: str) -> None:
    async with asyncio.timeout(30):
        while await health(session, path) != 200:
            await asyncio.sleep(0.05)


async def call(run: Run, tls: ssl.SSLContext, token: str, pod_uid: str, body: dict[str, Any]) -> tuple[int, Any]:
    """What Envoy does with a request for *run*."""
    assert run.status.endpoint is not None
    path = run.status.endpoint.url.removeprefix("https://gateway:8443")
    headers = {
        "authorization": f"Bearer {token}",
        "x-kruntime-invocation-id": "id-1",
        "x-kr-epoch": f"{run.metadata.uid}/{run.status.attempt}/{pod_uid}",
        "content-type": "application/json",
    }
    name = f"{pod_uid}.runtimed.kruntimes.internal"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
        session.post(f"https://{HOST}:9443{path}", json=body, headers=headers, server_hostname=name) as response,
    ):
        return response.status, json.loads(await response.read())


async def test_a_whole_life(place: Cluster, control_plane: Path, tmp_path: Path) -> None:
    pod = f"python-{uuid.uuid4().hex[:6]}"
    async with a_pod(place, pod) as pod_uid:
        await a_whole_life(place, control_plane, tmp_path, pod, pod_uid)


async def a_whole_life(place: Cluster, control_plane: Path, tmp_path: Path, pod: str, pod_uid: str) -> None:
    authority, token = Authority(), await token_for(place)
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "workspace").mkdir()
    shared = {
        "KUBECONFIG": str(control_plane),
        "KRUNTIMES_EXECUTOR_SOCKET": str(tmp_path / "executor.sock"),
        "KRUNTIMES_FUNCTIONS_SOCKET": str(tmp_path / "functions.sock"),
        "KRUNTIMES_WORKSPACE": str(tmp_path / "workspace"),
        "KRUNTIMES_STATE_DIR": str(tmp_path),
        "KRUNTIMES_BIND_ADDRESS": HOST,
    }
    mine = {
        "KRUNTIMES_NAMESPACE": place.namespace,
        "KRUNTIMES_RUNTIME": "python",
        "KRUNTIMES_POD_NAME": pod,
        "KRUNTIMES_POD_UID": pod_uid,
        "KRUNTIMES_POD_IP": HOST,
        "KRUNTIMES_GATEWAY_URL": "https://gateway:8443",
        "KRUNTIMES_CA_FILE": str(tmp_path / "ca.crt"),
        "KRUNTIMES_MAX_TIMEOUT": "60",
    }
    uri = f"spiffe://cluster.local/ns/{place.namespace}/runtimed/python/pod/{pod_uid}"
    log = tmp_path / "runtimed.log"
    async with asyncio.TaskGroup() as tasks, aiohttp.ClientSession() as session:
        signer = tasks.create_task(sign_for(place, authority, uri))
        async with process("kruntimes.runtimed", env=shared | mine, log=log) as runtimed:
            await healthy(session, "/healthz")
            assert await health(session, "/readyz") == 503, "it waits for its Runtime Server"
            runtime_env = shared | {"KRUNTIMES_RUNTIMED_PID": str(runtimed.pid)}
            arguments = ("kruntimes.runtime", "--host", "python", "--metrics-port", "0")
            async with process(*arguments, env=runtime_env, log=tmp_path / "runtime.log"):
                await healthy(session, "/readyz")
                run = await place.create(
                    source={"inline": CODE, "inlinePath": "handler.py"},
                    env=[{"name": "GREETING", "value": "hi"}],
                    retryPolicy={"maxAttempts": 2},
                )
                await place.assign(run, pod_uid)
                run = await place.until(run, lambda seen: seen.status.phase == "Ready")
                assert run.status.endpoint is not None
                assert base64.b64decode(run.status.endpoint.ca_bundle or "") == authority.pem
                tls = authority.workload(Role.GATEWAY, pod_uid="g", owner="kruntimes").client_ssl()
                assert await call(run, tls, token, pod_uid, {"name": "you"}) == (
                    200,
                    {"hello": "you", "greeting": "hi"},
                )
                status, failed = await call(run, tls, token, pod_uid, {"no": "name"})
                assert (status, failed["error"]["details"]["type"]) == (500, "KeyError")
                lease = await place.kube.get(paths.leases(place.namespace, pod), dict)
                assert lease["spec"]["holderIdentity"] == pod_uid
                assert lease["metadata"]["ownerReferences"][0]["uid"] == pod_uid
                assert await health(session, "/drain") == 409, "nobody empties a Pod that stays"
                await place.kube.delete(paths.pods(place.namespace, pod), grace_seconds=30)
                assert await health(session, "/drain") == 200
                run = await place.until(run, lambda seen: seen.status.phase == "Pending")
                ready = condition(run.status.conditions, "Ready")
                assert ready is not None
                assert ready.reason == "FencedUnregistered"
        assert runtimed.returncode == 0, log.read_text()[-2000:]
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        ended = [line for line in lines if line["message"] == "invocation ended"]
        assert [(line["status"], line["run_uid"]) for line in ended] == [
            (200, run.metadata.uid),
            (500, run.metadata.uid),
        ]
        assert "functions socket connected" in {line["message"] for line in lines}
        assert token not in log.read_text()
        signer.cancel()
