"""`/drain`, which the `preStop` of the container `runtime` calls: it answers once nothing is held any more (design §13).

It is obeyed only while our own Pod is being deleted, so that nobody who can reach the port can empty a Pod.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

LOOK_SECONDS = 0.1
"""How often it is looked whether everything has been let go."""


def route(*, deleting: Callable[[], Awaitable[bool]], held: Callable[[], int], seconds: float) -> web.AbstractRouteDef:
    """The route. deleting: whether our Pod has a deletionTimestamp. held: how many Runs are here. seconds: its limit."""

    async def drain(_: web.Request) -> web.Response:
        if not await deleting():
            return web.Response(status=409, text="this Pod is not being deleted\n")
        try:
            async with asyncio.timeout(seconds):
                while held():
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return web.Response(status=504, text="not everything ended in time\n")
        return web.Response(text="drained\n")

    return web.get("/drain", drain)
