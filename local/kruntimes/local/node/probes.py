"""Asks a container's process whether it is up: httpGet, tcpSocket and exec, for probes and preStop."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

from kruntimes.local.node.pods import Container, Exec, HttpGet, TcpSocket


class Prober:
    """Carries out actions against the processes of one node. `close` it when done."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())

    async def close(self) -> None:
        """Closes every connection."""
        await self._session.close()

    async def ask(
        self,
        action: HttpGet | TcpSocket | Exec,
        *,
        container: Container,
        ip: str,
        env: Mapping[str, str],
        cwd: Path,
        timeout: float,
    ) -> bool:
        """Whether the action succeeded within *timeout* seconds; nothing is raised."""
        try:
            async with asyncio.timeout(timeout):
                if isinstance(action, HttpGet):
                    return await self._get(action, container=container, ip=ip)
                if isinstance(action, TcpSocket):
                    _, writer = await asyncio.open_connection(action.host or ip, number(action.port, container))
                    writer.close()
                    return True
                return await run(action.command, env=env, cwd=cwd)
        except (TimeoutError, OSError, ValueError, aiohttp.ClientError):
            return False

    async def _get(self, action: HttpGet, *, container: Container, ip: str) -> bool:
        url = (
            f"{action.scheme.lower()}://{action.host or ip}:{number(action.port, container)}/{action.path.lstrip('/')}"
        )
        headers = {"User-Agent": "kube-probe/krt-dev", "Connection": "close"}
        async with self._session.get(url, ssl=False, allow_redirects=False, headers=headers) as response:
            return 200 <= response.status < 400


def number(port: int | str, container: Container) -> int:
    """Returns the port's number; raises ValueError for a name that the container does not have."""
    if isinstance(port, int):
        return port
    for known in container.ports:
        if known.name == port:
            return known.container_port
    raise ValueError(f"container {container.name} has no port {port!r}")


async def run(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> bool:
    """Runs *command* and says whether it exited with 0; when cancelled its whole session is killed."""
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=null, stdout=null, stderr=null, env=dict(env), cwd=cwd, start_new_session=True
    )
    try:
        return await process.wait() == 0
    except asyncio.CancelledError:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        raise
