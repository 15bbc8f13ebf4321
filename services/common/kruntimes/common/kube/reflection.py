"""The pure core of a reflector: lists and watch lines in, changed keys out. No sockets, no clock.

Rules, each with a case in the tests: a relist that lacks a known object deletes it; an unchanged object is no
change; an object that cannot be decoded is counted, and what was known of it stays (it exists, and a newer
server may have written it); a bookmark only moves the version; an ERROR event of 410 means list again, any
other means connect again; a line that is no event means connect again.
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from kruntimes.common.kube import errors


class Identity(Protocol):
    """What a reflector reads of metadata. A view of a large object may leave the rest undecoded."""

    @property
    def uid(self) -> str:
        """Unlike the name, never used twice."""

    @property
    def resource_version(self) -> str:
        """Of this form of the object."""

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` where there is no namespace."""


class Keyed(Protocol):
    """Anything with Kubernetes metadata."""

    @property
    def metadata(self) -> Identity:
        """Its metadata."""


T = TypeVar("T", bound=Keyed)


class Expired(Exception):
    """The version from which we watch is no longer known to the server: list again."""


class Broken(Exception):
    """The stream is not what it should be: connect again from the last version."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Identity(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Head(msgspec.Struct):
    metadata: _Identity = msgspec.field(default_factory=_Identity)


class Reflection(Generic[T]):
    """What is known of one collection.

    store: the objects by `namespace/name`. version: where the watch goes on, None when a list is due.
    undecodable: how many objects could not be read so far.
    """

    def __init__(self, type: type[T]) -> None:
        self.store: dict[str, T] = {}
        self.version: str | None = None
        self.undecodable = 0
        self._event = msgspec.json.Decoder(_Event)
        self._head = msgspec.json.Decoder(_Head)
        self._object = msgspec.json.Decoder(type)

    def replace(self, items: Sequence[msgspec.Raw | bytes], version: str) -> list[str]:
        """Takes a whole list; returns the keys that appeared, changed or went, the gone ones first."""
        fresh: dict[str, T] = {}
        for raw in items:
            try:
                found = self._object.decode(raw)
                fresh[found.metadata.key] = found
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self.undecodable += 1
                self._keep_known(raw, fresh)
        gone = [key for key in self.store if key not in fresh]
        changed = [key for key, found in fresh.items() if not _same(self.store.get(key), found)]
        for key in gone:
            del self.store[key]
        self.store.update(fresh)
        self.version = version
        return gone + changed

    def apply(self, line: bytes) -> str | None:
        """Takes one line of a watch; returns the key that changed, or None. Raises Expired or Broken."""
        try:
            event = self._event.decode(line)
            if event.type == "ERROR":
                raise self._failure(event.object)
            head = self._head.decode(event.object).metadata
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Broken(f"not a watch event: {error}") from error
        if event.type not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            raise Broken(f"an event of type {event.type[:40]!r}")
        self.version = head.resource_version or self.version
        if event.type == "BOOKMARK":
            return None
        if event.type == "DELETED":
            return head.key if self.store.pop(head.key, None) is not None else None
        try:
            found = self._object.decode(event.object)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.undecodable += 1
            return None
        if _same(self.store.get(head.key), found):
            return None
        self.store[head.key] = found
        return head.key

    def expire(self) -> None:
        """A list is due; what is known stays until it has come."""
        self.version = None

    def _keep_known(self, raw: msgspec.Raw | bytes, fresh: dict[str, T]) -> None:
        try:
            key = self._head.decode(raw).metadata.key
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        if key in self.store:
            fresh[key] = self.store[key]

    @staticmethod
    def _failure(status: msgspec.Raw) -> Exception:
        error = errors.from_watch_event(status)
        if isinstance(error, errors.Gone):
            return Expired(error.message)
        return Broken(str(error))


def _same(known: Keyed | None, found: Keyed) -> bool:
    """Whether it is the same write of the same object; the version alone would do but for replaced servers."""
    return (
        known is not None
        and known.metadata.resource_version == found.metadata.resource_version
        and known.metadata.uid == found.metadata.uid
        and found.metadata.resource_version != ""
    )
