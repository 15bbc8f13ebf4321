"""What goes away by age: Events, and certificate requests that are over. Pure decisions, small shells."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.csr import APPROVED, DENIED, FAILED
from kruntimes.local.apiserver.csr import KEY as REQUESTS
from kruntimes.local.apiserver.loops.notes import EVENTS
from kruntimes.local.apiserver.loops.resource import resource
from kruntimes.local.apiserver.loops.work import follow
from kruntimes.local.apiserver.parts import Json
from kruntimes.local.apiserver.store import Event

EVENT_LIFE = timedelta(hours=1)
"""Of an Event after it was last written, as on a real control plane."""
MAX_EVENTS = 4096
"""Events kept: a stack that writes more in an hour loses the oldest first, so that memory stays bounded."""
DECIDED_LIFE = timedelta(hours=1)
PENDING_LIFE = timedelta(hours=24)
"""Of a certificate request that is decided, and of one on which nobody decides."""


class Events:
    """Deletes Events by age and number. Keys are (namespace, name)."""

    def __init__(self, api: Api) -> None:
        self._api, self._store = api, api.store
        self._written: dict[tuple[str, str], datetime] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        now = self._api.context().now
        self._written = {_key(obj): now for obj in self._store.list(EVENTS)}
        await follow(self._api, keys=self.keys, reconcile=self.reconcile, start=list(self._written))

    def keys(self, event: Event) -> Iterable[tuple[str, str]]:
        """A new one is looked at, and the one that has not been written to for longest where there are too many."""
        if event.resource != EVENTS:
            return ()
        key = _key(event.object)
        self._written.pop(key, None)
        if event.type == "DELETED":
            return ()
        self._written[key] = self._api.context().now
        oldest = [next(iter(self._written))] if len(self._written) > MAX_EVENTS else []
        return oldest if event.type == "MODIFIED" else [key, *oldest]

    def reconcile(self, key: tuple[str, str]) -> float | None:
        """Deletes it, or says when it will be time."""
        written = self._written.get(key)
        if written is None or self._store.peek(EVENTS, *key) is None:
            return None
        left = (written + EVENT_LIFE - self._api.context().now).total_seconds()
        crowded = len(self._written) > MAX_EVENTS and next(iter(self._written)) == key
        if left > 0 and not crowded:
            return left
        self._api.delete(resource(self._api, EVENTS), *key)
        return None


class Requests:
    """Deletes certificate requests that are over. Keys are names."""

    def __init__(self, api: Api) -> None:
        self._api, self._store = api, api.store

    async def run(self) -> None:
        """Until it is cancelled."""
        start = [obj["metadata"]["name"] for obj in self._store.list(REQUESTS)]
        await follow(self._api, keys=self.keys, reconcile=self.reconcile, start=start)

    def keys(self, event: Event) -> Iterable[str]:
        """Whichever is written to."""
        return [event.object["metadata"]["name"]] if event.resource == REQUESTS and event.type != "DELETED" else ()

    def reconcile(self, name: str) -> float | None:
        """Deletes it, or says when it will be time."""
        request = self._store.peek(REQUESTS, "", name)
        if request is None:
            return None
        left = (over_at(request) - self._api.context().now).total_seconds()
        if left > 0:
            return left
        self._api.delete(resource(self._api, REQUESTS), "", name)
        return None


def over_at(request: Json) -> datetime:
    """When a certificate request is of no use to anybody any more."""
    decided = [
        condition.get("lastUpdateTime") or request["metadata"]["creationTimestamp"]
        for condition in request.get("status", {}).get("conditions") or ()
        if condition.get("type") in (APPROVED, DENIED, FAILED)
    ]
    if decided:
        return datetime.fromisoformat(min(decided)) + DECIDED_LIFE
    return datetime.fromisoformat(request["metadata"]["creationTimestamp"]) + PENDING_LIFE


def _key(obj: Json) -> tuple[str, str]:
    return (obj["metadata"]["namespace"], obj["metadata"]["name"])
