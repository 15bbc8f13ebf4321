"""Waiting for what others do, which no watch is worth: a hook lives for seconds."""

import asyncio
from collections.abc import Awaitable, Callable

from kruntimes.common import clock

POLL_SECONDS = 0.25


async def until(check: Callable[[], Awaitable[bool]], *, end: float) -> bool:
    """Whether *check* came true, tried at least once, before *end* (monotonic seconds)."""
    while True:
        if await check():
            return True
        if clock.monotonic() >= end:
            return False
        await asyncio.sleep(POLL_SECONDS)
