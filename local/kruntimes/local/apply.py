"""Puts objects on the API server, whatever their kind (design §10)."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from kruntimes.common import clock
from kruntimes.common.api.names import NAME_LABEL
from kruntimes.common.api.views import Object, Run
from kruntimes.common.errors import Terminal
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import AlreadyExists, ApiError, Missing, TooManyRequests
from kruntimes.common.kube.transport import Kube

MANAGER = "krt-dev"
ESTABLISH_SECONDS = 30.0
DELETE_SECONDS = 30.0
"""The operator has to start first, and a function's clean-up may wait for its invocation in flight."""
POLL_SECONDS = 0.05


class Refused(Terminal):
    """The API server does not take an object; the message names it and says why."""


class Applier:
    """Applies objects to one API server; remembers where each kind lives."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}

    async def path(self, obj: Mapping[str, Any], *, default_namespace: str) -> str:
        """The path of *obj*, found by discovery. Raises Refused for a kind that the server does not have."""
        version, kind, meta = obj["apiVersion"], obj["kind"], obj["metadata"]
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if kind not in self._kinds.get(version, {}):
            try:
                found = await self._kube.get(root, dict)
            except Missing:
                found = {}
            resources = [r for r in found.get("resources", []) if "/" not in r["name"]]
            self._kinds[version] = {r["kind"]: (r["name"], r["namespaced"]) for r in resources}
        if kind not in self._kinds[version]:
            raise Refused(f"{kind} {meta['name']}: the API server has no {kind} in {version}")
        plural, namespaced = self._kinds[version][kind]
        scope = f"/namespaces/{quote(meta.get('namespace') or default_namespace, safe='')}" if namespaced else ""
        return f"{root}{scope}/{plural}/{quote(meta['name'], safe='')}"

    async def apply(self, obj: Mapping[str, Any], *, default_namespace: str = "default") -> None:
        """Applies one object on the server's side. Raises Refused."""
        path = await self.path(obj, default_namespace=default_namespace)
        try:
            await self._kube.apply(path, obj, Object, manager=MANAGER)
        except ApiError as error:
            raise Refused(f"{obj['kind']} {obj['metadata']['name']}: {error.message}") from None

    async def establish(self, crds: list[dict[str, Any]]) -> None:
        """Applies CustomResourceDefinitions and waits until their kinds are served."""
        async with asyncio.TaskGroup() as group:
            for crd in crds:
                group.create_task(self._establish(crd))

    async def _establish(self, crd: dict[str, Any]) -> None:
        await self.apply(crd)
        async with asyncio.timeout(ESTABLISH_SECONDS):
            while True:
                found = await self._kube.get(paths.crds(crd["metadata"]["name"]), dict)
                conditions = found.get("status", {}).get("conditions") or []
                established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
                if established and await self._served(crd["spec"]):
                    return
                await asyncio.sleep(POLL_SECONDS)

    async def _served(self, spec: Mapping[str, Any]) -> bool:
        """Whether every version of a kind answers: 404, and then 429, come for a moment after it was established."""
        for version in spec["versions"]:
            path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
            try:
                await self._kube.request("GET", path, query={"limit": "1"})
            except (Missing, TooManyRequests):
                return False
        return True

    async def replace_run(self, obj: Mapping[str, Any], *, default_namespace: str = "default") -> Run:
        """Declares a Run anew: one of that name is deleted first, since specifications are immutable.

        So are those that have taken its place. Raises Refused, also where the old one does not go in time.
        """
        meta = obj["metadata"]
        namespace, name = meta.get("namespace") or default_namespace, meta["name"]
        later, _ = await self._kube.list(paths.runs(namespace), Object, label_selector=NAME_LABEL)
        for run in later:
            if run.metadata.labels.get(NAME_LABEL) == name:
                with contextlib.suppress(Missing):
                    await self._kube.delete(paths.runs(namespace, run.metadata.name))
        with contextlib.suppress(Missing):
            await self._kube.delete(paths.runs(namespace, name))
        end = clock.monotonic() + DELETE_SECONDS
        while await self._exists(paths.runs(namespace, name)):
            if clock.monotonic() > end:
                raise Refused(f"Run {name}: the one of that name does not go; see `kubectl describe run {name}`")
            await asyncio.sleep(POLL_SECONDS)
        try:
            return await self._kube.create(paths.runs(namespace), obj, Run)
        except ApiError as error:
            raise Refused(f"Run {name}: {error.message}") from None

    async def recreate(self, obj: Mapping[str, Any], path: str) -> None:
        """Creates *obj* in the collection *path* in the place of one that a dead instance has left."""
        try:
            await self._kube.create(path, obj, Object)
        except AlreadyExists:
            await self._kube.delete(f"{path}/{quote(obj['metadata']['name'], safe='')}", grace_seconds=0)
            await self._kube.create(path, obj, Object)
        except ApiError as error:
            raise Refused(f"{obj['kind']} {obj['metadata']['name']}: {error.message}") from None

    async def _exists(self, path: str) -> bool:
        try:
            await self._kube.get(path, Object)
        except Missing:
            return False
        return True
