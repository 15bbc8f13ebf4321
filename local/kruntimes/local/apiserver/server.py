"""The HTTPS shell of the API: each request through authenticate → authorise → decode → the core → encode.

Everything between the bytes in and the bytes out is the core's; what is here is the order and who answers.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from aiohttp import web

from kruntimes.common import clock
from kruntimes.local.apiserver import answers, discovery, queries, reads, streams, writes
from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.authn import impersonated
from kruntimes.local.apiserver.encoding import Encoded
from kruntimes.local.apiserver.exchange import Backend, Exchange
from kruntimes.local.apiserver.node_logs import NodeLogs
from kruntimes.local.apiserver.openapi import V2_ACCEPTED, V2_MEDIA_TYPE, openapi_v2, openapi_v2_protobuf
from kruntimes.local.apiserver.pages import Pages
from kruntimes.local.apiserver.request import Credentials, Request, attributes, selected_by_name
from kruntimes.local.apiserver.status import (
    About,
    NotServed,
    StatusError,
    bad_request,
    forbidden,
    internal,
    method_not_allowed,
    path_not_found,
)  # fmt: skip
from kruntimes.local.apiserver.store import Event
from kruntimes.local.apiserver.watch import Hub

Json = dict[str, Any]

log = logging.getLogger(__name__)

MAX_LINE = 16 * 1024
"""Bytes of a request line, and of one header: a token is the largest thing in them."""
KEEPALIVE_SECONDS = 120.0
BACKLOG = 1024
SHUTDOWN_SECONDS = 1.0

DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_VERBS: Mapping[str, Callable[[Exchange], Awaitable[web.StreamResponse]]] = {
    "get": reads.get,
    "list": reads.list_objects,
    "watch": streams.watch,
    "create": writes.create,
    "update": writes.update,
    "patch": writes.patch,
    "delete": writes.delete,
    "deletecollection": writes.delete_collection,
}
_OF_COLLECTIONS = frozenset({"create", "list", "watch", "deletecollection"})
_READS = frozenset({"get", "list", "watch"})


class Server:
    """One listener over one core. `start`, then `close`."""

    def __init__(self, api: Api, *, now: Callable[[], datetime], logs: NodeLogs, encoded: Encoded) -> None:
        hub = Hub(now, encoded)
        pages = Pages()
        api.listen(hub.publish)
        api.listen(self._withdraw)
        api.listen(lambda event: pages.compact(api.store.compacted))
        self._api, self._logs = api, logs
        self._backend = Backend(api=api, hub=hub, pages=pages, logs=logs, encoded=encoded, now=now)
        self._last_request = clock.monotonic()
        self._runner: web.ServerRunner | None = None
        self._address = ""

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        """Listens."""
        self._address = f"{host}:{port}"
        server = web.Server(
            self._handle, access_log=None, max_line_size=MAX_LINE, max_field_size=MAX_LINE,
            keepalive_timeout=KEEPALIVE_SECONDS,
        )  # fmt: skip
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=tls, backlog=BACKLOG).start()

    async def close(self) -> None:
        """Ends every connection."""
        self._backend.hub.close()
        await self._logs.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def last_request(self) -> float:
        """When the last request came, on the monotonic clock."""
        return self._last_request

    def _withdraw(self, event: Event) -> None:
        """Ends the watches of a custom resource with its definition."""
        if event.resource == DEFINITIONS and event.type == "DELETED":
            spec = event.object["spec"]
            self._backend.hub.withdraw((spec["group"], spec["names"]["plural"]))

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        self._last_request = clock.monotonic()
        try:
            return await self._serve(http)
        except StatusError as refusal:
            return answers.refusal(refusal)
        except NotServed:
            return answers.nothing()
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("request failed")
            return answers.refusal(internal("the request could not be carried out"))

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        transport = http.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        credentials = Credentials(authorization=http.headers.get("Authorization"), certificate=certificate or None)
        parts = self._api.parts
        user = impersonated(parts.authenticate(credentials), http.headers.items(), parts.authorize)
        watch = http.method == "GET" and queries.is_watch(http.query)
        request = attributes(user, http.method, http.path, watch=watch)
        asked = selected_by_name(request, http.query.get("fieldSelector", ""))
        if not parts.authorize(asked).allowed:
            raise _not_allowed(asked)
        if not request.is_resource:
            return self._document(http, request)
        resource = self._api.resources.find(request.group, request.version, request.resource)
        if resource is None:
            raise _nothing(self._api, request.group)
        exchange = Exchange(self._backend, http, request, resource)
        try:
            return await _carry_out(exchange)
        except StatusError as refusal:
            return answers.refusal(refusal, exchange.warnings)

    def _document(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        """Health, versions, discovery, OpenAPI."""
        path = request.path.rstrip("/") or "/"
        if "/" + path.split("/")[1] in _HEALTH:
            return web.Response(body=b"ok", content_type="text/plain", headers=answers.NO_CACHE)
        if http.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        resources, steps = self._api.resources, path.strip("/").split("/")
        found: Json | None = None
        match steps:
            case ["version"]:
                found = discovery.version()
            case ["api"]:
                found = discovery.api_versions(self._address)
            case ["apis"]:
                found = discovery.api_groups(resources)
            case ["api", version]:
                found = discovery.resource_list(resources, "", version)
            case ["apis", group]:
                found = discovery.api_group(resources, group)
            case ["apis", group, version]:
                found = discovery.resource_list(resources, group, version)
            case ["openapi", "v2"]:
                if V2_ACCEPTED in http.headers.get("Accept", ""):
                    return answers.raw(openapi_v2_protobuf(), 200, {"Content-Type": V2_MEDIA_TYPE})
                found = openapi_v2()
            case ["openapi", *_]:
                found = self._api.parts.openapi(self._api, path, http.query)
            case [""]:
                found = {"paths": ["/api", "/apis", *sorted(_HEALTH), "/openapi/v2", "/openapi/v3", "/version"]}
        if found is not None:
            return answers.document(found)
        if steps[0] not in ("api", "apis"):
            raise NotServed
        raise _nothing(self._api, steps[1] if steps[0] == "apis" else "")


async def _carry_out(exchange: Exchange) -> web.StreamResponse:
    if exchange.request.subresource:
        return await writes.subresource(exchange)
    if exchange.resource.virtual:
        return await writes.review(exchange)
    _check_method(exchange)
    return await _VERBS[exchange.request.verb](exchange)


def _check_method(exchange: Exchange) -> None:
    """Whether the method fits the path: a collection is not replaced, an object is not posted to."""
    request, resource = exchange.request, exchange.resource
    everywhere = resource.namespaced and not exchange.namespace and request.verb not in _READS
    if resource.custom and everywhere:
        raise NotServed
    if resource.custom and request.verb in ("update", "patch") and not request.name:
        raise bad_request("name must be provided")
    fits = request.verb == "watch" or bool(request.name) == (request.verb not in _OF_COLLECTIONS)
    if request.verb not in resource.verbs or not fits or everywhere:
        raise method_not_allowed()


def _nothing(api: Api, group: str) -> Exception:
    """What is said of a path in a group where nothing is: groups that are built in speak of it in a Status."""
    known = [resource for resource in api.resources if resource.group == group]
    return path_not_found() if known and not known[0].custom else NotServed()


def _not_allowed(request: Request) -> StatusError:
    """The refusal of authorisation."""
    user = request.user.name
    if not request.is_resource:
        said = f'forbidden: User "{user}" cannot {request.verb} path "{request.path}"'
        return StatusError(403, "Forbidden", said, about=About())
    what = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    about = About(group=request.group, kind=request.resource, name=request.name)
    why = f'User "{user}" cannot {request.verb} resource "{what}" in API group "{request.group}" {where}'
    return forbidden(about, why)
