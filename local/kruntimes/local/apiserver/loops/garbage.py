"""What becomes of an object whose owners are gone or going: the decisions of garbage collection. Pure.

Three ways to delete an owner: in the background (it goes, then what it owned), in the foreground (what it owns and
what says that it blocks goes first), and orphaning (what it owned loses its reference and stays).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kruntimes.local.apiserver.checks import FOREGROUND, ORPHAN
from kruntimes.local.apiserver.loops.owners import owners_of

Json = dict[str, Any]


class Owner(Enum):
    """What an owner reference points to."""

    THERE = "there"
    GOING = "going"
    """It is being deleted in the foreground and waits for what it owns."""
    GONE = "gone"
    UNKNOWN = "unknown"
    """Its kind is not known (any more), so nobody can say."""


Look = Callable[[Json], Owner]


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Delete:
    """No owner is left."""

    propagation: str


@dataclass(frozen=True, slots=True)
class Disown:
    """Some owners are left: these references remain."""

    owners: tuple[Json, ...]


Fate = Keep | Delete | Disown
KEEP = Keep()


def waits(obj: Json, finalizer: str) -> bool:
    """Whether it is being deleted and held by *finalizer* (FOREGROUND or ORPHAN)."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and finalizer in (meta.get("finalizers") or ())


def fate(obj: Json, look: Look, *, owns: bool) -> Fate:
    """What is to be done with an object that has owners. owns: whether it has dependents itself."""
    owners = owners_of(obj)
    if not owners or "deletionTimestamp" in obj["metadata"]:
        return KEEP
    found = [(owner, look(owner)) for owner in owners]
    if any(state is Owner.UNKNOWN for _, state in found):
        return KEEP
    left = tuple(owner for owner, state in found if state is Owner.THERE)
    if left:
        return KEEP if len(left) == len(owners) else Disown(left)
    going = any(state is Owner.GOING for _, state in found)
    if going and owns:
        return Delete("Foreground")
    finalizers = obj["metadata"].get("finalizers") or ()
    return Delete("Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background")


def blocking(owner: Json, dependents: Sequence[Json]) -> list[Json]:
    """Those of the dependents for which an owner that is deleted in the foreground has to wait."""
    uid = owner["metadata"]["uid"]
    return [
        obj
        for obj in dependents
        if any(one.get("uid") == uid and one.get("blockOwnerDeletion") for one in owners_of(obj))
    ]
