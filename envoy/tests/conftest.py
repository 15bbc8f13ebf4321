"""One real gateway for all tests of this folder that leave it as it was."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.gateway_rig import Gateway, authz, gateway


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def envoy_gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("gw")
    async with authz(folder), gateway(folder) as made:
        yield made
