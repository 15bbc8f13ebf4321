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
from kruntimes.sdk.errors import ApiError, ConfigError, Failed, NotFoundError, NotReadyError
from kruntimes.sdk.kubeconfig import Access
from kruntimes.sdk.wire import Invocation

API_SECONDS = 15.0
POLL_SECONDS = (0.05, 1.0)
"""A wait asks often at first, since a warm Pod makes a function Ready at once, and then less and less often."""
CONNECT_SECONDS = 10.0
READY_SECONDS = 60.0


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
            timeout=API_SECONDS,
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
        made = self._api.build_request(
            method, path, json=body, params=query, headers=self._own(), extensions=self._extensions()
        )
        try:
            answer = self._api.send(made)
        except httpx.HTTPError as error:
            raise self._unanswered(error) from None
        return wire.check_api(answer.status_code, answer.content, f"{method} {path}")

    def lines(self, path: str, *, query: dict[str, str] | None = None) -> Iterator[str]:
        """The lines of an answer of the API server as they come, without an end where it has none. Raises ApiError."""
        limit = httpx.Timeout(API_SECONDS, read=None)
        made = self._api.build_request(
            "GET", path, params=query, headers=self._own(), extensions=self._extensions(), timeout=limit
        )
        try:
            answer = self._api.send(made, stream=True)
            try:
                if not answer.is_success:
                    wire.check_api(answer.status_code, answer.read(), f"GET {path}")
                yield from answer.iter_lines()
            finally:
                answer.close()
        except httpx.HTTPError as error:
            raise self._unanswered(error) from None

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
        self, name: str, state: str = "ready", *, timeout: float = READY_SECONDS, namespace: str | None = None
    ) -> Run | None:
        """Waits until a Run is `ready`, `ended`, `deleted` or `phase=PHASE`; returns it, or None where it is gone.

        timeout: seconds. Raises NotReadyError when they have passed, EndedError where it can never be.
        """
        end = clock.monotonic() + timeout
        pause, longest = POLL_SECONDS
        while True:
            found = self._find(name, namespace)
            if found is None and state != "deleted":
                raise NotFoundError(f"there is no Run {name}", status=404)
            if wire.reached(found, state):
                return found
            if clock.monotonic() + pause > end:
                phase = found.status.phase if found is not None else ""
                raise NotReadyError(f"Run {name} is not {state} after {timeout:g} s (it is {phase or 'Pending'})")
            time.sleep(pause)
            pause = min(longest, pause * 1.5)

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
            url, token=self._bearer(), body=body, content_type=content_type,
            invocation_id=invocation_id, timeout=timeout, accept=accept,
        )  # fmt: skip
        limit = httpx.Timeout(made.timeout, connect=CONNECT_SECONDS)
        try:
            answer = self._gateway(ca_pem, url).post(url, content=body, headers=made.headers, timeout=limit)
        except httpx.HTTPError as error:
            raise lost(made, error) from None
        return wire.read_answer(made, status=answer.status_code, headers=answer.headers, body=answer.content)

    def _own(self) -> dict[str, str]:
        own = self.access.token()
        return {} if own is None else {"authorization": f"Bearer {own}"}

    def _extensions(self) -> dict[str, str]:
        return {"sni_hostname": self.access.tls_server_name} if self.access.tls_server_name else {}

    def _unanswered(self, error: httpx.HTTPError) -> ApiError:
        return ApiError(f"the API server at {self.access.server} does not answer: {error}")

    def _find(self, name: str, namespace: str | None) -> Run | None:
        try:
            return self.get(name, namespace=namespace)
        except NotFoundError:
            return None

    def _in(self, namespace: str | None) -> str:
        return namespace or self.access.namespace

    def _bearer(self) -> str:
        return bearer(self._token, self.access)

    def _gateway(self, ca_pem: str | None, url: str) -> httpx.Client:
        key = (ca_pem, wire.is_local(url))
        if key not in self._gateways:
            self._gateways[key] = httpx.Client(verify=wire.trust(ca_pem), trust_env=not key[1])
        return self._gateways[key]


def bearer(given: Callable[[], str | None] | str | None, access: Access) -> str:
    """The token to call functions with. Raises ConfigError where there is none."""
    token = given() if callable(given) else given
    token = token or access.call_token()
    if not token:
        raise ConfigError(
            "calling a function takes a bearer token, and the kubeconfig has none: "
            "set KRT_TOKEN, for instance to what `kubectl create token SERVICEACCOUNT` prints"
        )
    return token


def lost(made: wire.Call, error: httpx.HTTPError) -> Failed:
    """A call without an answer: only what failed before anything was sent is known not to have run."""
    before = isinstance(
        error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.UnsupportedProtocol
    )
    return wire.lost(made, error, sent=not before)
