"""The rules of custom resources: what their CustomResourceDefinition says. Pure."""

from typing import TYPE_CHECKING, Any

from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.schema import faults
from kruntimes.local.apiserver.status import Cause, forbidden
from kruntimes.local.apiserver.strategy import Context, Json, Strategy
from kruntimes.local.apiserver.values import go_type, go_value, type_of

if TYPE_CHECKING:
    from kruntimes.local.apiserver.schema.schema import Schema

DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
"""What the store files definitions under."""
MAX_REPLICAS = (1 << 31) - 1


class CustomStrategy(Strategy):
    """One custom resource in one version."""

    generation = True
    unconditional = False
    any_finalizer = True

    def __init__(self, resource: Resource, schema: "Schema") -> None:
        super().__init__(resource)
        self.schema = schema

    def default(self, obj: Json) -> list[str]:
        """By the schema."""
        return self.schema.fill(obj)

    def counts(self, obj: Json, old: Json) -> bool:
        """Without the status subresource, the status counts like any other field."""
        if super().counts(obj, old):
            return True
        return "status" not in self.resource.subresources and obj.get("status") != old.get("status")

    def status_metadata(self, meta: Json, old: Json) -> Json:
        """None but who manages which field."""
        kept = {**old}
        if "managedFields" in meta:
            kept["managedFields"] = meta["managedFields"]
        return kept

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """None are made any more where the definition is going away."""
        super().prepare_create(obj, ctx)
        definition = ctx.store.peek(DEFINITIONS, "", f"{self.resource.plural}.{self.resource.group}")
        if definition is not None and "deletionTimestamp" in definition["metadata"]:
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(self.resource.about(obj["metadata"].get("name", "")), why)

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """The schema's bounds and rules."""
        return self._kind(obj) or self.schema.faults(obj) + self._scale(obj, ".spec", ".status")

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """The same, and the rules that compare with what was there."""
        if subresource == "status":
            return self._kind(obj) or self.schema.faults(obj, old, part="status") + self._scale(obj, ".status")
        return self._kind(obj) or self.schema.faults(obj, old) + self._scale(obj, ".spec", ".status")

    def _kind(self, obj: Json) -> list[Cause]:
        wanted = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        return [
            faults.invalid(key, obj[key], f"must be {value}")
            for key, value in wanted.items()
            if obj.get(key, value) != value
        ]

    def _scale(self, obj: Json, *parts: str) -> list[Cause]:
        if "scale" not in self.resource.subresources:
            return []
        causes: list[Cause] = []
        for path in self.resource.scale[:2]:
            if not path.startswith(parts):
                continue
            value = _at(obj, path)
            if value is None:
                continue
            if type_of(value) != "integer":
                why = f"{path} accessor error: {go_value(value)} is of the type {go_type(value)}, expected int64"
                causes.append(faults.invalid(path, 0, why))
            elif value < 0:
                causes.append(faults.invalid(path, value, "should be a non-negative integer"))
            elif value > MAX_REPLICAS:
                causes.append(faults.invalid(path, value, f"should be less than or equal to {MAX_REPLICAS}"))
        return causes


def _at(obj: Any, path: str) -> Any:
    for step in path.strip(".").split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj
