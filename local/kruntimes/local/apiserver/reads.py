"""Reads of objects: one, or a collection page by page, encoded in slices so that nobody waits for a long list."""

import asyncio

from aiohttp import web

from kruntimes.local.apiserver import answers, queries, tables
from kruntimes.local.apiserver.encoding import encode
from kruntimes.local.apiserver.exchange import Exchange, Json
from kruntimes.local.apiserver.pages import Page
from kruntimes.local.apiserver.parts import JSON

SLICE_ITEMS = 16
"""Items of a list that are encoded before others get their turn: about a millisecond of 20 kB objects."""


async def get(exchange: Exchange) -> web.StreamResponse:
    """One object."""
    queries.version(exchange.query.get("resourceVersion", ""))
    return exchange.show(exchange.api.get(exchange.resource, exchange.namespace, exchange.request.name))


def _page(exchange: Exchange) -> Page:
    options = queries.list_options(exchange.query)
    matches, pages = exchange.matches(), exchange.backend.pages
    if options.token:
        return pages.following(options.token, options.limit)
    store, key, scope = exchange.api.store, exchange.resource.key, exchange.scope
    if options.at_least > store.version:
        raise queries.too_new(options.at_least, store.version)
    version = store.version if options.exact is None else options.exact
    items = store.list(key, scope) if options.exact is None else store.list_at(key, scope, version)
    if matches is not None:
        items = [item for item in items if matches(item)]
    return pages.first(items, version, options.limit)


async def list_objects(exchange: Exchange) -> web.StreamResponse:
    """A collection, or a page of it."""
    view, page, query = exchange.view(), _page(exchange), exchange.query
    meta: Json = {"resourceVersion": str(page.version)}
    if page.token:
        meta["continue"] = page.token
        if not (query.get("labelSelector") or query.get("fieldSelector")):
            meta["remainingItemCount"] = page.remaining
    elif exchange.resource.custom:
        meta["continue"] = ""
    if view.form.kind == "Table":
        now, include = exchange.backend.now(), view.include
        return answers.document(
            tables.table(exchange.resource, page.items, meta, now=now, include=include, columns=True)
        )
    if view.form.yaml:
        return answers.document({**view.head(meta), "items": [view.item(obj) for obj in page.items]}, yaml=True)
    begin = encode(view.head(meta))[:-1] + b',"items":['
    encoded = exchange.backend.encoded
    slices = [page.items[at : at + SLICE_ITEMS] for at in range(0, len(page.items), SLICE_ITEMS)]
    if len(slices) < 2:
        return answers.raw(begin + b",".join(encoded.of(view.item(obj)) for obj in page.items) + b"]}")
    response = web.StreamResponse(headers={"Content-Type": JSON, **answers.NO_CACHE})
    await response.prepare(exchange.http)
    for items in slices:
        await response.write(begin + b",".join(encoded.of(view.item(obj)) for obj in items))
        await asyncio.sleep(0)
        begin = b","
    await response.write_eof(b"]}")
    return response
