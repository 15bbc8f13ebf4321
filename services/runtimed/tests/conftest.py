"""Event loops of these tests, and what those of a runtimed's lifecycle on a real API server share.

gRPC's asyncio poller is one for the process and remembers every loop it ever met, so what uses gRPC shares one loop
for the session: `pytestmark = pytest.mark.asyncio(loop_scope="session")`, and fixtures likewise.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.runtimed_stub import Stub, serving
from tests.runtimed_world import Cluster, World, cluster, runtimed

asyncio.set_event_loop(None)  # else the first test makes one by asking for it, and nobody closes it


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def place(control_plane: Path) -> AsyncIterator[Cluster]:
    async with cluster(control_plane) as made:
        yield made


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest_asyncio.fixture(loop_scope="session")
async def world(place: Cluster, stub: Stub, tmp_path: Path, workspace: Path) -> AsyncIterator[World]:
    socket = tmp_path / "executor.sock"
    async with serving(stub, socket), runtimed(place, socket, workspace) as made:
        yield made
