"""The HTTPS shell of the API: each request through authenticate → authorise → decode → the core → encode.

Everything between the bytes in and the bytes out is the core's; what is here is the order, the bounds and the streams.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from aiohttp import web

from kruntimes.common import clock
from kruntimes.local.apiserver import discovery, negotiation, queries, scale
from kruntimes.local.apiserver.api import Api, Call
from kruntimes.local.apiserver.authn import impersonated
from kruntimes.local.apiserver.bodies import decode, duplicates, media_type, read_object
from kruntimes.local.apiserver.encoding import Encoded, encode
from kruntimes.local.apiserver.negotiation import View, flag, form_of
from kruntimes.local.apiserver.node_logs import NodeLogs
from kruntimes.local.apiserver.pages import Page, Pages
from kruntimes.local.apiserver.parts import APPLY_PATCH, JSON, STRATEGIC_PATCH, YAML
from kruntimes.local.apiserver.request import Credentials, Request, User, attributes, selected_by_name
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.selectors import selector
from kruntimes.local.apiserver.status import (
    About,
    NotServed,
    StatusError,
    bad_request,
    forbidden,
    internal,
    method_not_allowed,
    not_found,
    path_not_found,
    too_large,
    unsupported_media_type,
    verb_not_supported,
)  # fmt: skip
from kruntimes.local.apiserver.watch import Hub, Watcher, error_line

Json = dict[str, Any]
Query = Mapping[str, str]

log = logging.getLogger(__name__)

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a request's body, as with etcd behind a real API server."""
MAX_LINE = 16 * 1024
"""Bytes of a request line, and of one header: a token is the largest thing in them."""
SLICE_ITEMS = 16
"""Items of a list that are encoded before others get their turn: about a millisecond of 20 kB objects."""
SLICE_BYTES = 64 * 1024
"""Bytes that are gathered before they are written."""
BOOKMARK_SECONDS = 55.0
"""Between bookmarks of a watch that asks for them, whatever happens; a real server sends one a minute."""
LAST_BOOKMARK_SECONDS = 2.0
"""Before its time is over a watch gets a last bookmark, so that it goes on from there."""
WATCH_SECONDS = (1800.0, 3600.0)
"""The life of a watch that names none: drawn, so that not all come back at once."""
SHUTDOWN_SECONDS = 1.0

_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_WRITE_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "GET": "GetOptions"}
"""The kind that a refusal of a query parameter names."""
_NO_CACHE = {"Cache-Control": "no-cache, private"}


class Server:
    """One listener over one core. `start`, then `close`."""

    def __init__(self, api: Api, *, now: Callable[[], datetime], logs: NodeLogs, encoded: Encoded) -> None:
        self._api, self._now, self._logs, self._encoded = api, now, logs, encoded
        self._last_request = clock.monotonic()
        self._hub = Hub(now, encoded)
        api.listen(self._hub.publish)
        self._pages = Pages()
        self._runner: web.ServerRunner | None = None
        self._address = ""

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        """Listens."""
        self._address = f"{host}:{port}"
        server = web.Server(
            self._handle, access_log=None, max_line_size=MAX_LINE, max_field_size=MAX_LINE, keepalive_timeout=120.0,
        )  # fmt: skip
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=tls, backlog=1024).start()

    async def close(self) -> None:
        """Ends every connection."""
        await self._logs.close()
        if self._runner is not None:
            await self._runner.cleanup()

    # ------------------------------------------------------------ one request

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        self._last_request = clock.monotonic()
        try:
            return await self._serve(http)
        except StatusError as refusal:
            return _refuse(refusal)
        except NotServed:
            return web.Response(status=404, text="404 page not found\n", headers=_NO_CACHE)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("request failed")
            return _refuse(internal("the request could not be carried out"))

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        query: Query = http.query
        transport = http.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        credentials = Credentials(authorization=http.headers.get("Authorization"), certificate=certificate or None)
        parts = self._api.parts
        user = impersonated(parts.authenticate(credentials), http.headers.items(), parts.authorize)
        watch = http.method == "GET" and queries.is_watch(query)
        request = attributes(user, http.method, http.path, watch=watch)
        asked = selected_by_name(request, query.get("fieldSelector", ""))
        if not parts.authorize(asked).allowed:
            raise _not_allowed(asked)
        if not request.is_resource:
            return self._other(http, request)
        resource = self._api.resources.find(request.group, request.version, request.resource)
        if resource is None:
            raise _nothing(self._api, request.group)
        return await _Exchange(self, http, query, request, resource).serve()

    def _other(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        """Health, versions, discovery, OpenAPI."""
        path = request.path.rstrip("/") or "/"
        root = "/" + path.split("/")[1]
        if root in _HEALTH:
            return web.Response(body=b"ok", content_type="text/plain", headers=_NO_CACHE)
        if http.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        resources = self._api.resources
        parts = path.strip("/").split("/")
        found: Json | None = None
        if path == "/version":
            found = discovery.version()
        elif path == "/api":
            found = discovery.api_versions(self._address)
        elif path == "/apis":
            found = discovery.api_groups(resources)
        elif parts[0] == "api" and len(parts) == 2:
            found = discovery.resource_list(resources, "", parts[1])
        elif parts[0] == "apis" and len(parts) == 2:
            found = discovery.api_group(resources, parts[1])
        elif parts[0] == "apis" and len(parts) == 3:
            found = discovery.resource_list(resources, parts[1], parts[2])
        elif parts[0] == "openapi":
            found = self._api.parts.openapi(self._api, path, http.query)
        elif path == "/":
            found = {"paths": ["/api", "/apis", *sorted(_HEALTH), "/openapi/v3", "/version"]}
        if found is None:
            group = parts[1] if parts[0] == "apis" and len(parts) > 1 else "" if parts[0] == "api" else None
            raise NotServed if group is None else _nothing(self._api, group)
        return _answer(found)

    def last_request(self) -> float:
        """When the last request came, on the monotonic clock."""
        return self._last_request

    # what an exchange uses of the server

    @property
    def encoded(self) -> Encoded:
        """The JSON of new objects."""
        return self._encoded

    @property
    def api(self) -> Api:
        """The core."""
        return self._api

    @property
    def hub(self) -> Hub:
        """The watchers."""
        return self._hub

    @property
    def pages(self) -> Pages:
        """The lists that are being read page by page."""
        return self._pages

    @property
    def logs(self) -> NodeLogs:
        """The way to nodes."""
        return self._logs

    def now(self) -> datetime:
        """The present moment."""
        return self._now()


class _Exchange:
    """One request about a resource, and its answer."""

    def __init__(
        self, server: Server, http: web.BaseRequest, query: Query, request: Request, resource: Resource
    ) -> None:
        self._server, self._api = server, server.api
        self._http, self._query = http, query
        self._request, self._resource = request, resource
        if not resource.namespaced and request.namespace and resource.plural != "namespaces":
            raise path_not_found()
        self._namespace = request.namespace if resource.namespaced else ""

    async def serve(self) -> web.StreamResponse:
        """Chooses by verb and subresource."""
        request, resource = self._request, self._resource
        if request.subresource:
            return await self._subresource()
        if resource.virtual:
            return await self._review()
        self._check_method()
        match request.verb:
            case "get":
                queries.version(self._query.get("resourceVersion", ""))
                return self._show(self._api.get(resource, self._namespace, request.name))
            case "list":
                return await self._list()
            case "watch":
                return await self._watch()
            case "create":
                return await self._create()
            case "update":
                return await self._update("")
            case "patch":
                return await self._patch("")
            case "delete":
                return await self._delete()
            case _:
                return await self._delete_collection()

    def _check_method(self) -> None:
        """Whether the method fits the path: a collection is not replaced, an object is not posted to."""
        request, resource = self._request, self._resource
        writes = request.verb in ("create", "update", "patch", "deletecollection", "delete")
        if resource.custom and writes and resource.namespaced and not self._namespace:
            raise NotServed
        if resource.custom and request.verb in ("update", "patch") and not request.name:
            raise bad_request("name must be provided")
        fits = bool(request.name) == (request.verb not in ("create", "list", "watch", "deletecollection"))
        if request.verb == "watch":
            fits = True
        if request.verb not in resource.verbs or not fits:
            raise method_not_allowed()
        if writes and resource.namespaced and not self._namespace:
            raise method_not_allowed()

    # ------------------------------------------------------------ reading

    def _view(self) -> View:
        form = form_of(self._http.headers.get("Accept", ""))
        include = self._query.get("includeObject", "Metadata")
        if include not in ("None", "Metadata", "Object"):
            raise bad_request(f'unrecognized includeObject value: "{include[:40]}"')
        return View(self._resource, form, include)

    def _show(self, obj: Json, code: int = 200, call: Call | None = None) -> web.Response:
        view = self._view()
        return _answer(view.one(obj, now=self._server.now()), code, call.warnings if call else (), yaml=view.form.yaml)

    def _matches(self) -> Callable[[Json], bool] | None:
        labels, fields = self._query.get("labelSelector", ""), self._query.get("fieldSelector", "")
        return selector(labels, fields, self._resource) if labels or fields else None

    def _scope(self) -> str | None:
        return self._namespace if self._resource.namespaced and self._namespace else None

    def _page(self) -> Page:
        options = queries.list_options(self._query)
        matches = self._matches()
        if options.token:
            return self._server.pages.following(options.token, options.limit)
        store, key, scope = self._api.store, self._resource.key, self._scope()
        if options.at_least > store.version:
            raise queries.too_new(options.at_least, store.version)
        version = store.version if options.exact is None else options.exact
        items = store.list(key, scope) if options.exact is None else store.list_at(key, scope, version)
        if matches is not None:
            items = [item for item in items if matches(item)]
        return self._server.pages.first(items, version, options.limit)

    async def _list(self) -> web.StreamResponse:
        view, page = self._view(), self._page()
        meta: Json = {"resourceVersion": str(page.version)}
        if page.token:
            meta["continue"] = page.token
            if not (self._query.get("labelSelector") or self._query.get("fieldSelector")):
                meta["remainingItemCount"] = page.remaining
        elif self._resource.custom:
            meta["continue"] = ""
        if view.form.kind == "Table":
            from kruntimes.local.apiserver import tables

            return _answer(
                tables.table(
                    self._resource, page.items, meta, now=self._server.now(), include=view.include, columns=True
                )
            )
        if view.form.yaml:
            return _answer({**view.head(meta), "items": [view.item(obj) for obj in page.items]}, yaml=True)
        head = encode(view.head(meta))
        if len(page.items) <= SLICE_ITEMS:
            return _bytes(head[:-1] + b',"items":' + encode([view.item(obj) for obj in page.items]) + b"}")
        response = web.StreamResponse(headers={"Content-Type": JSON, **_NO_CACHE})
        await response.prepare(self._http)
        begin = head[:-1] + b',"items":['
        for start in range(0, len(page.items), SLICE_ITEMS):
            items = [self._server.encoded.of(view.item(obj)) for obj in page.items[start : start + SLICE_ITEMS]]
            await response.write(begin + b",".join(items))
            await asyncio.sleep(0)
            begin = b","
        await response.write_eof(b"]}")
        return response

    # ------------------------------------------------------------ writing

    async def _body(self) -> bytes:
        if (self._http.content_length or 0) > MAX_BODY:
            raise too_large(MAX_BODY)
        pieces, size = [], 0
        async for piece in self._http.content.iter_any():
            size += len(piece)
            if size > MAX_BODY:
                raise too_large(MAX_BODY)
            pieces.append(piece)
        return b"".join(pieces)

    def _media(self) -> str:
        return media_type(self._http.headers.get("Content-Type", ""))

    async def _object(self, resource: Resource) -> tuple[Json, Call]:
        """The body as an object of *resource*, and how it is to be written."""
        body, media, call = await self._body(), self._media(), self._call()
        value = read_object(body, media, resource, protobuf=self._api.parts.protobuf, registered=self._api.registered)
        if media == JSON and call.strictness != "Ignore":
            call = replace(call, duplicates=duplicates(body))
        return value, call

    def _call(self) -> Call:
        headers, options = self._http.headers, _WRITE_OPTIONS[self._http.method]
        manager = negotiation.field_manager(
            self._query, options, agent=headers.get("User-Agent", ""), apply=self._media() == APPLY_PATCH
        )
        return Call(
            user=self._request.user,
            manager=manager,
            dry_run=negotiation.dry_run(self._query, options),
            strictness=negotiation.strictness(self._query, options),
        )

    async def _create(self) -> web.Response:
        obj, call = await self._object(self._resource)
        return self._show(self._api.create(self._resource, self._namespace, obj, call), 201, call)

    async def _update(self, subresource: str) -> web.Response:
        obj, call = await self._object(self._resource)
        done, new = self._api.update(
            self._resource, self._namespace, self._request.name, obj, call, subresource=subresource
        )
        return self._show(done, 201 if new else 200, call)

    async def _patch_body(self) -> Any:
        media = self._media()
        known = [*self._api.parts.patches, APPLY_PATCH]
        if self._resource.custom:
            known = [each for each in known if each != STRATEGIC_PATCH]
        if media not in known:
            raise unsupported_media_type(known)
        return decode(await self._body(), media, self._api.parts.protobuf)

    async def _patch(self, subresource: str) -> web.Response:
        call, patch = self._call(), await self._patch_body()
        force = bool(flag(self._query, "force"))
        done, new = self._api.patch(
            self._resource, self._namespace, self._request.name, patch, self._media(), call,
            subresource=subresource, force=force,
        )  # fmt: skip
        return self._show(done, 201 if new else 200, call)

    async def _options(self) -> Any:
        body = await self._body()
        options = decode(body, self._media(), self._api.parts.protobuf) if body.strip() else {}
        return negotiation.delete_options(options, self._query)

    async def _delete(self) -> web.Response:
        options = await self._options()
        call = Call(user=self._request.user, dry_run=options.dry_run)
        obj, gone = self._api.delete(self._resource, self._namespace, self._request.name, options, call)
        if not gone or self._api.strategies.of(self._resource).answers_with_object:
            return self._show(obj)
        details = {"name": obj["metadata"]["name"], "kind": self._resource.plural, "uid": obj["metadata"]["uid"]}
        if self._resource.group:
            details["group"] = self._resource.group
        return _answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    async def _delete_collection(self) -> web.Response:
        options = await self._options()
        call = Call(user=self._request.user, dry_run=options.dry_run)
        matches = self._matches() or (lambda obj: True)
        gone = self._api.delete_collection(self._resource, self._scope(), matches, options, call)
        view = self._view()
        meta: Json = {"resourceVersion": str(self._api.store.version)}
        if self._resource.custom:
            meta["continue"] = ""
        return _answer({**view.head(meta), "items": [view.item(obj) for obj in gone]})

    # ------------------------------------------------------------ other forms

    async def _review(self) -> web.Response:
        if self._request.verb != "create":
            raise method_not_allowed()
        review = self._api.parts.reviews.get(self._resource.key)
        if review is None:
            raise path_not_found()
        obj, call = await self._object(self._resource)
        return _answer(review(self._api, self._request, obj, self._api.context(call)), 201)

    async def _subresource(self) -> web.StreamResponse:
        request, resource = self._request, self._resource
        name, verb = request.subresource, request.verb
        if name not in resource.subresources or not request.name:
            raise not_found(resource.about(request.name)) if resource.custom else path_not_found()
        if verb not in discovery.SUBRESOURCE_VERBS.get(name, ("get", "update", "patch")):
            raise verb_not_supported(resource.about(), verb) if resource.custom else method_not_allowed()
        if name == "log":
            return await self._server.logs.serve(self._http, self._namespace, request.name, self._query)
        if name == "scale":
            return await self._scale()
        act = self._api.parts.acts.get((*resource.key, name))
        if act is not None:
            value = decode(await self._body(), self._media(), self._api.parts.protobuf)
            if not isinstance(value, dict):
                raise bad_request("the body must be an object")
            return _answer(act(self._api, request, value, self._api.context(self._call())), 201)
        if verb == "get":
            return self._show(self._api.get(resource, self._namespace, request.name))
        if verb == "update":
            return await self._update(name)
        if verb == "patch":
            return await self._patch(name)
        raise path_not_found()

    async def _scale(self) -> web.Response:
        resource, name, verb = self._resource, self._request.name, self._request.verb
        stored = self._api.get(resource, self._namespace, name)
        call = self._call()
        if verb == "get":
            return _answer(scale.of(resource, stored))
        if verb == "update":
            wanted, call = await self._object(scale.SCALE)
        elif verb == "patch":
            patch = await self._patch_body()
            patcher = self._api.parts.patches.get(self._media())
            if patcher is None:
                raise bad_request("a scale is not applied")
            wanted = patcher(scale.SCALE, scale.of(resource, stored), patch)
        else:
            raise path_not_found()
        edited = scale.edit(resource, stored, wanted)
        done = self._api.change(resource, self._namespace, name, edited, call, subresource="scale")
        return _answer(scale.of(resource, done))

    # ------------------------------------------------------------ watching

    async def _watch(self) -> web.StreamResponse:
        """A stream of events from a version, or from the objects that there are."""
        view, matches, store, hub = self._view(), self._matches(), self._api.store, self._server.hub
        options = queries.watch_options(self._query)
        seconds = options.seconds or random.uniform(*WATCH_SECONDS)  # noqa: S311 (only spreads load)
        if self._request.name:
            matches = _named(self._request.name, matches)
        watcher = Watcher(view, self._scope(), matches)
        response = web.StreamResponse(headers={"Content-Type": view.content_type, **_NO_CACHE})
        first: list[Json] = []
        refusal: StatusError | None = None
        hub.add(watcher)
        try:
            version = store.version
            if options.objects:
                first = store.list(self._resource.key, self._scope())
            elif options.since:
                try:
                    hub.replay(watcher, list(store.events(self._resource.key, options.since)))
                except StatusError as error:
                    refusal = error
            await response.prepare(self._http)
            if refusal is not None:
                await response.write(error_line(refusal))
                return response
            await self._first(response, watcher, first)
            if options.mark_end:
                await response.write(hub.bookmark(watcher, version, initial_end=True))
            await self._events(response, watcher, seconds=seconds, bookmarks=options.bookmarks)
        except ConnectionError:
            pass  # the reader went away
        finally:
            hub.remove(watcher)
        if watcher.over and self._http.transport is not None:
            self._http.transport.abort()
        return response

    async def _first(self, response: web.StreamResponse, watcher: Watcher, objects: list[Json]) -> None:
        gathered = b""
        for data in self._server.hub.initial(watcher, objects):
            gathered += data
            if len(gathered) > SLICE_BYTES:
                await response.write(gathered)
                await asyncio.sleep(0)
                gathered = b""
        if gathered:
            await response.write(gathered)

    async def _events(self, response: web.StreamResponse, watcher: Watcher, *, seconds: float, bookmarks: bool) -> None:
        loop, hub, store = asyncio.get_running_loop(), self._server.hub, self._api.store
        end = loop.time() + seconds
        mark = loop.time() + min(BOOKMARK_SECONDS, max(seconds - LAST_BOOKMARK_SECONDS, seconds / 2))
        while not watcher.over:
            now = loop.time()
            if now >= end:
                return
            if bookmarks and now >= mark:
                # Whatever was written up to this version waits in front of it.
                watcher.put(hub.bookmark(watcher, store.version))
                mark = now + BOOKMARK_SECONDS
                if now < end - LAST_BOOKMARK_SECONDS < mark:
                    mark = end - LAST_BOOKMARK_SECONDS
            data = await watcher.take(min(end, mark if bookmarks else end) - now)
            if data:
                await response.write(data)


def _named(name: str, matches: Callable[[Json], bool] | None) -> Callable[[Json], bool]:
    """A selection that only one object can be in."""
    return lambda obj: obj["metadata"]["name"] == name and (matches is None or matches(obj))


def _nothing(api: Api, group: str) -> Exception:
    """What is said of a path in a group where nothing is: groups that are built in speak of it in a Status."""
    known = [resource for resource in api.resources if resource.group == group]
    return path_not_found() if known and not known[0].custom else NotServed()


def _not_allowed(request: Request) -> StatusError:
    """The refusal of authorisation."""
    user = request.user.name
    if not request.is_resource:
        message = f'forbidden: User "{user}" cannot {request.verb} path "{request.path}"'
        return StatusError(403, "Forbidden", message, about=About())
    what = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    about = About(group=request.group, kind=request.resource, name=request.name)
    why = f'User "{user}" cannot {request.verb} resource "{what}" in API group "{request.group}" {where}'
    return forbidden(about, why)


def _bytes(body: bytes, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=code, headers={"Content-Type": JSON, **_NO_CACHE, **(headers or {})})


def _answer(
    obj: Json, code: int = 200, warnings: Sequence[str] = (), *, yaml: bool = False, data: bytes | None = None
) -> web.Response:
    """data: the JSON of *obj*, where it has been made."""
    if yaml:
        from kruntimes.local.apiserver import yaml_bodies

        response = _bytes(yaml_bodies.dump(obj), code, {"Content-Type": YAML})
    else:
        response = _bytes(encode(obj) if data is None else data, code)
    for text in warnings:
        said = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{said}"')
    return response


def _refuse(refusal: StatusError) -> web.Response:
    headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after is not None else {}
    return _bytes(encode(refusal.to_json()), refusal.code, headers)


__all__ = ["Server", "User"]
