"""Nobody hands on more rights than he has: the last word on a write of a role or a binding. Pure.

Rights are handed on by binding a role (the verb `bind` on that role allows it) and by writing rules into one (the
verb `escalate` on roles allows it); otherwise the writer must have all that he gives. system:masters may do both.
"""

from collections.abc import Callable, Iterable

from kruntimes.local.apiserver import rbac
from kruntimes.local.apiserver.parts import Admit, Json
from kruntimes.local.apiserver.rbac import GROUP, Policy, Rule, listed, missing
from kruntimes.local.apiserver.request import MASTERS, Request
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import forbidden, not_found
from kruntimes.local.apiserver.strategy import Context


def no_escalation(policy: Callable[[], Policy]) -> Admit:
    """The check of every write to RBAC objects."""

    def admit(resource: Resource, subresource: str, new: Json, old: Json | None, ctx: Context) -> None:
        if resource.key not in rbac.KEYS or MASTERS in ctx.user.groups:
            return
        if resource.key in (rbac.ROLES, rbac.CLUSTER_ROLES):
            _role(policy(), resource, new, old, ctx)
        else:
            _binding(policy(), resource, new, old, ctx)

    return admit


def _role(policy: Policy, resource: Resource, new: Json, old: Json | None, ctx: Context) -> None:
    same = old is not None and all(old.get(key) == new.get(key) for key in ("rules", "aggregationRule"))
    if same or policy.decide(_question(resource, "escalate", new, ctx)).allowed:
        return
    if new.get("aggregationRule") is not None or (old is not None and old.get("aggregationRule") is not None):
        everything = [Rule(verbs=("*",), groups=("*",), resources=("*",)), Rule(verbs=("*",), urls=("*",))]
        if missing(policy.rules(ctx.user, ""), everything):
            why = "must have cluster-admin privileges to use an aggregationRule"
            raise forbidden(resource.about(new["metadata"].get("name", "")), why)
    _confirm(policy, resource, new, [Rule.of(rule) for rule in new.get("rules") or ()], ctx)


def _binding(policy: Policy, resource: Resource, new: Json, old: Json | None, ctx: Context) -> None:
    reference = new.get("roleRef") or {}
    if old is not None and old["roleRef"] == reference and old.get("subjects") == new.get("subjects"):
        return
    kind, name = reference.get("kind", ""), reference.get("name", "")
    namespace = new["metadata"].get("namespace", "")
    plural = "clusterroles" if kind == "ClusterRole" else "roles"
    question = Request(
        user=ctx.user, verb="bind", path="", group=GROUP, version="v1", resource=plural, namespace=namespace, name=name
    )
    if policy.decide(question).allowed:
        return
    rules = policy.role(kind, namespace, name)
    if rules is None:
        raise not_found(resource.about(name))  # the binding's kind, the role's name: as the real server says it
    _confirm(policy, resource, new, rules, ctx)


def _confirm(policy: Policy, resource: Resource, new: Json, rules: Iterable[Rule], ctx: Context) -> None:
    meta = new["metadata"]
    lacking = missing(policy.rules(ctx.user, meta.get("namespace", "")), rules)
    if lacking:
        said = "\n".join(sorted({str(rule) for rule in lacking}))
        why = (
            f'user "{ctx.user.name}" (groups={listed(ctx.user.groups)}) is attempting to grant RBAC permissions not '
            f"currently held:\n{said}"
        )
        raise forbidden(resource.about(_given_name(meta)), why)


def _given_name(meta: Json) -> str:
    """The name that the writer gave: one that was made up for him is not told."""
    return "" if meta.get("generateName") else str(meta.get("name", ""))


def _question(resource: Resource, verb: str, obj: Json, ctx: Context) -> Request:
    meta = obj["metadata"]
    return Request(
        user=ctx.user, verb=verb, path="", group=resource.group, version=resource.version, resource=resource.plural,
        namespace=meta.get("namespace", ""), name=meta.get("name", ""),
    )  # fmt: skip
