"""ReplicaSets: a number of Pods of one template. Pure; the loop that makes the Pods is another's."""

from typing import Any

from kruntimes.local.apiserver.kinds import podfaults, podspec
from kruntimes.local.apiserver.metadata import invalid_value, not_supported, required
from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.strategy import Context, Strategy

Json = dict[str, Any]


class ReplicaSets(Strategy):
    """The selector is what a ReplicaSet is; it never changes."""

    generation = True

    def default(self, obj: Json) -> list[str]:
        """One replica; the template is a Pod's."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        template = spec.setdefault("template", {})
        template.setdefault("metadata", {})
        podspec.default(template.setdefault("spec", {}))
        return []

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """A new one has no replicas yet."""
        obj["status"] = {"replicas": 0}

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Faults of the spec."""
        spec = obj["spec"]
        causes: list[Cause] = []
        if spec["replicas"] < 0:
            causes.append(invalid_value("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
        selector = spec.get("selector") or {}
        labels = spec["template"]["metadata"].get("labels") or {}
        if spec.get("selector") is None:
            causes.append(required("spec.selector"))
        elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(invalid_value("spec.selector", {}, "empty selector is invalid for deployment"))
        elif any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
            why = "`selector` does not match template `labels`"
            causes.append(invalid_value("spec.template.metadata.labels", labels, why))
        causes += podfaults.validate_template(spec["template"]["metadata"], "spec.template")
        causes += podfaults.validate(spec["template"]["spec"], "spec.template.spec")
        if spec["template"]["spec"].get("restartPolicy") != "Always":
            value = spec["template"]["spec"].get("restartPolicy")
            causes.append(not_supported("spec.template.spec.restartPolicy", value, ["Always"]))
        return causes

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """The selector stays."""
        if subresource == "status":
            return []
        causes = self.validate(obj, ctx)
        if obj["spec"].get("selector") != old["spec"].get("selector"):
            causes.append(invalid_value("spec.selector", obj["spec"].get("selector"), "field is immutable"))
        return causes
