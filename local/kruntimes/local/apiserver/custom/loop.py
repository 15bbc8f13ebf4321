"""Cleans up after CustomResourceDefinitions that are deleted. Shell."""

import asyncio
from typing import TYPE_CHECKING

from kruntimes.local.apiserver.custom import definitions

if TYPE_CHECKING:
    from kruntimes.local.apiserver.api import Api
    from kruntimes.local.apiserver.store import Event


async def clean_up(api: "Api") -> None:
    """Until it is cancelled."""
    due = asyncio.Event()
    due.set()

    def wrote(event: "Event") -> None:
        # Any object that goes may be the last one of a definition that is going away.
        if event.type == "DELETED" or (
            event.resource == definitions.KEY and "deletionTimestamp" in event.object["metadata"]
        ):
            due.set()

    stop = api.listen(wrote)
    try:
        while True:
            await due.wait()
            due.clear()
            definitions.clean_up(api)
    finally:
        stop()
