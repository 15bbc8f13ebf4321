"""A watch as a stream: what there is or was written since, then every event, with bookmarks, until its time is over."""

import asyncio
import random
from collections.abc import Callable

from aiohttp import web

from kruntimes.local.apiserver import answers, queries
from kruntimes.local.apiserver.exchange import Exchange, Json, Matches
from kruntimes.local.apiserver.queries import WatchOptions
from kruntimes.local.apiserver.status import StatusError
from kruntimes.local.apiserver.watch import Hub, Watcher, error_line

SLICE_BYTES = 64 * 1024
"""Bytes that are gathered before they are written."""
BOOKMARK_SECONDS = 55.0
"""Between bookmarks of a watch that asks for them, whatever happens; a real server sends one a minute."""
LAST_BOOKMARK_SECONDS = 2.0
"""Before its time is over a watch gets a last bookmark, so that it goes on from there."""
LIFE_SECONDS = (1800.0, 3600.0)
"""The life of a watch that names none: drawn, so that not all come back at once."""


async def watch(exchange: Exchange) -> web.StreamResponse:
    """Streams until the time is over, the reader goes away, or it reads too slowly to be kept."""
    view, matches = exchange.view(), exchange.matches()
    options = queries.watch_options(exchange.query)
    if exchange.request.name:
        matches = _named(exchange.request.name, matches)
    hub, watcher = exchange.backend.hub, Watcher(view, exchange.scope, matches)
    watcher.let_go = lambda: _cut(exchange.http)
    response = web.StreamResponse(headers={"Content-Type": view.content_type, **answers.NO_CACHE})
    hub.add(watcher)
    try:
        await _stream(exchange, response, watcher, options)
    except ConnectionError:
        pass  # the reader went away
    finally:
        hub.remove(watcher)
    return response


def _cut(http: web.BaseRequest) -> None:
    """Ends the connection at once, whatever waits to be sent; asyncio's TLS transport can be aborted only once."""
    transport = http.transport
    if transport is not None and not transport.is_closing():
        transport.abort()


def _named(name: str, matches: Matches | None) -> Callable[[Json], bool]:
    """A selection that only one object can be in."""
    return lambda obj: obj["metadata"]["name"] == name and (matches is None or matches(obj))


async def _stream(exchange: Exchange, response: web.StreamResponse, watcher: Watcher, options: WatchOptions) -> None:
    store, hub, key = exchange.api.store, exchange.backend.hub, exchange.resource.key
    # From here to the first await nothing else is written: what is taken now and what the watcher hears from now on
    # fit together without gap or overlap.
    version, objects = store.version, store.list(key, exchange.scope) if options.objects else []
    refusal: StatusError | None = None
    if options.since and not options.objects:
        try:
            hub.replay(watcher, list(store.events(key, options.since)))
        except StatusError as error:
            refusal = error
    await response.prepare(exchange.http)
    if refusal is not None:
        await response.write(error_line(refusal))
        return
    await _first(response, hub, watcher, objects)
    if options.mark_end:
        await response.write(hub.bookmark(watcher, version, initial_end=True))
    seconds = options.seconds or random.uniform(*LIFE_SECONDS)  # noqa: S311 (only spreads load)
    await _events(exchange, response, watcher, seconds=seconds, bookmarks=options.bookmarks)


async def _first(response: web.StreamResponse, hub: Hub, watcher: Watcher, objects: list[Json]) -> None:
    """The objects that there are, in slices."""
    gathered: list[bytes] = []
    size = 0
    for data in hub.initial(watcher, objects):
        gathered.append(data)
        size += len(data)
        if size > SLICE_BYTES:
            await response.write(b"".join(gathered))
            await asyncio.sleep(0)
            gathered, size = [], 0
    if gathered:
        await response.write(b"".join(gathered))


async def _events(
    exchange: Exchange, response: web.StreamResponse, watcher: Watcher, *, seconds: float, bookmarks: bool
) -> None:
    loop, hub, store = asyncio.get_running_loop(), exchange.backend.hub, exchange.api.store
    end = loop.time() + seconds
    mark = loop.time() + min(BOOKMARK_SECONDS, max(seconds - LAST_BOOKMARK_SECONDS, seconds / 2))
    while (now := loop.time()) < end:
        if bookmarks and now >= mark:
            # Whatever was written up to this version waits in front of it.
            watcher.put(hub.bookmark(watcher, store.version))
            mark = now + BOOKMARK_SECONDS
            if now < end - LAST_BOOKMARK_SECONDS < mark:
                mark = end - LAST_BOOKMARK_SECONDS
        data = await watcher.take(min(end, mark if bookmarks else end) - now)
        if data:
            await response.write(data)
        if watcher.over:
            return
