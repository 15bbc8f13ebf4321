"""Drains the Envoy beside us before its Pod ends (design §8, §13).

Envoy's `preStop` calls /drain and is held until no request is left. Meanwhile Envoy is not ready, takes what still
comes, and has each connection closed after its next answer, so that callers move to another Pod. Whoever else calls is
told to go away: the order counts only while our own Pod is being deleted.
"""

import asyncio
import logging
from pathlib import Path

import aiohttp
from aiohttp import web

from kruntimes.common.api.views import Object
from kruntimes.common.errors import KruntimesError
from kruntimes.common.kube import paths
from kruntimes.common.kube.transport import Kube

log = logging.getLogger(__name__)

ADMIN_SECONDS = 5.0
"""Envoy's admin interface answers at once or not at all."""
SETTLE_SECONDS = 3.0
"""What a Service may take to forget a Pod that is being deleted: until then there may be requests to come."""
POLL_SECONDS = 0.5
_ACTIVE = "http.api.downstream_rq_active"


class Drain:
    """The handler of /drain. longest: the seconds that a request may still take."""

    def __init__(self, kube: Kube, *, namespace: str, pod_name: str, pod_uid: str, admin: Path, longest: float) -> None:
        self._kube = kube
        self._path = paths.pods(namespace, pod_name)
        self._pod_uid = pod_uid
        self._admin = admin
        self._longest = longest

    async def handle(self, _: web.Request) -> web.Response:
        """200 once Envoy has nothing left to do, 409 while the Pod is not being deleted, 503 if Envoy is not there."""
        if not await self._deleting():
            return web.Response(status=409, text="this Pod is not being deleted\n")
        try:
            return await self._drain()
        except (aiohttp.ClientError, TimeoutError):
            log.warning("envoy does not drain")
            return web.Response(status=503, text="envoy does not answer\n")

    async def _deleting(self) -> bool:
        """Whether our own Pod has a deletionTimestamp; not knowing counts as no."""
        try:
            pod = await self._kube.get(self._path, Object)
        except KruntimesError as error:
            log.warning("own pod cannot be read", extra={"error": str(error)})
            return False
        return pod.metadata.uid == self._pod_uid and pod.metadata.deleting

    async def _drain(self) -> web.Response:
        timeout = aiohttp.ClientTimeout(total=ADMIN_SECONDS)
        async with aiohttp.ClientSession(
            "http://envoy", connector=aiohttp.UnixConnector(str(self._admin)), timeout=timeout, raise_for_status=True
        ) as envoy:
            async with envoy.post("/healthcheck/fail"):
                log.info("envoy drains")
            await asyncio.sleep(SETTLE_SECONDS)
            async with asyncio.timeout(self._longest):
                while True:
                    if await active_requests(envoy) == 0:
                        return web.Response(text="drained\n")
                    await asyncio.sleep(POLL_SECONDS)


async def active_requests(envoy: aiohttp.ClientSession) -> int:
    """The requests that Envoy has begun and not ended."""
    async with envoy.get("/stats", params={"filter": f"^{_ACTIVE}$", "format": "json"}) as answer:
        stats = (await answer.json(content_type=None))["stats"]
    return sum(int(stat["value"]) for stat in stats if stat.get("name") == _ACTIVE)
