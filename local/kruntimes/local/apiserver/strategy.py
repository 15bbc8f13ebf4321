"""What may be written, kind by kind: the rules between a decoded object and the store. Pure.

A `Strategy` is asked in this order for every write:

    default → prepare_create | prepare_update → validate (+ validate_update) → store

The object it is given is a private copy: it may be changed in place. The *old* object is the stored one and must
never be changed, nor any part of it; parts of it may be put into the new object after `default`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from kruntimes.local.apiserver.request import User
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import Cause

Json = dict[str, Any]


class Reader(Protocol):
    """What rules may read of the store."""

    def peek(self, key: tuple[str, str], namespace: str, name: str) -> Json | None:
        """The object, or None."""

    def list(self, key: tuple[str, str], namespace: str | None = None) -> list[Json]:
        """The objects of a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a write may know: who writes, when, what else there is, and where fresh names come from.

    uid: makes a UUID; suffix: makes five characters for generateName. dry_run: nothing will be stored.
    """

    user: User
    now: datetime
    store: Reader
    uid: Callable[[], str]
    suffix: Callable[[], str]
    dry_run: bool = False

    @property
    def timestamp(self) -> str:
        """*now* as `metav1.Time`: seconds, UTC."""
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How an object is to be deleted. grace_seconds: None leaves it to the kind."""

    grace_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None
    dry_run: bool = False


class Strategy:
    """The rules of a kind with nothing special; kinds override what differs.

    generation: whether spec changes are counted in metadata.generation. names: which rule its names follow:
    `subdomain` (DNS-1123 subdomain), `label` (DNS-1123 label), `label1035`, or `path` (no `/`, `%`, `.`, `..`).
    unconditional: whether an update without resourceVersion is taken. made_by_put: whether a PUT creates what is not
    there. any_finalizer: whether finalizers need no domain. answers_with_object: whether DELETE answers
    with the object in place of a Status.
    """

    generation = False
    names = "subdomain"
    unconditional = True
    made_by_put = False
    any_finalizer = False
    answers_with_object = False

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    def default(self, obj: Json) -> list[str]:
        """Fills in defaults and removes unknown fields; returns the paths of those (`spec.foo`)."""
        return []

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """Brings a new object into its first form: a status that a creator may not set goes away."""
        if "status" in self.resource.subresources:
            obj.pop("status", None)

    def prepare_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> None:
        """Keeps what this write may not change: the status on the main resource, all but the status on `/status`."""
        if subresource == "status":
            for key in set(obj) | set(old):
                if key not in ("status", "metadata"):
                    _take(obj, old, key)
            obj["metadata"] = self.status_metadata(obj["metadata"], old["metadata"])
        elif subresource in ("", "scale") and "status" in self.resource.subresources:
            _take(obj, old, "status")

    def status_metadata(self, meta: Json, old: Json) -> Json:
        """The metadata that a write of the status may bring."""
        return meta

    def counts(self, obj: Json, old: Json) -> bool:
        """Whether the difference is one that metadata.generation counts: anything but metadata and status."""
        keys = (set(obj) | set(old)) - {"metadata", "status", "apiVersion", "kind"}
        return any(obj.get(key) != old.get(key) for key in keys)

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Faults of an object as it stands; its metadata has been seen to."""
        return []

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """Faults of the change; `validate` is not asked again for it, so call it here if it is wanted."""
        return self.validate(obj, ctx)

    def warnings(self, obj: Json, old: Json | None) -> list[str]:
        """What the caller should be told though the write is taken (Warning headers)."""
        return []

    def grace(self, obj: Json, options: DeleteOptions, ctx: Context) -> int:
        """Seconds between the request for deletion and the removal; 0 removes at once where no finalizer holds."""
        return 0

    def removable(self, obj: Json) -> bool:
        """Whether nothing but finalizers of the metadata holds an object that is being deleted."""
        return True

    def begin_deletion(self, obj: Json, ctx: Context) -> None:
        """Called on the private copy of an object that gets its deletionTimestamp."""


def _take(obj: Json, old: Json, key: str) -> None:
    """Puts the old value of *key* in the place of the new one."""
    if key in old:
        obj[key] = old[key]
    else:
        obj.pop(key, None)


take = _take

Make = Callable[[Resource], Strategy]


class Strategies:
    """The strategy of each resource; a resource without one of its own gets the plain one."""

    def __init__(self, makers: Mapping[tuple[str, str], Make]) -> None:
        self._makers = dict(makers)
        self._made: dict[tuple[str, str, str], Strategy] = {}

    def of(self, resource: Resource) -> Strategy:
        """The strategy of *resource*."""
        key = (resource.group, resource.version, resource.plural)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._makers.get(resource.key, Strategy)(resource)
        return found

    def put(self, resource: Resource, strategy: Strategy) -> None:
        """Sets the strategy of a custom resource, or replaces it."""
        self._made[resource.group, resource.version, resource.plural] = strategy

    def drop(self, resource: Resource) -> None:
        """Forgets the strategy of a custom resource."""
        self._made.pop((resource.group, resource.version, resource.plural), None)
