"""A namespace of a real API server with Runs and callers, and authz's service on a socket."""

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry

from kruntimes.authz.decide import Policy
from kruntimes.authz.index import Index
from kruntimes.authz.metrics import Metrics
from kruntimes.authz.server import Authorizer, serve
from kruntimes.common.access import Access
from kruntimes.common.api import manifests
from kruntimes.common.api.names import API_VERSION
from kruntimes.common.api.views import Object
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.transport import Kube

LIMIT_SECONDS = 60.0
POLL_SECONDS = 0.05
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
JSON = dict[str, Any]


async def until_there(kube: Kube, path: str) -> None:
    """Waits until *path* can be read."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            try:
                await kube.get(path, dict)
                return
            except (errors.Missing, errors.TooManyRequests):  # a CRD that was made a moment ago
                await asyncio.sleep(POLL_SECONDS)


@dataclass(frozen=True)
class World:
    """Two namespaces of one's own."""

    kube: Kube
    namespace: str
    elsewhere: str

    async def add_run(self, name: str, namespace: str | None = None) -> str:
        """Creates a function Run and returns its UID."""
        body = {
            "apiVersion": API_VERSION,
            "kind": "Run",
            "metadata": {"name": name},
            "spec": {
                "runtime": "python",
                "mode": {"function": {"handler": "main.handle"}},
                "source": {"inline": "def handle(event): return event", "inlinePath": "main.py"},
            },
        }
        made = await self.kube.create(paths.runs(namespace or self.namespace), body, Object)
        return made.metadata.uid

    async def add_caller(self, name: str, rules: list[JSON]) -> str:
        """Creates a ServiceAccount that may do what *rules* say in the namespace, and returns a token of it."""
        meta = {"metadata": {"name": name}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount"} | meta
        await self.kube.create(paths.serviceaccounts(self.namespace), account, dict)
        if rules:
            rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
            api = {"apiVersion": "rbac.authorization.k8s.io/v1"}
            await self.kube.create(f"{rbac}/roles", api | {"kind": "Role", "rules": rules} | meta, dict)
            subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
            binding = {"kind": "RoleBinding", "subjects": [subject], "roleRef": reference}
            await self.kube.create(f"{rbac}/rolebindings", api | binding | meta, dict)
        return await self.token_of(name)

    async def token_of(self, name: str, *, audiences: tuple[str, ...] = ()) -> str:
        """A fresh token of a ServiceAccount."""
        spec: JSON = {"expirationSeconds": 600} | ({"audiences": list(audiences)} if audiences else {})
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = paths.serviceaccounts(self.namespace, name, "token")
        answer: JSON = json.loads(await self.kube.request("POST", path, body=body))
        return str(answer["status"]["token"])


@asynccontextmanager
async def world(kubeconfig: Path) -> AsyncIterator[World]:
    """The CRDs, and two new namespaces that go at the end."""
    kube = await Kube.connect(kubeconfig=kubeconfig)
    try:
        for crd in manifests.crds():
            await kube.apply(paths.crds(crd["metadata"]["name"]), crd, dict, manager="tests")
        for collection in (paths.runs(None), paths.runtimes(None)):
            await until_there(kube, collection)
        name = f"authz-{random.getrandbits(40):x}"
        made = World(kube, name, f"{name}-elsewhere")
        for namespace in (made.namespace, made.elsewhere):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await kube.create(paths.namespaces(), body, dict)
        yield made
        for namespace in (made.namespace, made.elsewhere):
            await kube.delete(paths.namespaces(namespace))
    finally:
        await kube.close()


def forged(token: str) -> str:
    """The same claims but a later end, under the old signature."""
    head, claims, signature = token.split(".")
    read = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    read["exp"] += 3600
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(read).encode()).rstrip(b'=').decode()}.{signature}"


@dataclass
class Authz:
    """The service, as Envoy would call it."""

    http: aiohttp.ClientSession
    index: Index
    events: list[str]

    async def check(
        self, path: str, token: str | None, *, method: str = "POST", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], JSON]:
        """Status, headers (names in lower case) and JSON document of one check."""
        sent = dict(headers or {})
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        async with self.http.request(method, path, headers=sent) as answer:
            body = await answer.read()
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, headers, json.loads(body)["error"] if body else {}


@asynccontextmanager
async def authz(kube: Kube, socket: Path, policy: Policy | None = None) -> AsyncIterator[Authz]:
    """authz's service with a synced index."""
    index, events = Index(kube), list[str]()
    async with asyncio.TaskGroup() as tasks:
        access = Access(kube, tasks=tasks, count=events.append)
        metrics = Metrics(CollectorRegistry())
        authorizer = Authorizer(index=index, access=access, policy=policy or Policy(), metrics=metrics)
        runner = await serve(authorizer, socket)
        watching = tasks.create_task(index.run())
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while not index.synced:
                    await asyncio.sleep(POLL_SECONDS)
            connector = aiohttp.UnixConnector(str(socket))
            async with aiohttp.ClientSession("http://authz", connector=connector) as http:
                yield Authz(http, index, events)
        finally:
            watching.cancel()
            await runner.cleanup()
