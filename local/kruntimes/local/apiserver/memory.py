"""When Python may look for cycles: a look through every stored object stops the server for a tenth of a second.

Objects of the API hold no cycles, so their number says nothing about what there is to find. Young objects are looked
through as they come; all of them only while nobody asks for anything, or when that has not been so for long.
"""

import asyncio
import gc
from collections.abc import Callable

from kruntimes.common import clock

YOUNG, MIDDLE, NEVER = 10_000, 5, 1_000_000_000
"""Thresholds of the collector: some milliseconds at a time, and the oldest generation not by itself."""
LOOK_SECONDS = 15.0
QUIET_SECONDS = 2.0
"""Without a request; the next one is likely some time away."""
LONGEST_SECONDS = 600.0
"""After that it is done in the midst of work."""


def settle() -> None:
    """Called once when everything is loaded: what is there now stays, and is never looked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


async def collect_when_quiet(last_request: Callable[[], float]) -> None:
    """Runs until cancelled. last_request: when the last one came, on the monotonic clock."""
    collected = clock.monotonic()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now, asked = clock.monotonic(), last_request()
        quiet = now - asked > QUIET_SECONDS and asked > collected
        if quiet or now - collected > LONGEST_SECONDS:
            gc.collect()
            collected = clock.monotonic()
