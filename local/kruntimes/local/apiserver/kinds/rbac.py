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
        without_verbs: list[Cause] = []
        for i, rule in enumerate(obj.get("rules") or []):
            if not rule.get("verbs"):
                without_verbs.append(required(f"rules[{i}].verbs"))
            causes += self._rule(f"rules[{i}]", rule)
        return causes + without_verbs

    def _rule(self, at: str, rule: Json) -> list[Cause]:
        causes: list[Cause] = []
        urls = rule.get("nonResourceURLs")
        if urls:
            if self.resource.namespaced:
                why = "namespaced rules cannot apply to non-resource URLs"
                causes.append(invalid_value(f"{at}.nonResourceURLs", urls, why))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                causes.append(invalid_value(f"{at}.nonResourceURLs", urls, why))
            return causes
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
        if not obj.get("subjects"):
            obj.pop("subjects", None)
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
        subjects = obj.get("subjects") or []
        for i, subject in enumerate(subjects):
            causes += self._subject(f"subjects[{i}]", subject)
        causes += [required(f"subjects[{i}].name") for i, subject in enumerate(subjects) if not subject.get("name")]
        if not reference.get("name"):
            causes.append(required("roleRef.name"))
        return causes

    def _subject(self, at: str, subject: Json) -> list[Cause]:
        kind: str = subject.get("kind", "")
        causes: list[Cause] = []
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


def _role(reference: Json) -> Json:
    """A reference as the real server's messages print it."""
    return {
        key: reference.get(field, "") for key, field in (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
    }
