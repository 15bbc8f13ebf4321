"""The blocking client: declares Runs, waits for them, and calls them. See `aio` for its asynchronous twin.

Nothing is retried: whoever calls knows whether a second execution does harm, and every failure says whether the
first one may have happened (`Failed.retry_safe`).
"""

import time
from collections.abc import Callable, Iterator
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


class Client:
    """One API server, one credential. Safe to use from one thread; `close` it, or use it in a `with` statement.

    token: for invocations and, where the kubeconfig has no credential of its own, for the API too.
    """

    def __init__(self, access: Access, *, token: Callable[[], str | None] | str | None = None) -> None:
        self.access = access
        self._token = token
        self._api = httpx.Client(
            base_url=access.server,
            verify=wire.api_trust(access),
            timeout=wire.API_SECONDS,
            trust_env=not wire.is_local(access.server),
        )
        self._gateways: dict[tuple[str | None, bool], httpx.Client] = {}

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection."""
        self._api.close()
        for gateway in self._gateways.values():
            gateway.close()

    def request(self, method: str, path: str, *, body: Any = None, query: dict[str, str] | None = None) -> bytes:
        """One request to the API server; returns the body of a 2xx answer. Raises ApiError."""
        own = wire.own(self.access.token(), self.access)
        try:
            answer = self._api.request(method, path, json=body, params=query, **own)
        except httpx.HTTPError as error:
            raise wire.unanswered(self.access, error) from None
        return wire.check_api(answer.status_code, answer.content, f"{method} {path}")

    def lines(self, path: str, *, query: dict[str, str] | None = None) -> Iterator[str]:
        """The lines of an answer of the API server as they come, without an end where it has none. Raises ApiError."""
        limit = httpx.Timeout(wire.API_SECONDS, read=None)
        own = wire.own(self.access.token(), self.access)
        try:
            with self._api.stream("GET", path, params=query, timeout=limit, **own) as answer:
                if not answer.is_success:
                    wire.check_api(answer.status_code, answer.read(), f"GET {path}")
                yield from answer.iter_lines()
        except httpx.HTTPError as error:
            raise wire.unanswered(self.access, error) from None

    # ------------------------------------------------------------ Runs

    def create(self, manifest: dict[str, Any], *, namespace: str | None = None) -> Run:
        """Declares a Run."""
        return wire.decode_run(self.request("POST", wire.runs_path(self._in(namespace)), body=manifest))

    def get(self, name: str, *, namespace: str | None = None) -> Run:
        """Reads a Run. Raises NotFoundError."""
        return wire.decode_run(self.request("GET", wire.runs_path(self._in(namespace), name)))

    def delete(self, name: str, *, namespace: str | None = None) -> None:
        """Asks for the deletion of a Run; `wait` for `deleted` to know that its function is gone too."""
        self.request("DELETE", wire.runs_path(self._in(namespace), name))

    def wait(
        self,
        name: str,
        state: str = "ready",
        *,
        timeout: float = wire.READY_SECONDS,
        namespace: str | None = None,
        seen: Callable[[Run], None] = lambda run: None,
    ) -> Run | None:
        """Waits until a Run is `ready`, `ended`, `deleted` or `phase=PHASE`; returns it, or None where it is gone.

        timeout: seconds. seen: gets the Run at each look that finds it elsewhere. Raises NotReadyError when they have
        passed, EndedError where it can never be.
        """
        waiting = Waiting(name=name, state=state, timeout=timeout, at=clock.monotonic())
        while True:
            found = self._find(name, namespace)
            pause = waiting.look(found, now=clock.monotonic())
            if pause is None:
                return found
            if found is not None:
                seen(found)
            time.sleep(pause)

    def invoke(
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
        """Calls the function of a Run by its name. timeout: the invocation's deadline in seconds.

        Raises a kind of `Failed`, or NotReadyError where the Run has no endpoint.
        """
        url, ca = wire.endpoint(self.get(name, namespace=namespace))
        return self.invoke_url(
            url, body, ca_pem=ca, content_type=content_type, invocation_id=invocation_id, timeout=timeout, accept=accept
        )

    def invoke_url(
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
        """Calls the function at *url*. ca_pem: whom to trust, the system's trust by default. As `invoke`."""
        made = wire.call(
            url, token=wire.bearer(self._token, self.access), body=body, content_type=content_type,
            invocation_id=invocation_id, timeout=timeout, accept=accept,
        )  # fmt: skip
        try:
            answer = self._gateway(ca_pem, url).post(url, content=body, headers=made.headers, timeout=wire.limit(made))
        except httpx.HTTPError as error:
            raise wire.lost(made, error) from None
        return wire.read_answer(made, status=answer.status_code, headers=answer.headers, body=answer.content)

    def _find(self, name: str, namespace: str | None) -> Run | None:
        try:
            return self.get(name, namespace=namespace)
        except NotFoundError:
            return None

    def _in(self, namespace: str | None) -> str:
        return namespace or self.access.namespace

    def _gateway(self, ca_pem: str | None, url: str) -> httpx.Client:
        key = (ca_pem, wire.is_local(url))
        if key not in self._gateways:
            self._gateways[key] = httpx.Client(verify=wire.trust(ca_pem), trust_env=not key[1])
        return self._gateways[key]
