"""Watches: one writer feeds every watcher of a resource, each with a bounded queue of ready-made lines.

An event is encoded once for each form in which somebody watches, and the bytes are shared. A reader so slow that its
queue passes a bound loses its watch and comes back at the version it has, or lists anew.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kruntimes.local.apiserver.encoding import Encoded, encode
from kruntimes.local.apiserver.negotiation import View
from kruntimes.local.apiserver.status import StatusError, too_many_requests
from kruntimes.local.apiserver.store import Event

Json = dict[str, Any]
Matches = Callable[[Json], bool]

MAX_WATCHERS = 2000
"""Open watches of the whole server: a stack of a few dozen processes holds some hundred."""
QUEUE_EVENTS = 4096
"""Lines that wait for one reader; more than a burst of Runs that a local stack can hold."""
QUEUE_BYTES = 32 * 1024 * 1024
"""The same bound in bytes. The bytes are shared, so a hundred slow readers do not hold a hundred times as much."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

LineKey = tuple[str, str, str, str, bool]


def line(kind: str, obj: Json) -> bytes:
    """One event as it is sent."""
    return framed(kind, encode(obj))


def framed(kind: str, data: bytes) -> bytes:
    """One event of an object's JSON."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), data)


def seen(event: Event, matches: Matches | None) -> str:
    """How an event looks to who selects: its own type, or that an object came into or left the selection; "" for not
    at all."""
    if matches is None:
        return event.type
    is_in = event.type != "DELETED" and matches(event.object)
    was_in = event.previous is not None and matches(event.previous)
    if is_in:
        return "MODIFIED" if was_in else "ADDED"
    return "DELETED" if was_in else ""


@dataclass(eq=False)
class Watcher:
    """One open watch. over: the queue passed its bound, and the watch must end. let_go: called then, since whoever
    writes to a reader that does not read waits for ever."""

    view: View
    namespace: str | None
    matches: Matches | None
    _lines: deque[bytes] = field(default_factory=deque)
    _waiting: int = 0
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False
    let_go: Callable[[], None] = lambda: None
    first: bool = True

    def put(self, data: bytes) -> None:
        """Adds a line; drops everything and ends where the bound is passed."""
        if self.over:
            return
        self._lines.append(data)
        self._waiting += len(data)
        if len(self._lines) > QUEUE_EVENTS or self._waiting > QUEUE_BYTES:
            self.end()
        self._wake.set()

    def finish(self) -> None:
        """Ends the watch when everything that waits has been read."""
        self.over = True
        self._wake.set()

    def end(self) -> None:
        """Ends the watch without another word."""
        self.over = True
        self._lines.clear()
        self._waiting = 0
        self._wake.set()
        self.let_go()

    async def take(self, timeout: float) -> bytes:
        """Everything that waits, in one piece; empty after *timeout* seconds without anything, or when over."""
        if not self._lines and not self.over:
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                return b""
        self._wake.clear()
        data = b"".join(self._lines)
        self._lines.clear()
        self._waiting = 0
        return data


class Hub:
    """All watchers by resource; `publish` is the store's listener."""

    def __init__(self, now: Callable[[], datetime], encoded: Encoded) -> None:
        self._now, self._encoded = now, encoded
        self._watchers: dict[tuple[str, str], dict[Watcher, None]] = {}
        self.count = 0

    def add(self, watcher: Watcher) -> None:
        """From now on it hears of every write. Raises TooManyRequests."""
        if self.count >= MAX_WATCHERS:
            raise too_many_requests("too many open watches, please try again later")
        self._watchers.setdefault(watcher.view.resource.key, {})[watcher] = None
        self.count += 1

    def remove(self, watcher: Watcher) -> None:
        """The end of a watch."""
        held = self._watchers.get(watcher.view.resource.key, {})
        if held.pop(watcher, self) is None:
            self.count -= 1

    def withdraw(self, key: tuple[str, str]) -> None:
        """Ends every watch of a resource that is no longer served."""
        for watcher in self._watchers.get(key, {}):
            watcher.finish()

    def close(self) -> None:
        """Ends every watch."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.end()

    def publish(self, event: Event) -> None:
        """Hands a write to everyone who watches."""
        watchers = self._watchers.get(event.resource)
        if watchers:
            made: dict[LineKey, bytes] = {}
            for watcher in watchers:
                self.feed(watcher, event, made)

    def feed(self, watcher: Watcher, event: Event, made: dict[LineKey, bytes]) -> None:
        """Hands a write to one; *made* holds the lines of this event that have been encoded."""
        if watcher.over:
            return
        if watcher.namespace is not None and event.object["metadata"].get("namespace") != watcher.namespace:
            return
        kind = seen(event, watcher.matches)
        if not kind:
            return
        view = watcher.view
        first = watcher.first and view.form.kind == "Table"
        key = (kind, view.resource.version, view.form.kind, view.include, first)
        data = made.get(key)
        if data is None:
            obj = event.object
            if kind == "DELETED" and event.type != "DELETED" and event.previous is not None:
                # Who selects gets the last state that was selected, at the version at which it left.
                gone = event.previous
                obj = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(event.version)}}
            shown = view.one(obj, now=self._now(), columns=first)
            data = made[key] = framed(kind, self._encoded.of(shown))
        watcher.first = False
        watcher.put(data)

    def replay(self, watcher: Watcher, events: Iterable[Event]) -> None:
        """What was written before the watcher came."""
        for event in events:
            self.feed(watcher, event, {})

    def initial(self, watcher: Watcher, objects: Iterable[Json]) -> Iterator[bytes]:
        """The lines of the objects that there are, for a watch that begins with them."""
        for obj in objects:
            if watcher.matches is None or watcher.matches(obj):
                shown = watcher.view.one(obj, now=self._now(), columns=watcher.first)
                watcher.first = False
                yield framed("ADDED", self._encoded.of(shown))

    def bookmark(self, watcher: Watcher, version: int, *, initial_end: bool = False) -> bytes:
        """A line that says up to which version everything has been sent."""
        meta: Json = {"resourceVersion": str(version)}
        if initial_end:
            meta["annotations"] = {INITIAL_EVENTS_END: "true"}
        resource, form = watcher.view.resource, watcher.view.form
        bare: Json = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        if form.kind == "Table":
            table = watcher.view.carrier(bare, columns=watcher.first)
            watcher.first = False
            return line("BOOKMARK", table)
        return line("BOOKMARK", watcher.view.one(bare, now=self._now()))


def error_line(refusal: StatusError) -> bytes:
    """How a watch that cannot begin or go on ends."""
    return line("ERROR", refusal.to_json())
