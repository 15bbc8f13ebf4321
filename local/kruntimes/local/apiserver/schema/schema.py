"""What a custom resource's rules ask of its schema. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.cel import rules as cel
from kruntimes.local.apiserver.schema import faults, filling
from kruntimes.local.apiserver.schema.listtypes import duplicates
from kruntimes.local.apiserver.schema.structural import ABSENT, Json, Node, read
from kruntimes.local.apiserver.schema.validation import NO_PATH, validate
from kruntimes.local.apiserver.status import Cause

_NOT_ALL = faults.invalid(
    NO_PATH,
    None,
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation",
)


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a resource in one version, with its rules compiled."""

    node: Node
    rules: cel.Rules | None

    @classmethod
    def compile(cls, raw: Mapping[str, Any]) -> "Schema":
        """Of an `openAPIV3Schema` without faults. Raises CompileError for a rule that does not compile."""
        node = read(raw)
        return cls(node, cel.compile_rules(node, root=True))

    def fill(self, obj: Json) -> list[str]:
        """Removes unwanted nulls, puts in defaults, prunes; returns the paths of what was unknown."""
        filling.prune_nulls(obj, self.node)
        filling.fill(obj, self.node)
        return filling.prune(obj, self.node)

    def faults(self, obj: Json, old: Json | None = None, *, part: str = "") -> list[Cause]:
        """What is wrong with an object; *old* is the one that it replaces.

        part: the only field whose bounds are looked at (`status`, on its subresource); rules are for the whole.
        """
        node, before = self.node, ABSENT if old is None else old
        if part:
            sub, value = node.properties.get(part), obj.get(part, ABSENT)
            held = before.get(part, ABSENT) if isinstance(before, dict) else ABSENT
            causes = validate(value, sub, base=part, old=held) if sub is not None and value is not ABSENT else []
        else:
            causes = validate(obj, node, old=before)
        if old is None or not duplicates(old, node):
            causes += duplicates(obj, node)
        if self.rules is None:
            return causes
        if any(cause.reason in faults.BLOCKING for cause in causes):
            return [*causes, _NOT_ALL]
        return causes + cel.evaluate(self.rules, obj, old=before)
