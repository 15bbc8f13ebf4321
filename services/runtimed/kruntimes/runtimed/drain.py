"""`/drain`, which the `preStop` of the container `runtime` calls: it answers once nothing is held any more.

It is obeyed only while our own Pod is being deleted, so that whoever reaches the port cannot empty a Pod (design §13).
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web


def route(*, deleting: Callable[[], Awaitable[bool]], empty: asyncio.Event, seconds: float) -> web.AbstractRouteDef:
    """The route. deleting: whether our Pod is being deleted. empty: set while no Run is held. seconds: at most."""

    async def drain(_: web.Request) -> web.Response:
        if not await deleting():
            return web.Response(status=409, text="this Pod is not being deleted\n")
        try:
            async with asyncio.timeout(seconds):
                await empty.wait()
        except TimeoutError:
            return web.Response(status=504, text="not everything ended in time\n")
        return web.Response(text="drained\n")

    return web.get("/drain", drain)
