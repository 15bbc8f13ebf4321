"""Owner references: who owns an object, and an object as an owner. Pure."""

from typing import Any

Json = dict[str, Any]


def owners_of(obj: Json) -> list[Json]:
    """All of them."""
    found: list[Json] = obj["metadata"].get("ownerReferences") or []
    return found


def controller_of(obj: Json) -> Json | None:
    """The owner that manages it, or None."""
    return next((owner for owner in owners_of(obj) if owner.get("controller")), None)


def reference(obj: Json, *, controller: bool) -> Json:
    """*obj* as an owner."""
    meta = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": controller,
        "blockOwnerDeletion": True,
    }
