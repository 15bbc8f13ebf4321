"""Namespaces: they end in two steps, the second when a loop has emptied them and takes its finalizer away. Pure."""

from typing import Any

from kruntimes.local.apiserver.status import forbidden
from kruntimes.local.apiserver.strategy import Context, DeleteOptions, Strategy, take

Json = dict[str, Any]

FINALIZER = "kubernetes"
KEPT_FOR_EVER = frozenset({"default", "kube-public", "kube-system"})
NAME_LABEL = "kubernetes.io/metadata.name"


class Namespaces(Strategy):
    """spec.finalizers is written by `/finalize` alone."""

    names = "label"
    answers_with_object = True

    def default(self, obj: Json) -> list[str]:
        """Its name is also a label, so that selectors can choose by it."""
        obj.setdefault("spec", {})
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"].setdefault("labels", {})[NAME_LABEL] = name
        return []

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """It is active, and held by whoever empties it."""
        obj["metadata"].setdefault("labels", {})[NAME_LABEL] = obj["metadata"].get("name", "")
        obj["spec"] = {"finalizers": [FINALIZER]}
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> None:
        """Keeps finalizers and phase out of the hands of other writes."""
        if subresource == "finalize":
            take(obj, old, "status")
            return
        super().prepare_update(obj, old, ctx, subresource)
        obj["spec"] = old["spec"]

    def grace(self, obj: Json, options: DeleteOptions, ctx: Context) -> int:
        """None; but some Namespaces are not deleted at all."""
        name = obj["metadata"]["name"]
        if name in KEPT_FOR_EVER:
            raise forbidden(self.resource.about(name), "this namespace may not be deleted")
        return 0

    def removable(self, obj: Json) -> bool:
        """Once nothing holds it."""
        return not obj.get("spec", {}).get("finalizers")

    def begin_deletion(self, obj: Json, ctx: Context) -> None:
        """From now on nothing is created in it."""
        obj["status"]["phase"] = "Terminating"
        obj["metadata"].pop("deletionGracePeriodSeconds", None)
