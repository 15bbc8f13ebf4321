"""One API client: kubernetes-asyncio's ApiClient as transport, with time-outs, typed answers and typed errors.

The library's own calls have no time-out and pick a patch's content type themselves, so none of them is used: every
request states its content type and its limit. A request on behalf of a caller goes through a second ApiClient that
holds no credential at all, neither token nor client certificate.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import aiohttp
import msgspec

from kruntimes.common.kube import errors
from kruntimes.common.kube.config import load
from kruntimes.common.kube.credentials import Credential

T = TypeVar("T")
Raws: TypeAlias = list[msgspec.Raw]

REQUEST_SECONDS = 15.0
"""An API server answers within milliseconds; past this, waiting longer only hides an outage."""
CONNECT_SECONDS = 5.0
"""A TCP and TLS handshake inside one cluster; a black hole is noticed soon."""
LIST_SECONDS = 60.0
"""One page of a list may carry 500 objects of up to 1.5 MiB."""
PAGE_ITEMS = 500
"""What kubectl and the controllers of Kubernetes ask for per page."""
ERROR_BODY_BYTES = 64 * 1024
"""An error's body is read up to here; a proxy may send a whole page."""
READ_BUFFER_BYTES = 1024 * 1024
"""Read ahead of a watch; a line may be longer, since lines are split by ourselves."""

USER_AGENT = "kruntimes"
JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_PATCH_DOES_NOT_FIT = ("the server rejected our request due to an error in our request", "test failed")
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


_decode_list = msgspec.json.Decoder(_List).decode


class Kube:
    """A connection to one API server; safe to share between tasks. `close` it when done.

    *type* arguments are msgspec views (or `dict`); *obj* arguments are anything that msgspec can turn into JSON.
    Every method raises the errors of `kube.errors` and nothing foreign. timeout: seconds for one request, whole.
    """

    def __init__(self, configuration: Any, credential: Credential) -> None:
        self._configuration = configuration
        self._credential = credential
        self._own = _client(configuration)
        self._callers: Any = None

    @classmethod
    async def connect(cls, *, kubeconfig: Path | None = None, context: str | None = None) -> Self:
        """Builds a client from *kubeconfig*, else $KUBECONFIG, else the Pod's ServiceAccount; sends nothing yet.

        Raises SettingsError where there is none of them, or it is wrong.
        """
        configuration, credential = await load(kubeconfig=kubeconfig, context=context)
        return cls(configuration, credential)

    async def close(self) -> None:
        """Closes every connection."""
        await self._own.close()
        if self._callers is not None:
            await self._callers.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float = REQUEST_SECONDS,
        token: str | None = None,
    ) -> bytes:
        """Sends one request and returns the body of a 2xx answer.

        token: act with that bearer token and with no credential of our own.
        """
        response = await self._send(
            method,
            path,
            query=query,
            payload=_payload(body, content_type),
            content_type=content_type,
            accept=accept,
            limit=aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, CONNECT_SECONDS)),
            token=token,
        )
        async with response:
            with _foreign_errors_end_here():
                return await response.read()

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Opens a GET whose answer goes on: yields its bytes in the pieces in which they arrive.

        silence: seconds without a byte after which the pieces end with Silent.
        """
        response = await self._send(
            "GET",
            path,
            query=query,
            payload=None,
            content_type=JSON,
            accept=accept,
            limit=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence),
            token=None,
        )
        try:
            yield _pieces(response)
        finally:
            response.close()

    async def get(self, path: str, type: type[T], *, timeout: float = REQUEST_SECONDS) -> T:
        """Reads one object."""
        return _decode(await self.request("GET", path, timeout=timeout), type)

    async def list(
        self, path: str, type: type[T], *, label_selector: str = "", field_selector: str = ""
    ) -> tuple[list[T], str]:
        """Reads a whole collection, page by page; returns its objects and its resourceVersion."""
        items, version = await self.list_raw(path, label_selector=label_selector, field_selector=field_selector)
        return [_decode(item, type) for item in items], version

    async def list_raw(
        self, path: str, *, label_selector: str = "", field_selector: str = "", accept: str = JSON
    ) -> tuple[Raws, str]:
        """As `list`, each object as the bytes it came in. A page that has expired meanwhile raises Gone."""
        query = selectors(label_selector, field_selector) | {"limit": str(PAGE_ITEMS)}
        items: Raws = []
        while True:
            answer = await self.request("GET", path, query=query, accept=accept, timeout=LIST_SECONDS)
            try:
                page = _decode_list(answer)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise errors.Malformed(status=200, reason="Malformed", message=f"not a list: {error}") from error
            items += page.items or []
            if not page.metadata.continue_:
                return items, page.metadata.resource_version
            query["continue"] = page.metadata.continue_

    async def create(
        self,
        path: str,
        obj: object,
        type: type[T],
        *,
        manager: str = "",
        strict: bool = False,
        timeout: float = REQUEST_SECONDS,
    ) -> T:
        """Creates *obj* in the collection *path* (or posts to a subresource such as `serviceaccounts/…/token`).

        manager: who owns its fields. strict: a field that the server does not know is a BadRequest and not left out.
        """
        asked = {"fieldManager": manager, "fieldValidation": "Strict" if strict else ""}
        query = {key: value for key, value in asked.items() if value}
        return _decode(await self.request("POST", path, query=query, body=obj, timeout=timeout), type)

    async def replace(self, path: str, obj: object, type: type[T], *, timeout: float = REQUEST_SECONDS) -> T:
        """Puts *obj* in the place of what is there; its metadata.resourceVersion is the precondition."""
        return _decode(await self.request("PUT", path, body=obj, timeout=timeout), type)

    async def patch_json(
        self, path: str, ops: Sequence[Mapping[str, object]], type: type[T], *, timeout: float = REQUEST_SECONDS
    ) -> T:
        """Applies an RFC 6902 patch; its `test` operations are the precondition. Conflict where it does not fit."""
        try:
            answer = await self.request("PATCH", path, body=list(ops), content_type=JSON_PATCH, timeout=timeout)
        except errors.Invalid as error:
            raise _failed_test(error) from error
        return _decode(answer, type)

    async def patch_merge(self, path: str, obj: object, type: type[T], *, timeout: float = REQUEST_SECONDS) -> T:
        """Applies an RFC 7386 patch; metadata.resourceVersion in it is the precondition."""
        return _decode(await self.request("PATCH", path, body=obj, content_type=MERGE_PATCH, timeout=timeout), type)

    async def apply(
        self,
        path: str,
        obj: object,
        type: type[T],
        *,
        manager: str,
        force: bool = True,
        timeout: float = REQUEST_SECONDS,
    ) -> T:
        """Applies *obj* on the server's side: its fields become *manager*'s, and what it no longer names goes."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        answer = await self.request("PATCH", path, query=query, body=obj, content_type=APPLY_PATCH, timeout=timeout)
        return _decode(answer, type)

    async def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> None:
        """Asks for deletion. uid and resource_version are preconditions (Conflict); propagation as in the API."""
        options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if any(value is not None for value in preconditions.values()):
            options["preconditions"] = {k: v for k, v in preconditions.items() if v is not None}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        await self.request("DELETE", path, body=options, timeout=timeout)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        payload: object,
        content_type: str,
        accept: str,
        limit: aiohttp.ClientTimeout,
        token: str | None,
    ) -> aiohttp.ClientResponse:
        """The one place where a request leaves; returns an answer with a good status, its body still to be read."""
        client, header = await self._identity(token)
        for again in (token is None, False):
            headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": USER_AGENT}
            if header is not None:
                headers["Authorization"] = header
            with _foreign_errors_end_here():
                response: aiohttp.ClientResponse = await client.request(
                    method,
                    self._configuration.host + path,
                    query_params=list(query.items()) if query else None,
                    headers=headers,
                    body=payload,
                    _preload_content=False,
                    _request_timeout=limit,
                )
                if 200 <= response.status < 300:
                    return response
                async with response:
                    body = await response.content.read(ERROR_BODY_BYTES)
            refusal = errors.from_answer(status=response.status, headers=response.headers, body=body)
            # A 401 to our own token may only mean that it has been replaced since we read it; nothing was done.
            if not (again and isinstance(refusal, errors.Unauthorized)):
                raise refusal
            self._credential.refused()
            renewed = await self._credential.header()
            if renewed == header:
                raise refusal
            header = renewed
        raise AssertionError("unreachable: the second round returns or raises")

    async def _identity(self, token: str | None) -> tuple[Any, str | None]:
        if token is None:
            return self._own, await self._credential.header()
        if not _TOKEN.fullmatch(token):
            raise errors.Unauthorized(status=401, reason="Unauthorized", message="not a bearer token")
        if self._callers is None:
            self._callers = _client(_without_credentials(self._configuration))
        return self._callers, f"Bearer {token}"


def selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    """The query of a list or watch that selects."""
    both = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in both.items() if value}


def _client(configuration: Any) -> Any:
    """An ApiClient whose session reads nothing from the environment and remembers no cookies.

    The library's session looks into ~/.netrc and the proxy variables in a thread for every request, and an entry
    in ~/.netrc for the host would break every request that carries a token. Its connector, with the TLS context
    made from the kubeconfig, is kept.
    """
    from kubernetes_asyncio.client import ApiClient

    client = ApiClient(configuration)
    session = client.rest_client.pool_manager
    connector = session.connector
    session.detach()
    client.rest_client.pool_manager = aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=READ_BUFFER_BYTES
    )
    return client


def _without_credentials(configuration: Any) -> Any:
    """The same server and CA, and nothing that says who we are."""
    from kubernetes_asyncio.client import Configuration

    bare = Configuration(host=configuration.host)
    for name in ("ssl_ca_cert", "verify_ssl", "tls_server_name", "proxy", "disable_strict_ssl_verification"):
        setattr(bare, name, getattr(configuration, name))
    return bare


def _payload(body: object | bytes | None, content_type: str) -> object:
    """What the library's REST layer takes: plain values for JSON (it encodes them), bytes for anything else."""
    if body is None or not ("json" in content_type or content_type == APPLY_PATCH):
        return body
    return msgspec.json.decode(body) if isinstance(body, bytes) else msgspec.to_builtins(body)


def _decode(data: bytes | msgspec.Raw, type: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.Malformed(status=200, reason="Malformed", message=f"not a {type.__name__}: {error}") from error


def _failed_test(error: errors.Invalid) -> errors.ApiError:
    """A JSON patch that does not fit (a `test` fails, a path is not there) is answered with 422, as an invalid object
    is; only the message differs, and it does not say which operation it was."""
    if any(sign in error.message for sign in _PATCH_DOES_NOT_FIT):
        return errors.Conflict(status=error.status, reason="PatchDoesNotFit", message="the object is not as expected")
    return error


async def _pieces(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    while True:
        with _foreign_errors_end_here():
            try:
                piece = await response.content.readany()
            except TimeoutError as error:
                raise errors.Silent(status=0, reason="Silent", message="nothing came in time") from error
        if not piece:
            return
        yield piece


@contextmanager
def _foreign_errors_end_here() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        # A time-out's own words name the whole URL, which differs from try to try.
        message = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        raise errors.Unreachable(status=0, reason=type(error).__name__, message=message) from error
