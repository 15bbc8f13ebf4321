"""Writes: of objects, of their subresources, and the reviews, which are asked for by a POST and never stored."""

import asyncio
from typing import Any

from aiohttp import web

from kruntimes.local.apiserver import answers, discovery, negotiation, scale
from kruntimes.local.apiserver.api import Call
from kruntimes.local.apiserver.bodies import decode
from kruntimes.local.apiserver.exchange import Exchange, Json
from kruntimes.local.apiserver.negotiation import flag
from kruntimes.local.apiserver.parts import APPLY_PATCH, STRATEGIC_PATCH
from kruntimes.local.apiserver.status import (
    bad_request,
    method_not_allowed,
    not_found,
    path_not_found,
    unsupported_media_type,
    verb_not_supported,
)  # fmt: skip
from kruntimes.local.apiserver.strategy import DeleteOptions

SLICE_OBJECTS = 20
"""Objects of a collection that are deleted before others get their turn, watchers with their queues among them."""


async def create(exchange: Exchange) -> web.StreamResponse:
    """POST of an object."""
    obj, call = await exchange.object(exchange.resource)
    return exchange.show(exchange.api.create(exchange.resource, exchange.namespace, obj, call), 201, call)


async def update(exchange: Exchange) -> web.StreamResponse:
    """PUT of an object, or of its subresource."""
    obj, call = await exchange.object(exchange.resource)
    request = exchange.request
    done, new = exchange.api.update(
        exchange.resource, exchange.namespace, request.name, obj, call, subresource=request.subresource
    )
    return exchange.show(done, 201 if new else 200, call)


async def patch(exchange: Exchange) -> web.StreamResponse:
    """PATCH of an object, or of its subresource."""
    call, value = exchange.call(), await _patch(exchange)
    request, force = exchange.request, bool(flag(exchange.query, "force"))
    done, new = exchange.api.patch(
        exchange.resource, exchange.namespace, request.name, value, exchange.media, call,
        subresource=request.subresource, force=force,
    )  # fmt: skip
    return exchange.show(done, 201 if new else 200, call)


async def _patch(exchange: Exchange) -> Any:
    """The decoded patch; raises UnsupportedMediaType before the body is looked at."""
    known = [*exchange.api.parts.patches, APPLY_PATCH]
    if exchange.resource.custom:
        known = [each for each in known if each != STRATEGIC_PATCH]
    if exchange.media not in known:
        raise unsupported_media_type(known)
    return await exchange.value()


async def _delete_options(exchange: Exchange) -> tuple[DeleteOptions, Call]:
    body = await exchange.body()
    value = decode(body, exchange.media, exchange.api.parts.protobuf) if body.strip() else {}
    options = negotiation.delete_options(value, exchange.query)
    return options, Call(user=exchange.request.user, dry_run=options.dry_run)


async def delete(exchange: Exchange) -> web.StreamResponse:
    """DELETE of an object: a Status where it is gone, and the object where it is not yet."""
    options, call = await _delete_options(exchange)
    resource, api = exchange.resource, exchange.api
    obj, gone = api.delete(resource, exchange.namespace, exchange.request.name, options, call)
    if not gone or api.strategies.of(resource).answers_with_object:
        return exchange.show(obj)
    details = {"name": obj["metadata"]["name"], "kind": resource.plural, "uid": obj["metadata"]["uid"]}
    if resource.group:
        details["group"] = resource.group
    return answers.document(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    )


async def delete_collection(exchange: Exchange) -> web.StreamResponse:
    """DELETE of all that is selected: the list of what was."""
    options, call = await _delete_options(exchange)
    matches = exchange.matches() or (lambda obj: True)
    view = exchange.view()
    gone = []
    for obj in exchange.api.delete_each(exchange.resource, exchange.scope, matches, options, call):
        gone.append(obj)
        if len(gone) % SLICE_OBJECTS == 0:
            await asyncio.sleep(0)
    meta: Json = {"resourceVersion": str(exchange.api.store.version)}
    if exchange.resource.custom:
        meta["continue"] = ""
    return answers.document({**view.head(meta), "items": [view.item(obj) for obj in gone]})


async def review(exchange: Exchange) -> web.StreamResponse:
    """A question whose answer is not stored."""
    if exchange.request.verb != "create":
        raise method_not_allowed()
    answer = exchange.api.parts.reviews.get(exchange.resource.key)
    if answer is None:
        raise path_not_found()
    obj, call = await exchange.object(exchange.resource)
    return answers.document(answer(exchange.api, exchange.request, obj, exchange.api.context(call)), 201)


async def subresource(exchange: Exchange) -> web.StreamResponse:
    """Status, scale, log, and those that do something (binding, token)."""
    request, resource = exchange.request, exchange.resource
    name, verb = request.subresource, request.verb
    if name not in resource.subresources or not request.name:
        raise not_found(resource.about(request.name)) if resource.custom else path_not_found()
    if verb not in discovery.SUBRESOURCE_VERBS.get(name, ("get", "update", "patch")):
        raise verb_not_supported(resource.about(), verb) if resource.custom else method_not_allowed()
    if name == "log":
        return await exchange.backend.logs.serve(exchange.http, exchange.namespace, request.name, exchange.query)
    if name == "scale":
        return await _scale(exchange)
    act = exchange.api.parts.acts.get((*resource.key, name))
    if act is not None:
        value = await exchange.value()
        if not isinstance(value, dict):
            raise bad_request("the body must be an object")
        return answers.document(act(exchange.api, request, value, exchange.api.context(exchange.call())), 201)
    if verb == "get":
        return exchange.show(exchange.api.get(resource, exchange.namespace, request.name))
    return await (update(exchange) if verb == "update" else patch(exchange))


async def _scale(exchange: Exchange) -> web.StreamResponse:
    resource, api, name = exchange.resource, exchange.api, exchange.request.name
    stored = api.get(resource, exchange.namespace, name)
    call = exchange.call()
    if exchange.request.verb == "get":
        return answers.document(scale.of(resource, stored))
    if exchange.request.verb == "update":
        wanted, call = await exchange.object(scale.SCALE)
    else:
        value = await _patch(exchange)
        patcher = api.parts.patches.get(exchange.media)
        if patcher is None:
            raise bad_request("a scale is not applied")
        wanted = patcher(scale.SCALE, scale.of(resource, stored), value)
    edited = scale.edit(resource, stored, wanted)
    done = api.change(resource, exchange.namespace, name, edited, call, subresource="scale")
    return answers.document(scale.of(resource, done))
