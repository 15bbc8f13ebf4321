"""An immutable state of everything that is published, versioned by content (design §6, "Routing").

A version is a digest of the bytes: a restarted router that compiles the same world offers the same
versions, and an Envoy that resumes is sent nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple, Self

VERSION_BYTES = 8
"""64 bits: an Envoy compares at most a few versions of one name, so a collision is out of the question."""


class Key(NamedTuple):
    """What identifies a resource: the type URL and its name."""

    type_url: str
    name: str


class Resource(NamedTuple):
    """A resource as it is sent: its version and its encoded message."""

    version: str
    body: bytes


_NONE: MappingProxyType[str, Resource] = MappingProxyType({})


def version_of(body: bytes) -> str:
    """The version of *body*: equal bytes, equal version."""
    return blake2b(body, digest_size=VERSION_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """type URL → name → Resource. Snapshots are equal when every byte of them is."""

    types: MappingProxyType[str, MappingProxyType[str, Resource]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, bodies: Mapping[Key, bytes]) -> Self:
        """A snapshot of exactly these resources."""
        return cls().with_changes(bodies)

    def get(self, type_url: str, name: str) -> Resource | None:
        """The resource of that name, or None."""
        return self.of_type(type_url).get(name)

    def of_type(self, type_url: str) -> MappingProxyType[str, Resource]:
        """All resources of one type by name; empty for a type that is not published."""
        return self.types.get(type_url, _NONE)

    def differences(self, bodies: Mapping[Key, bytes | None]) -> dict[Key, bytes | None]:
        """Those of *bodies* (None: absent) that are not already what this snapshot holds."""
        changed: dict[Key, bytes | None] = {}
        for key, body in bodies.items():
            held = self.get(*key)
            if (held.body if held else None) != body:
                changed[key] = body
        return changed

    def with_changes(self, bodies: Mapping[Key, bytes | None]) -> Self:
        """A new snapshot with *bodies* put in, and those that are None taken out.

        Copies the index of each type that is touched: its size is the number of shards or of Runtimes, never
        that of Runs.
        """
        fresh: dict[str, dict[str, Resource]] = {}
        for (type_url, name), body in bodies.items():
            if type_url not in fresh:
                fresh[type_url] = self.of_type(type_url).copy()
            if body is None:
                fresh[type_url].pop(name, None)
            else:
                fresh[type_url][name] = Resource(version_of(body), body)
        types = {**self.types, **{type_url: MappingProxyType(held) for type_url, held in fresh.items()}}
        return type(self)(MappingProxyType({type_url: held for type_url, held in types.items() if held}))
