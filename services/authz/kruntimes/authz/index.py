"""Which Run has which UID, and which Runtimes there are: copies of metadata, kept by watches (design §6).

A path names a UID and a review needs a name. Specs, with sources of up to 256 KiB, are never fetched. Of which Runtime
a Run is stands in its spec: that is for its owner to say, and only where there can be no owner the API server is asked.
"""

import asyncio
from collections import defaultdict

from kruntimes.common import clock
from kruntimes.common.api.views import Object
from kruntimes.common.errors import KruntimesError
from kruntimes.common.kube import paths
from kruntimes.common.kube.reflector import METADATA_LIST, Reflector
from kruntimes.common.kube.transport import Kube

WAIT_SECONDS = 0.25
"""A Run that was made a moment ago is about to appear; nobody waits longer for one that may not exist. Every refusal is
held until then, so that its time does not tell whether there is such a Run."""
MAX_WAITING = 128
"""Callers that may wait at once; the others take the index at its word, so that made-up UIDs hold no connections."""
MAX_LOOKUPS = 8
"""Questions to the API server about Runs under Runtimes that do not exist; beyond this a Run is taken to belong."""


class Names:
    """UID → (namespace, name), fed with objects by their `namespace/name`."""

    def __init__(self) -> None:
        self._by_uid: dict[str, tuple[str, str]] = {}
        self._uids: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def apply(self, key: str, found: Object | None) -> str | None:
        """Takes what is now at *key*, None where nothing is; returns a UID that has become known."""
        uid = found.metadata.uid if found is not None else ""
        old = self._uids.get(key)
        if old == uid:
            return None
        if old is not None:
            del self._uids[key]
            del self._by_uid[old]
        if found is None or not uid:
            return None
        self._uids[key] = uid
        self._by_uid[uid] = (found.metadata.namespace, found.metadata.name)
        return uid

    def name(self, *, namespace: str, uid: str) -> str | None:
        """The name of the Run with this UID in this namespace; a UID of another namespace is as good as none."""
        found = self._by_uid.get(uid)
        return found[1] if found is not None and found[0] == namespace else None


class Index:
    """The names that a watch keeps current while `run` runs."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._names = Names()
        self._reflector = Reflector(kube, paths.runs(None), Object, metadata_only=True, on_change=self._changed)
        self._runtimes = Reflector(kube, paths.runtimes(None), Object, metadata_only=True)
        self._lookups = 0
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._waiters = 0

    def __len__(self) -> int:
        return len(self._names)

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once; before that nothing may be said to be unknown."""
        return self._reflector.synced.is_set()

    @property
    def current(self) -> bool:
        """Whether the watch lives, so that what is not there does not exist."""
        return self._reflector.healthy_since() is not None

    def name(self, *, namespace: str, uid: str) -> str | None:
        """The name of a Run that is known."""
        return self._names.name(namespace=namespace, uid=uid)

    async def appears(self, *, namespace: str, uid: str, until: float) -> str | None:
        """Waits for a Run to become known, until *until* (monotonic); its name, or None if it did not.

        One that is known already does not become so: the wait then lasts as long as for one that never comes.
        """
        if self._waiters >= MAX_WAITING:
            return None
        appeared = asyncio.get_running_loop().create_future()
        self._waiting[uid].add(appeared)
        self._waiters += 1
        try:
            async with asyncio.timeout(max(0.0, until - clock.monotonic())):
                await appeared
        except TimeoutError:
            return None
        finally:
            self._waiters -= 1
            self._forget(uid, appeared)
        return self._names.name(namespace=namespace, uid=uid)

    def has_runtime(self, *, namespace: str, runtime: str) -> bool:
        """Whether there is such a Runtime, as far as is known; not knowing counts as no."""
        return f"{namespace}/{runtime}" in self._runtimes.store

    async def astray(self, *, namespace: str, runtime: str, name: str) -> bool:
        """Whether this Run is certainly not of a Runtime of that name, and nobody else can say so: there is none.

        A hit of the copy does not suspend. Not knowing counts as no.
        """
        if not self._runtimes.synced.is_set() or self._runtimes.healthy_since() is None:
            return False
        if self.has_runtime(namespace=namespace, runtime=runtime) or self._lookups >= MAX_LOOKUPS:
            return False
        self._lookups += 1
        try:
            found, _ = await self._kube.list_raw(
                paths.runs(namespace),
                field_selector=f"metadata.name={name},spec.runtime={runtime}",
                accept=METADATA_LIST,
            )
        except KruntimesError:
            return False
        finally:
            self._lookups -= 1
        return not found

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            group.create_task(self._runtimes.run())

    def _changed(self, key: str) -> None:
        uid = self._names.apply(key, self._reflector.store.get(key))
        for appeared in self._waiting.get(uid, ()) if uid else ():
            if not appeared.done():
                appeared.set_result(None)

    def _forget(self, uid: str, appeared: asyncio.Future[None]) -> None:
        held = self._waiting[uid]
        held.discard(appeared)
        if not held:
            del self._waiting[uid]
