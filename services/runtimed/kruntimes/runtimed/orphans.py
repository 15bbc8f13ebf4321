"""What an earlier process of ours left in this Pod of Runs that are ours no more (design §5, "any, deleting").

A Run may end, go elsewhere or vanish while no runtimed is here to see it. Its folder then still lies in our part of
the workspace, and the Runtime Server may still hold its function or its task. Both are found without any record:
folders by listing our own, tasks by List, functions by the folder that each of them has.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import ASSIGNED
from kruntimes.common.api.views import Run
from kruntimes.common.errors import NotReady
from kruntimes.runtimed import source
from kruntimes.runtimed.executing import stop
from kruntimes.runtimed.registration import RuntimeServer
from kruntimes.runtimed.source import Home

log = logging.getLogger(__name__)

REPEAT_SECONDS = 10.0
"""Between two tries where the Runtime Server did not answer: nothing waits for this."""


def claims(run: Run) -> bool:
    """Whether *run*, which names our Pod, may have anything here that reconciling it takes care of."""
    return run.status.phase in ASSIGNED or FINALIZER in run.metadata.finalizers


@dataclass(slots=True, kw_only=True)
class Sweeper:
    """owned: the UIDs that are not to be touched, as of now; asked again before each removal."""

    server: RuntimeServer
    home: Home
    owned: Callable[[], Collection[str]]

    async def run(self) -> None:
        """Removes every orphan there is, and returns once none is left."""
        while True:
            try:
                await self._sweep()
            except NotReady as error:
                log.warning("orphans not removed yet", extra={"error": str(error)})
                await asyncio.sleep(REPEAT_SECONDS)
            else:
                return

    async def _sweep(self) -> None:
        tasks = await self.server.executor.known()
        folders = await asyncio.to_thread(source.found, self.home)
        for uid in sorted((tasks | folders) - set(self.owned())):
            if uid in self.owned():
                continue  # assigned to us anew meanwhile: it will be taken care of
            if uid in tasks:
                await stop(self.server.executor, uid)
            await self.server.unregister(run_uid=uid, registration_id="")
            await asyncio.to_thread(source.remove_all, self.home, uid=uid)
            log.info("orphan removed", extra={"run_uid": uid})
