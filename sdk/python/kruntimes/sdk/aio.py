"""The asynchronous client: the twin of `client.Client`, call by call."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from kruntimes.common import clock
from kruntimes.common.api.views import Run
from kruntimes.sdk import kubeconfig, wire
from kruntimes.sdk.errors import NotFoundError
from kruntimes.sdk.kubeconfig import Access
from kruntimes.sdk.waiting import Waiting
from kruntimes.sdk.wire import Invocation


class AsyncClient:
    """As `client.Client`; safe to share between the tasks of one event loop. Use it in an `async with` statement."""

    def __init__(self, access: Access, *, token: Callable[[], str | None] | str | None = None) -> None:
        self.access = access
        self._token = token
        self._api = httpx.AsyncClient(
            base_url=access.server,
            verify=wire.api_trust(access),
            timeout=wire.API_SECONDS,
            trust_env=not wire.is_local(access.server),
        )
        self._gateways: dict[tuple[str | None, bool], httpx.AsyncClient] = {}

    @classmethod
    def load(
        cls,
        path: Path | None = None,
        *,
        context: str | None = None,
        token: Callable[[], str | None] | str | None = None,
    ) -> Self:
        """A client for a kubeconfig, found as kubectl finds it. Raises ConfigError."""
        return cls(kubeconfig.load(path, context=context), token=token)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection."""
        await self._api.aclose()
        for gateway in self._gateways.values():
            await gateway.aclose()

    async def request(self, method: str, path: str, *, body: Any = None, query: dict[str, str] | None = None) -> bytes:
        """One request to the API server; returns the body of a 2xx answer. Raises ApiError."""
        # A credential plugin is a program, and may take its time.
        own = wire.own(await asyncio.to_thread(self.access.token), self.access)
        try:
            answer = await self._api.request(method, path, json=body, params=query, **own)
        except httpx.HTTPError as error:
            raise wire.unanswered(self.access, error) from None
        return wire.check_api(answer.status_code, answer.content, f"{method} {path}")

    async def create(self, manifest: dict[str, Any], *, namespace: str | None = None) -> Run:
        """Declares a Run."""
        return wire.decode_run(await self.request("POST", wire.runs_path(self._in(namespace)), body=manifest))

    async def get(self, name: str, *, namespace: str | None = None) -> Run:
        """Reads a Run. Raises NotFoundError."""
        return wire.decode_run(await self.request("GET", wire.runs_path(self._in(namespace), name)))

    async def delete(self, name: str, *, namespace: str | None = None) -> None:
        """Asks for the deletion of a Run; `wait` for `deleted` to know that its function is gone too."""
        await self.request("DELETE", wire.runs_path(self._in(namespace), name))

    async def wait(
        self, name: str, state: str = "ready", *, timeout: float = wire.READY_SECONDS, namespace: str | None = None
    ) -> Run | None:
        """As `Client.wait`."""
        waiting = Waiting(name=name, state=state, timeout=timeout, at=clock.monotonic())
        while True:
            found = await self._find(name, namespace)
            pause = waiting.look(found, now=clock.monotonic())
            if pause is None:
                return found
            await asyncio.sleep(pause)

    async def invoke(
        self,
        name: str,
        body: bytes = b"{}",
        *,
        namespace: str | None = None,
        content_type: str = wire.JSON,
        invocation_id: str | None = None,
        timeout: float | None = None,
        accept: str | None = None,
    ) -> Invocation:
        """As `Client.invoke`. Cancelling the task drops the connection, which cancels the invocation."""
        url, ca = wire.endpoint(await self.get(name, namespace=namespace))
        return await self.invoke_url(
            url, body, ca_pem=ca, content_type=content_type, invocation_id=invocation_id, timeout=timeout, accept=accept
        )

    async def invoke_url(
        self,
        url: str,
        body: bytes = b"{}",
        *,
        ca_pem: str | None = None,
        content_type: str = wire.JSON,
        invocation_id: str | None = None,
        timeout: float | None = None,
        accept: str | None = None,
    ) -> Invocation:
        """As `Client.invoke_url`."""
        token = await asyncio.to_thread(wire.bearer, self._token, self.access)
        made = wire.call(
            url, token=token, body=body, content_type=content_type,
            invocation_id=invocation_id, timeout=timeout, accept=accept,
        )  # fmt: skip
        gateway, limit = self._gateway(ca_pem, url), wire.limit(made)
        try:
            answer = await gateway.post(url, content=body, headers=made.headers, timeout=limit)
        except httpx.HTTPError as error:
            raise wire.lost(made, error) from None
        return wire.read_answer(made, status=answer.status_code, headers=answer.headers, body=answer.content)

    async def _find(self, name: str, namespace: str | None) -> Run | None:
        try:
            return await self.get(name, namespace=namespace)
        except NotFoundError:
            return None

    def _in(self, namespace: str | None) -> str:
        return namespace or self.access.namespace

    def _gateway(self, ca_pem: str | None, url: str) -> httpx.AsyncClient:
        key = (ca_pem, wire.is_local(url))
        if key not in self._gateways:
            self._gateways[key] = httpx.AsyncClient(verify=wire.trust(ca_pem), trust_env=not key[1])
        return self._gateways[key]
