"""One Runtime Server per kind of host for all tests, and a fresh client for each test."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.runtime_process import Client, Server, connect


def _of_a_function_or_harmless(line: str) -> bool:
    """Whether the server itself had nothing to complain about."""
    return line.startswith("{") and json.loads(line)["level"] in ("info", "warning")


def _server(kind: str, factory: pytest.TempPathFactory, **options: float) -> Iterator[Server]:
    server = Server(factory.mktemp(kind), kind, **options)
    try:
        yield server
        assert server.stop() == 0, server.text()[-2000:]
        assert not [line for line in server.text().splitlines() if not _of_a_function_or_harmless(line)]
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="session")
def python_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _server("python", tmp_path_factory)


@pytest.fixture(scope="session")
def bash_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _server("bash", tmp_path_factory)


@pytest.fixture
async def python(python_server: Server) -> AsyncIterator[Client]:
    async with connect(python_server) as client:
        yield client


@pytest.fixture
async def bash(bash_server: Server) -> AsyncIterator[Client]:
    async with connect(bash_server) as client:
        yield client
