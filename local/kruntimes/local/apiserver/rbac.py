"""Who may do what: the RBAC objects of one moment compiled into a value that answers. Pure.

The semantics and the reasons are those of Kubernetes' own RBAC authorizer: rights only ever add up, a rule without
resourceNames is about all names, `*` stands for all verbs, groups, resources or paths, `*/scale` for one subresource
of every resource.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kruntimes.local.apiserver.label_selectors import selected
from kruntimes.local.apiserver.parts import Verdict
from kruntimes.local.apiserver.request import MASTERS, Request, User

Json = dict[str, Any]

GROUP = "rbac.authorization.k8s.io"
ALL = "*"
ROLES, BINDINGS = (GROUP, "roles"), (GROUP, "rolebindings")
CLUSTER_ROLES, CLUSTER_BINDINGS = (GROUP, "clusterroles"), (GROUP, "clusterrolebindings")
KEYS = frozenset({ROLES, BINDINGS, CLUSTER_ROLES, CLUSTER_BINDINGS})
"""What a policy is compiled from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a role."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: Json) -> "Rule":
        """A rule as it stands in a role."""
        return cls(
            verbs=tuple(rule.get("verbs") or ()),
            groups=tuple(rule.get("apiGroups") or ()),
            resources=tuple(rule.get("resources") or ()),
            names=tuple(rule.get("resourceNames") or ()),
            urls=tuple(rule.get("nonResourceURLs") or ()),
        )

    def to_json(self) -> Json:
        """As it stands in a role."""
        pairs = (
            ("verbs", self.verbs), ("apiGroups", self.groups), ("resources", self.resources),
            ("resourceNames", self.names), ("nonResourceURLs", self.urls),
        )  # fmt: skip
        return {key: list(values) for key, values in pairs if values}

    def allows(self, request: Request) -> bool:
        """Whether it alone allows the request."""
        if ALL not in self.verbs and request.verb not in self.verbs:
            return False
        if not request.is_resource:
            return any(_path_matches(url, request.path) for url in self.urls)
        return (
            (ALL in self.groups or request.group in self.groups)
            and self._about(request.resource, request.subresource)
            and (not self.names or request.name in self.names)
        )

    def _about(self, resource: str, subresource: str) -> bool:
        if ALL in self.resources:
            return True
        if not subresource:
            return resource in self.resources
        return f"{resource}/{subresource}" in self.resources or f"{ALL}/{subresource}" in self.resources

    def covers(self, other: "Rule") -> bool:
        """Whether whoever has this one has all that *other* gives."""
        return (
            _all_in(other.verbs, self.verbs)
            and _all_in(other.groups, self.groups)
            and all(self._about(*_split(r)) for r in other.resources)
            and all(any(_url_covers(mine, url) for mine in self.urls) for url in other.urls)
            and (not self.names or (bool(other.names) and set(other.names) <= set(self.names)))
        )

    def parts(self) -> Iterator["Rule"]:
        """The rule taken apart: one verb on one resource (or path), and one name, each."""
        for verb in self.verbs:
            for group in self.groups:
                for resource in self.resources:
                    plain = Rule(verbs=(verb,), groups=(group,), resources=(resource,))
                    yield from [replace(plain, names=(name,)) for name in self.names] or [plain]
            for url in self.urls:
                yield Rule(verbs=(verb,), urls=(url,))

    def __str__(self) -> str:
        """As a refusal of an escalation lists it."""
        pairs = (
            ("APIGroups", self.groups), ("Resources", self.resources), ("NonResourceURLs", self.urls),
            ("ResourceNames", self.names), ("Verbs", self.verbs),
        )  # fmt: skip
        return "{" + ", ".join(f"{key}:{listed(values)}" for key, values in pairs if values) + "}"


def listed(values: Iterable[str]) -> str:
    """Strings as Go prints a quoted slice: `["a" "b"]`."""
    return "[" + " ".join(f'"{v}"' for v in values) + "]"


def _all_in(wanted: Sequence[str], held: Sequence[str]) -> bool:
    return ALL in held or all(one in held for one in wanted)


def _split(resource: str) -> tuple[str, str]:
    plain, _, sub = resource.partition("/")
    return plain, sub


def _path_matches(url: str, path: str) -> bool:
    return url in (ALL, path) or (url.endswith(ALL) and path.startswith(url.rstrip(ALL)))


def _url_covers(mine: str, url: str) -> bool:
    return mine in (ALL, url) or (mine.endswith(ALL) and url.startswith(mine.rstrip(ALL)))


def missing(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """What of *wanted* is not covered by *held*, with rules that differ in their verb only put together."""
    lacking = [part for rule in wanted for part in rule.parts() if not any(h.covers(part) for h in held)]
    together: dict[tuple[tuple[str, ...], ...], Rule] = {}
    for rule in lacking:
        key = (rule.groups, rule.resources, rule.names, rule.urls)
        known = together.get(key)
        verbs = rule.verbs if known is None else (*known.verbs, *(v for v in rule.verbs if v not in known.verbs))
        together[key] = Rule(
            verbs=verbs, groups=rule.groups, resources=rule.resources, names=rule.names, urls=rule.urls
        )
    return list(together.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The rules that one binding gives to one subject. namespace: empty for everywhere."""

    namespace: str
    rules: tuple[Rule, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Policy:
    """All bindings by subject: `("User", name)` (ServiceAccounts are users) and `("Group", name)`."""

    by_subject: Mapping[tuple[str, str], tuple[Granted, ...]] = field(default_factory=dict)
    roles: Mapping[tuple[str, str], tuple[Rule, ...]] = field(default_factory=dict)

    def granted(self, user: User, namespace: str) -> Iterator[Granted]:
        """What holds for *user* in a namespace; those of everywhere come first."""
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        found = [grant for subject in subjects for grant in self.by_subject.get(subject, ())]
        yield from (grant for grant in found if not grant.namespace)
        if namespace:
            yield from (grant for grant in found if grant.namespace == namespace)

    def rules(self, user: User, namespace: str) -> list[Rule]:
        """Every rule that holds for *user* in a namespace."""
        return [rule for grant in self.granted(user, namespace) for rule in grant.rules]

    def decide(self, request: Request) -> Verdict:
        """Whether the request is allowed, and by which binding."""
        if MASTERS in request.user.groups:
            return Verdict(allowed=True)
        for grant in self.granted(request.user, request.namespace):
            if any(rule.allows(request) for rule in grant.rules):
                return Verdict(allowed=True, reason=f"RBAC: allowed by {grant.reason}")
        return Verdict(allowed=False)

    def role(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """The rules of a role; None where there is none of that name."""
        return self.roles.get(("" if kind == "ClusterRole" else namespace, name))


def compiled(
    *,
    roles: Iterable[Json],
    cluster_roles: Iterable[Json],
    bindings: Iterable[Json],
    cluster_bindings: Iterable[Json],
) -> Policy:
    """The policy that these objects make. A binding whose role is not there gives nothing until it is."""
    rules: dict[tuple[str, str], tuple[Rule, ...]] = {}
    for role in (*roles, *cluster_roles):
        meta = role["metadata"]
        rules[meta.get("namespace", ""), meta["name"]] = tuple(Rule.of(rule) for rule in role.get("rules") or ())
    by_subject: dict[tuple[str, str], list[Granted]] = {}
    for binding in (*cluster_bindings, *bindings):
        meta, reference = binding["metadata"], binding["roleRef"]
        namespace = meta.get("namespace", "")
        at = "" if reference["kind"] == "ClusterRole" else namespace
        held = rules.get((at, reference["name"]))
        if not held:
            continue
        for subject in binding.get("subjects") or ():
            reason = _reason(namespace, meta["name"], reference, subject)
            grant = Granted(namespace=namespace, rules=held, reason=reason)
            by_subject.setdefault(_subject(subject, namespace), []).append(grant)
    return Policy({subject: tuple(grants) for subject, grants in by_subject.items()}, rules)


def _subject(subject: Json, namespace: str) -> tuple[str, str]:
    if subject["kind"] == "ServiceAccount":
        return ("User", f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}")
    return (subject["kind"], subject["name"])


def _reason(namespace: str, name: str, reference: Json, subject: Json) -> str:
    kind, binding = ("RoleBinding", f"{name}/{namespace}") if namespace else ("ClusterRoleBinding", name)
    who = subject["name"]
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    return f'{kind} "{binding}" of {reference["kind"]} "{reference["name"]}" to {subject["kind"]} "{who}"'


def aggregated(role: Json, cluster_roles: Iterable[Json]) -> list[Json] | None:
    """The rules that a ClusterRole with an aggregationRule should have; None for one without.

    cluster_roles: all, in the order of their names. A role is no part of itself; equal rules stand once.
    """
    rule = role.get("aggregationRule")
    if rule is None:
        return None
    rules: list[Json] = []
    for selector in rule.get("clusterRoleSelectors") or ():
        for other in cluster_roles:
            if other["metadata"]["name"] == role["metadata"]["name"] or not selected(selector, other):
                continue
            rules += [one for one in other.get("rules") or () if one not in rules]
    return rules
