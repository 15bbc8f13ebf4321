"""The durable part of the control plane, in memory: objects, one clock of versions, a bounded history. Pure.

Objects are plain JSON and are never changed once they are in: a write puts a new one in the place of the old.
Every write takes the next resourceVersion, which is the position in one history for all resources, as in etcd. A
watch is a cursor into that history; what has been compacted away is answered with 410, and the watcher lists anew.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import STALE, already_exists, conflict, expired, not_found

Json = dict[str, Any]
Objects = list[Json]

HISTORY_EVENTS = 4096
"""Events kept for watchers that come back; a local stack writes a few a second, so this is many minutes."""
HISTORY_BYTES = 32 * 1024 * 1024
"""The same bound in bytes, counted by `size`: a Run may carry 256 KiB of source."""
FIRST_VERSION = 1


@dataclass(frozen=True, slots=True)
class Event:
    """One write. previous is the object before it (None for ADDED): a watcher whose selector matched that and no
    longer matches the new one is told of a deletion."""

    version: int
    type: str
    resource: tuple[str, str]
    object: Json
    previous: Json | None


class Store:
    """Objects by resource, namespace and name.

    size: estimates the bytes of an object for the history's bound. on_write: called with each event right after its
    write, to hand it to the watchers of this moment; it must not write itself. The history is for those who come later.
    first_version: above all versions of an earlier life, so that its watchers are told that they are too old.
    """

    def __init__(
        self,
        *,
        size: Callable[[Json], int],
        on_write: Callable[[Event], None] = lambda event: None,
        history_events: int = HISTORY_EVENTS,
        history_bytes: int = HISTORY_BYTES,
        first_version: int = FIRST_VERSION,
    ) -> None:
        self.version = first_version
        self._objects: dict[tuple[str, str], dict[tuple[str, str], Json]] = {}
        self._order: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._history: deque[tuple[Event, int]] = deque()
        self._compacted = first_version
        self._held = 0
        self._size, self._on_write = size, on_write
        self._history_events, self._history_bytes = history_events, history_bytes

    @property
    def compacted(self) -> int:
        """The version from which on the history is complete."""
        return self._compacted

    # ------------------------------------------------------------ reading

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """The object; raises NotFound. Namespace is empty for cluster-scoped resources."""
        found = self.peek(resource.key, namespace, name)
        if found is None:
            raise not_found(resource.about(name))
        return found

    def peek(self, key: tuple[str, str], namespace: str, name: str) -> Json | None:
        """The object, or None."""
        return self._objects.get(key, {}).get((namespace, name))

    def list(self, key: tuple[str, str], namespace: str | None = None) -> Objects:
        """The objects of a resource, in the order of namespace and name; None lists all namespaces."""
        held, order = self._objects.get(key, {}), self._order.get(key, [])
        if namespace is None:
            return [held[at] for at in order]
        first, end = bisect_left(order, (namespace, "")), bisect_left(order, (f"{namespace}\0", ""))
        return [held[at] for at in order[first:end]]

    def list_at(self, key: tuple[str, str], namespace: str | None, version: int) -> Objects:
        """As `list`, at a version of the past; raises Expired where the history does not reach back so far."""
        held = dict(self._objects.get(key, {}))
        for event in reversed((*self.events(key, version),)):
            meta = event.object["metadata"]
            at = (meta.get("namespace", ""), meta["name"])
            if event.previous is None:
                held.pop(at, None)
            else:
                held[at] = event.previous
        return [held[at] for at in sorted(held) if namespace is None or at[0] == namespace]

    def count(self, key: tuple[str, str]) -> int:
        """How many objects of a resource there are."""
        return len(self._objects.get(key, {}))

    # ------------------------------------------------------------ writing

    def vacant(self, resource: Resource, obj: Json) -> None:
        """Raises AlreadyExists where *obj* could not be created."""
        meta = obj["metadata"]
        if self.peek(resource.key, meta.get("namespace", ""), meta["name"]) is not None:
            raise already_exists(resource.about(meta["name"]))

    def create(self, resource: Resource, obj: Json) -> Json:
        """Adds *obj* (named, with its uid); returns it with its resourceVersion. Raises AlreadyExists."""
        meta = obj["metadata"]
        at = (meta.get("namespace", ""), meta["name"])
        self._objects.setdefault(resource.key, {})
        self.vacant(resource, obj)
        return self._write(resource.key, at, "ADDED", obj, None)

    def replace(self, resource: Resource, obj: Json, *, expect: str | None) -> Json:
        """Puts *obj* in the place of the object of its name; returns it with its new resourceVersion.

        expect: the resourceVersion that the stored object must still have, or None to write over any. A write
        that changes nothing is no write: the stored object comes back, and no watcher hears of it.
        Raises NotFound and Conflict.
        """
        meta = obj["metadata"]
        at = (meta.get("namespace", ""), meta["name"])
        stored = self.get(resource, *at)
        self._check(resource, stored, expect)
        if {**obj, "metadata": {**meta, "resourceVersion": stored["metadata"]["resourceVersion"]}} == stored:
            return stored
        return self._write(resource.key, at, "MODIFIED", obj, stored)

    def remove(self, resource: Resource, namespace: str, name: str) -> Json:
        """Takes the object away; returns its last state, with the resourceVersion of the removal."""
        stored = self.get(resource, namespace, name)
        return self._write(resource.key, (namespace, name), "DELETED", stored, stored)

    def _check(self, resource: Resource, stored: Json, expect: str | None) -> None:
        if expect is not None and stored["metadata"]["resourceVersion"] != expect:
            raise conflict(resource.about(stored["metadata"]["name"]), STALE)

    def _write(self, key: tuple[str, str], at: tuple[str, str], kind: str, obj: Json, previous: Json | None) -> Json:
        self.version += 1
        written = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        order = self._order.setdefault(key, [])
        if kind == "DELETED":
            del self._objects[key][at]
            del order[bisect_left(order, at)]
        else:
            if kind == "ADDED":
                insort(order, at)
            self._objects[key][at] = written
        size = self._size(written)
        event = Event(self.version, kind, key, written, previous)
        self._history.append((event, size))
        self._held += size
        while len(self._history) > self._history_events or self._held > self._history_bytes:
            oldest, freed = self._history.popleft()
            self._held -= freed
            self._compacted = oldest.version
        self._on_write(event)
        return written

    # ------------------------------------------------------------ watching

    def events(self, key: tuple[str, str], since: int) -> Iterator[Event]:
        """The writes to a resource after version *since*, oldest first; raises Expired where they are gone.

        A version of the future yields nothing: it may come from before a restart, and then the caller's own check
        (`version`) says so.
        """
        if since < self._compacted:
            raise expired(since, self._compacted)
        start = bisect_right(self._history, since, key=lambda entry: entry[0].version)
        for i in range(start, len(self._history)):
            event = self._history[i][0]
            if event.resource == key:
                yield event

    def compact(self) -> None:
        """Forgets the whole history, so that every watcher lists anew (a fault that tests ask for)."""
        self._history.clear()
        self._held, self._compacted = 0, self.version

    def usage(self) -> Mapping[str, int]:
        """Objects, events and their bytes, for metrics and for tests of bounded memory."""
        return {
            "objects": sum(len(held) for held in self._objects.values()),
            "history_events": len(self._history),
            "history_bytes": self._held,
        }
