"""Ends what runs before an installation goes, while its operator can still do so in order (design §13, "uninstall").

Every Run is deleted: its runtimed finishes or cancels the calls, unregisters the function and lets it go. Then the
Runtimes, and with them their Pods. What has not gone in time has nobody left who could prove anything about it: its
finalizer is taken off, so that no object stays that cannot be deleted, and the log names it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kruntimes.common import clock
from kruntimes.common.api.names import FINALIZER, RUNTIME_LABEL
from kruntimes.common.api.views import Object
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import Conflict, Missing
from kruntimes.common.kube.transport import Kube
from kruntimes.controller.hooks.waiting import until
from kruntimes.controller.podtemplate import MANAGED_BY

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Requests under way: thousands of Runs go within seconds, and the API server has other work too."""
FINALIZER_SECONDS = 15.0
"""After the time is over: removing finalizers is a write for each Run, and needs nobody's help."""
PODS = ",".join([RUNTIME_LABEL, *(f"{name}={value}" for name, value in MANAGED_BY.items())])


class Leaving:
    """One uninstall. runtimes: label selector of the Runtimes that end; empty for all.

    seconds: for an orderly end; finalizer_seconds: after that, for taking finalizers off.
    """

    def __init__(
        self, kube: Kube, *, runtimes: str, seconds: float, finalizer_seconds: float = FINALIZER_SECONDS
    ) -> None:
        self._kube = kube
        self._selector = runtimes
        self._until = clock.monotonic() + seconds
        self._finalizer_seconds = finalizer_seconds

    async def run(self) -> None:
        """Returns when no Run is left and the Runtimes' Pods have ended, or the time is over."""
        ended = await self._until_none("runs", self._delete_runs)
        gone = await self._until_none("runtimes", self._delete_runtimes)
        if not (ended and gone):
            self._until = clock.monotonic() + self._finalizer_seconds
            await self._until_none("runs with a finalizer", self._release_runs)

    async def _until_none(self, what: str, step: Callable[[], Awaitable[int]]) -> bool:
        """Repeats *step*, which returns how many are left; False when the time is over first."""
        left = 0

        async def none() -> bool:
            nonlocal left
            left = await step()
            return not left

        ended = await until(none, end=self._until)
        log.log(logging.INFO if ended else logging.WARNING, "waited for the end", extra={"what": what, "left": left})
        return ended

    async def _delete_runs(self) -> int:
        runs = await self._list(paths.runs(None))
        await self._each([run for run in runs if not run.metadata.deleting], self._delete_run)
        return len(runs)

    async def _delete_run(self, run: Object) -> None:
        await self._kube.delete(paths.runs(run.metadata.namespace, run.metadata.name), uid=run.metadata.uid)

    async def _delete_runtimes(self) -> int:
        """The Pods of a deleted Runtime are counted until they have drained: they still need their roles."""
        runtimes = await self._list(paths.runtimes(None), self._selector)
        await self._each([one for one in runtimes if not one.metadata.deleting], self._delete_runtime)
        staying = {(one.metadata.namespace, one.metadata.name) for one in await self._list(paths.runtimes(None))}
        pods = await self._list(paths.pods(None), PODS)
        ours = [p for p in pods if (p.metadata.namespace, p.metadata.labels.get(RUNTIME_LABEL)) not in staying]
        return len(runtimes) + len(ours)

    async def _delete_runtime(self, runtime: Object) -> None:
        path = paths.runtimes(runtime.metadata.namespace, runtime.metadata.name)
        await self._kube.delete(path, uid=runtime.metadata.uid, propagation="Background")

    async def _release_runs(self) -> int:
        runs = await self._list(paths.runs(None))
        await self._each(runs, self._release_run)
        return len(runs)

    async def _release_run(self, run: Object) -> None:
        meta = run.metadata
        if not meta.deleting:
            await self._delete_run(run)
            return
        if FINALIZER not in meta.finalizers:
            return
        log.warning("finalizer taken off without proof", extra={"run": meta.key, "run_uid": meta.uid})
        left = [name for name in meta.finalizers if name != FINALIZER]
        patch: list[dict[str, object]] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "replace", "path": "/metadata/finalizers", "value": left},
        ]
        await self._kube.patch_json(paths.runs(meta.namespace, meta.name), patch, Object)

    async def _list(self, path: str, selector: str = "") -> list[Object]:
        """What is there; nothing, where the kind itself is gone."""
        try:
            found, _ = await self._kube.list(path, Object, label_selector=selector)
        except Missing:
            return []
        return found

    async def _each(self, objects: list[Object], act: Callable[[Object], Awaitable[None]]) -> None:
        """Acts on each; one that went or changed meanwhile is looked at again by the next round."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(obj: Object) -> None:
            async with places:
                try:
                    await act(obj)
                except (Missing, Conflict):
                    log.debug("gone or changed meanwhile", extra={"object": obj.metadata.key})

        async with asyncio.TaskGroup() as group:
            for obj in objects:
                group.create_task(one(obj))
