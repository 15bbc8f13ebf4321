"""Roles and bindings as objects: names that are only kept from breaking a path, rules that say something. Pure.

Whether a writer may grant what stands in them is asked elsewhere.
"""

from typing import Any

from kruntimes.local.apiserver.metadata import invalid_value, not_supported, required
from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.strategy import Context, Strategy

Json = dict[str, Any]

GROUP = "rbac.authorization.k8s.io"
SUBJECTS = ("ServiceAccount", "User", "Group")


class Roles(Strategy):
    """Role and ClusterRole."""

    names = "path"
    made_by_put = True

    def default(self, obj: Json) -> list[str]:
        """Rules are never absent."""
        obj.setdefault("rules", None)
        return []

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Each rule names verbs, and resources or paths."""
        causes: list[Cause] = []
        for i, rule in enumerate(obj.get("rules") or []):
            at = f"rules[{i}]"
            if not rule.get("verbs"):
                causes.append(required(f"{at}.verbs", "verbs must contain at least one value"))
            if rule.get("nonResourceURLs"):
                if self.resource.namespaced:
                    why = "namespaced rules cannot apply to non-resource URLs"
                    causes.append(invalid_value(f"{at}.nonResourceURLs", _listed(rule["nonResourceURLs"]), why))
                if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                    why = "rules cannot apply to both regular resources and non-resource URLs"
                    causes.append(invalid_value(f"{at}.nonResourceURLs", _listed(rule["nonResourceURLs"]), why))
                continue
            if not rule.get("apiGroups"):
                causes.append(required(f"{at}.apiGroups", "resource rules must supply at least one api group"))
            if not rule.get("resources"):
                causes.append(required(f"{at}.resources", "resource rules must supply at least one resource"))
        return causes


class Bindings(Strategy):
    """RoleBinding and ClusterRoleBinding: what they bind to never changes."""

    names = "path"
    made_by_put = True

    def default(self, obj: Json) -> list[str]:
        """Groups that go without saying."""
        reference = obj.setdefault("roleRef", {})
        reference.setdefault("apiGroup", GROUP)
        for subject in obj.get("subjects") or []:
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", GROUP)
        return []

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Faults of role and subjects."""
        reference = obj["roleRef"]
        causes: list[Cause] = []
        kinds = ["Role", "ClusterRole"] if self.resource.namespaced else ["ClusterRole"]
        if reference.get("apiGroup") != GROUP:
            causes.append(not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), [GROUP]))
        if reference.get("kind") not in kinds:
            causes.append(not_supported("roleRef.kind", reference.get("kind", ""), kinds))
        if not reference.get("name"):
            causes.append(required("roleRef.name"))
        for i, subject in enumerate(obj.get("subjects") or []):
            causes += self._subject(f"subjects[{i}]", subject)
        return causes

    def _subject(self, at: str, subject: Json) -> list[Cause]:
        kind, causes = subject.get("kind", ""), []
        if not subject.get("name"):
            causes.append(required(f"{at}.name"))
        if kind not in SUBJECTS:
            causes.append(not_supported(f"{at}.kind", kind, list(SUBJECTS)))
        elif kind == "ServiceAccount":
            if subject.get("apiGroup"):
                causes.append(not_supported(f"{at}.apiGroup", subject["apiGroup"], [""]))
            if not self.resource.namespaced and not subject.get("namespace"):
                causes.append(required(f"{at}.namespace"))
        elif subject.get("apiGroup") != GROUP:
            causes.append(not_supported(f"{at}.apiGroup", subject.get("apiGroup", ""), [GROUP]))
        return causes

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """The role stays."""
        causes = self.validate(obj, ctx)
        if obj["roleRef"] != old["roleRef"]:
            causes.append(invalid_value("roleRef", _role(obj["roleRef"]), "field is immutable"))
        return causes


def _listed(values: list[str]) -> str:
    return "[" + ", ".join(values) + "]"


def _role(reference: Json) -> str:
    return ", ".join(f"{key}:{reference[key]}" for key in sorted(reference))
