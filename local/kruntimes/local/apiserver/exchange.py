"""One request about a resource: what it asks for, read once and bounded, and how its answer is shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from aiohttp import web

from kruntimes.local.apiserver import answers, negotiation
from kruntimes.local.apiserver.api import Api, Call
from kruntimes.local.apiserver.bodies import decode, duplicates, media_type, read_object
from kruntimes.local.apiserver.encoding import Encoded
from kruntimes.local.apiserver.negotiation import View, form_of
from kruntimes.local.apiserver.node_logs import NodeLogs
from kruntimes.local.apiserver.pages import Pages
from kruntimes.local.apiserver.parts import APPLY_PATCH, JSON
from kruntimes.local.apiserver.request import Request
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.selectors import selector
from kruntimes.local.apiserver.status import bad_request, path_not_found, too_large
from kruntimes.local.apiserver.watch import Hub

Json = dict[str, Any]
Matches = Callable[[Json], bool]

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a request's body, as with etcd behind a real API server."""
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "GET": "GetOptions"}
"""The kind that a refusal of a query parameter names."""
_INCLUDES = ("None", "Metadata", "Object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What every exchange works on: the core, the watchers, lists that are being read, nodes, new objects' JSON."""

    api: Api
    hub: Hub
    pages: Pages
    logs: NodeLogs
    encoded: Encoded
    now: Callable[[], datetime]


class Exchange:
    """A request about *resource*. namespace: empty for all of them, and where the resource has none."""

    def __init__(self, backend: Backend, http: web.BaseRequest, request: Request, resource: Resource) -> None:
        if not resource.namespaced and request.namespace and resource.plural != "namespaces":
            raise path_not_found()
        self.backend, self.http, self.request, self.resource = backend, http, request, resource
        self.query: Mapping[str, str] = http.query
        self.namespace = request.namespace if resource.namespaced else ""
        self.warnings: list[str] = []

    @property
    def api(self) -> Api:
        """The core."""
        return self.backend.api

    @property
    def scope(self) -> str | None:
        """The namespace of a collection; None for all."""
        return self.namespace or None

    @property
    def media(self) -> str:
        """The body's media type."""
        return media_type(self.http.headers.get("Content-Type", ""))

    def view(self) -> View:
        """The form in which the answer is wanted. Raises NotAcceptable and BadRequest."""
        include = self.query.get("includeObject", "Metadata")
        if include not in _INCLUDES:
            raise bad_request(f'unrecognized includeObject value: "{include[:40]}"')
        return View(self.resource, form_of(self.http.headers.get("Accept", "")), include)

    def matches(self) -> Matches | None:
        """What the selectors select; None for everything. Raises BadRequest."""
        labels, fields = self.query.get("labelSelector", ""), self.query.get("fieldSelector", "")
        return selector(labels, fields, self.resource) if labels or fields else None

    async def body(self) -> bytes:
        """The whole body; raises RequestEntityTooLarge as soon as it is."""
        if (self.http.content_length or 0) > MAX_BODY:
            raise too_large(MAX_BODY)
        pieces, size = [], 0
        async for piece in self.http.content.iter_any():
            size += len(piece)
            if size > MAX_BODY:
                raise too_large(MAX_BODY)
            pieces.append(piece)
        return b"".join(pieces)

    async def value(self) -> Any:
        """The decoded body."""
        return decode(await self.body(), self.media, self.api.parts.protobuf)

    async def object(self, resource: Resource) -> tuple[Json, Call]:
        """The body as an object of *resource*, and how it is to be written."""
        body, media, call = await self.body(), self.media, self.call()
        parts = self.api.parts
        value = read_object(body, media, resource, protobuf=parts.protobuf, registered=self.api.registered)
        if media == JSON and call.strictness != "Ignore":
            call = replace(call, duplicates=duplicates(body))
        return value, call

    def call(self) -> Call:
        """How a write is asked for. Raises Invalid."""
        kind, agent = _OPTIONS[self.http.method], self.http.headers.get("User-Agent", "")
        return Call(
            user=self.request.user,
            manager=negotiation.field_manager(self.query, kind, agent=agent, apply=self.media == APPLY_PATCH),
            dry_run=negotiation.dry_run(self.query, kind),
            strictness=negotiation.strictness(self.query, kind),
            warnings=self.warnings,
        )

    def show(self, obj: Json, code: int = 200, call: Call | None = None) -> web.Response:
        """One object as the answer."""
        view = self.view()
        shown, warnings = view.one(obj, now=self.backend.now()), call.warnings if call else ()
        if view.form.yaml:
            return answers.document(shown, code, warnings, yaml=True)
        return answers.document(shown, code, warnings, data=self.backend.encoded.of(shown))
