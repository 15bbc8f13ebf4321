"""One incremental xDS subscription as a value: what a client holds, what it is owed, what is under way.

The rules, of which each has its cases in the tests:

1. The first request of a type is always answered, if need be with nothing.
2. A first request without names, of a type that allows it, subscribes to everything; so does the name `*`.
3. One response at a time: what changes meanwhile is gathered and sent, once, after the acknowledgement.
4. `initial_resource_versions` of a resumed stream count as held: only differences are sent.
5. Whoever subscribes to a name is told of it, though its version be unchanged or the name be unknown.
6. A refusal never repeats the same version of the same name, until the client took another or a removal. It does not
   say which resource of a response was bad, nor whether the good ones were taken, so those that travelled together are
   sent once more, each alone.
7. A nonce other than that of the response under way acknowledges nothing.
8. A name that is given up under `*` is owed: the client may have forgotten it.

Source: xDS protocol, "Incremental xDS"; design §6, "Routing".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Self

from kruntimes.router.discovery import Request, Response
from kruntimes.router.snapshot import Resource, Snapshot

WILDCARD = "*"
CHUNK_BYTES = 2 << 20
"""A response is closed when it has reached this: large enough that a full load takes few round trips, small
enough that neither side holds a whole world twice."""
UNCERTAIN = ""
"""Stands for the version of a resource of which it is not known what the client made of it; equals no version."""


class Reply(Enum):
    """What a request said about the response under way."""

    NONE = "none"
    ACK = "ack"
    NACK = "nack"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Flight:
    """A response that is not yet acknowledged: each name with the version sent, None where it was a removal."""

    nonce: str
    sent: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The state of one type on one stream.

    held: name → version that the client acknowledged. refused: name → version that it will not have.
    owed: names to be sent whatever is held. dirty: names that may differ. alone: names that must travel alone.
    compare: everything is to be compared once, as after the first request.
    """

    type_url: str
    wildcard: bool = False
    names: frozenset[str] = frozenset()
    held: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    owed: frozenset[str] = frozenset()
    dirty: frozenset[str] = frozenset()
    alone: frozenset[str] = frozenset()
    flight: Flight | None = None
    compare: bool = True
    answered: bool = False

    @classmethod
    def open(cls, request: Request, *, wildcard: bool) -> Self:
        """The subscription that the first request of a type makes; *wildcard*: no names mean all names."""
        fresh = cls(
            request.type_url,
            wildcard=wildcard and not request.subscribe,
            held=dict(request.initial_versions),
        )
        return fresh._named(request)

    def wants(self, name: str) -> bool:
        """Whether the client is to be told of *name*."""
        return self.wildcard or name in self.names

    def receive(self, request: Request) -> tuple[Self, Reply]:
        """Takes a later request of the same type: a reply to the response under way, other names, or both."""
        if not request.nonce:
            return self._named(request), Reply.NONE
        if self.flight is None or request.nonce != self.flight.nonce:
            return self._named(request), Reply.STALE
        if request.error is None:
            return self._accepted(self.flight)._named(request), Reply.ACK
        return self._refused(self.flight)._named(request), Reply.NACK

    def changed(self, names: Iterable[str]) -> Self:
        """Notes that resources of these names were changed, made or removed."""
        fresh = self.dirty.union(name for name in names if self.wants(name))
        return self if len(fresh) == len(self.dirty) else replace(self, dirty=fresh)

    def next(self, snapshot: Snapshot, *, nonce: str) -> tuple[Self, Response | None]:
        """The response that is due, which is under way from now on, or None.

        *nonce* must not have been used on this stream. What does not fit into one response stays dirty.
        """
        if self.flight is not None:
            return self, None
        world = snapshot.of_type(self.type_url)
        dirty = self.dirty | self.owed
        if self.compare:
            dirty = dirty.union(self.held, self.names, world if self.wildcard else ())
        resources: dict[str, Resource] = {}
        removed: list[str] = []
        done: set[str] = set()
        size = 0
        for name in sorted(dirty, key=lambda name: (name in self.alone, name)):
            if name in self.alone and (resources or removed):
                break
            done.add(name)
            current = world.get(name)
            if not self._differs(name, current):
                continue
            if current is None:
                removed.append(name)
            else:
                resources[name] = current
                size += len(current.body)
            if size >= CHUNK_BYTES or name in self.alone:
                break
        left = replace(self, dirty=dirty - done, owed=self.owed - done, alone=self.alone - done, compare=False)
        if not resources and not removed and self.answered:
            return left, None
        sent: dict[str, str | None] = {name: resource.version for name, resource in resources.items()}
        sent.update(dict.fromkeys(removed))
        response = Response(self.type_url, nonce, resources, tuple(removed))
        return replace(left, answered=True, flight=Flight(nonce, sent)), response

    def _differs(self, name: str, current: Resource | None) -> bool:
        if not self.wants(name):
            return False
        if name in self.owed:
            return True
        if current is None:
            return name in self.held
        return current.version not in (self.held.get(name), self.refused.get(name))

    def _accepted(self, flight: Flight) -> Self:
        held = dict(self.held)
        for name, version in flight.sent.items():
            if version is None or not self.wants(name):
                held.pop(name, None)
            else:
                held[name] = version
        refused = {name: version for name, version in self.refused.items() if name not in flight.sent}
        return replace(self, held=held, refused=refused, flight=None)

    def _refused(self, flight: Flight) -> Self:
        held = dict(self.held)
        if len(flight.sent) > 1:
            held.update(dict.fromkeys(filter(self.wants, flight.sent), UNCERTAIN))
            again = frozenset(filter(self.wants, flight.sent))
            return replace(self, held=held, dirty=self.dirty | again, alone=self.alone | again, flight=None)
        refused = dict(self.refused)
        for name, version in flight.sent.items():
            if version is None or not self.wants(name):
                held.pop(name, None)
            else:
                held[name] = UNCERTAIN
                refused[name] = version
        return replace(self, held=held, refused=refused, flight=None)

    def _named(self, request: Request) -> Self:
        """Applies the names that *request* adds and gives up."""
        if not request.subscribe and not request.unsubscribe:
            return self
        added = frozenset(request.subscribe) - {WILDCARD}
        dropped = frozenset(request.unsubscribe) - {WILDCARD}
        begins = WILDCARD in request.subscribe and not self.wildcard
        wildcard = (self.wildcard or begins) and WILDCARD not in request.unsubscribe
        names = (self.names | added) - dropped
        owed = self.owed | (added - request.initial_versions.keys())
        if wildcard:
            owed |= dropped & self.names
            return replace(self, wildcard=True, names=names, owed=owed, compare=self.compare or begins)
        gone = dropped if not self.wildcard else frozenset(self.held) | self.dirty | owed | dropped
        gone -= names
        return replace(
            self,
            wildcard=False,
            names=names,
            held={name: version for name, version in self.held.items() if name not in gone},
            refused={name: version for name, version in self.refused.items() if name not in gone},
            owed=owed - gone,
            dirty=self.dirty - gone,
            alone=self.alone - gone,
        )
