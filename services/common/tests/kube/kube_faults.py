"""A small API server that misbehaves on request, and the answers it gives."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

LIMIT_SECONDS = 20.0
"""For a condition that comes true within milliseconds, on a machine that is busy."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def until(condition: Callable[[], object], *, limit: float = LIMIT_SECONDS) -> None:
    """Waits until *condition* holds."""
    async with asyncio.timeout(limit):
        while not condition():
            await asyncio.sleep(0.005)


@dataclass
class Seen:
    """One request as it came over the wire."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class FaultyServer:
    """Answers every request with *answer*, and remembers it."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    answer: Handler | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        self.seen.append(Seen(request.method, request.path, dict(request.query), headers, body))
        assert self.answer is not None, "the test gave no answer"
        return await self.answer(request)

    def kubeconfig(self, folder: Path, user: dict[str, Any]) -> Path:
        """Writes a kubeconfig for this server with *user* as the credential."""
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path


def status(code: int, reason: str, message: str = "said the server", **headers: str) -> web.Response:
    """A metav1.Status as an answer."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return web.json_response(
        body | {"message": message}, status=code, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


def thing(name: str, version: int, *, uid: str = "", **data: str) -> dict[str, Any]:
    """A ConfigMap as the server would show it."""
    metadata = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def listing(*items: dict[str, Any], version: int, cont: str = "") -> web.Response:
    """A list as an answer."""
    return web.json_response({"metadata": {"resourceVersion": str(version), "continue": cont}, "items": list(items)})


def line(kind: str, obj: dict[str, Any]) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


async def hang(request: web.Request) -> web.StreamResponse:
    """Takes the request and never answers."""
    await asyncio.Event().wait()
    raise AssertionError


async def reset(request: web.Request) -> web.StreamResponse:
    """Takes the request and cuts the connection."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.Event().wait()
    raise AssertionError


async def html(request: web.Request) -> web.StreamResponse:
    """What a proxy says whose upstream is away."""
    return web.Response(status=502, text="<html><h1>502 Bad Gateway</h1></html>", content_type="text/html")
