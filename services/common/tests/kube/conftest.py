"""Clients of a small API server that misbehaves on request, and of the real one."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from tests.kube.kube_faults import LIMIT_SECONDS, FaultyServer

from kruntimes.common.api.views import Object
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.transport import Kube


@pytest.fixture
async def server() -> AsyncIterator[FaultyServer]:
    faulty = FaultyServer()
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", faulty.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    faulty.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield faulty
    await runner.cleanup()


@pytest.fixture
async def kube(server: FaultyServer, tmp_path: Path) -> AsyncIterator[Kube]:
    """A client of the faulty server that acts with the token `our-own-token`."""
    client = await Kube.connect(kubeconfig=server.kubeconfig(tmp_path, {"token": "our-own-token"}))
    yield client
    await client.close()


@pytest.fixture
async def real(control_plane: Path) -> AsyncIterator[Kube]:
    """The administrator's client of a real API server."""
    client = await Kube.connect(kubeconfig=control_plane)
    yield client
    await client.close()


@pytest.fixture
async def namespace(real: Kube) -> AsyncIterator[str]:
    """A namespace of the test's own on the real API server."""
    name = f"common-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await real.create(paths.namespaces(), body, Object)
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            try:
                await real.get(paths.serviceaccounts(name, "default"), Object)
                break
            except errors.Missing:
                await asyncio.sleep(0.02)
    yield name
    await real.delete(paths.namespaces(name))
