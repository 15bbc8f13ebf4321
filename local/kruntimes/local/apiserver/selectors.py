"""Label and field selectors, as they stand in a query string (`labels.Parse` and `fields.ParseSelector`). Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver import label_parser
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import bad_request

MAX_SELECTOR = 16 * 1024
"""Characters of a selector; a request line holds no more anyway."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector; operator is one of = != in notin exists ! > <."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Labels) -> bool:
        """Whether *labels* satisfy the term; a missing label satisfies `!=`, `notin` and `!`."""
        held = labels.get(self.key)
        if self.operator == "exists":
            return held is not None
        if self.operator == "!":
            return held is None
        if self.operator in ("!=", "notin"):
            return held not in self.values
        if held is None:
            return False
        if self.operator in ("=", "in"):
            return held in self.values
        if not re.fullmatch(r"-?[0-9]+", held):
            return False
        bound = int(next(iter(self.values)))
        return int(held) > bound if self.operator == ">" else int(held) < bound


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Reads `a=b,c!=d,e in (f,g),!h`; raises BadRequest with the place that is wrong."""
    if len(text) > MAX_SELECTOR:
        raise bad_request("the label selector is too long")
    return tuple(Requirement(term.key, term.operator, frozenset(term.values)) for term in label_parser.parse(text))


def matches_labels(requirements: Iterable[Requirement], obj: Mapping[str, Any]) -> bool:
    """Whether an object's labels satisfy every term."""
    labels = obj["metadata"].get("labels") or {}
    return all(requirement.matches(labels) for requirement in requirements)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: a path with its leading dot, a value, and whether it must differ."""

    path: str
    value: str
    differs: bool = False


_METADATA = (".metadata.name", ".metadata.namespace")
_PART = re.compile(r"(?:[^\\,]|\\.?)+", re.DOTALL)
_TERM = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
_ABSENT = {".spec.unschedulable": "false"}
"""What a field that is not there counts as, where that is not the empty text."""


def parse_fields(text: str, resource: Resource) -> tuple[FieldTerm, ...]:
    """Reads `spec.nodeName=a,status.phase!=b`; raises BadRequest for a field that *resource* cannot be selected by."""
    if len(text) > MAX_SELECTOR:
        raise bad_request("the field selector is too long")
    found: list[FieldTerm] = []
    for part in _PART.findall(text):
        match = _TERM.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text[:80]}'; can't understand '{part[:80]}'")
        name, value = match[1], _unescaped(match[3])
        allowed = _METADATA if resource.namespaced or not resource.selectable else _METADATA[:1]
        if f".{name}" not in allowed and f".{name}" not in resource.selectable:
            if resource.custom or resource.selectable:
                raise bad_request(f"field label not supported: {name[:80]}")
            known = ", ".join(f'"{path[1:]}"' for path in _METADATA)
            raise bad_request(f'"{name[:80]}" is not a known field selector: only {known}')
        found.append(FieldTerm(f".{name}", value, match[2] == "!="))
    return tuple(found)


def _unescaped(value: str) -> str:
    """A value without its escapes."""
    rest = re.sub(r"\\[\\,=]", "", value)
    if "\\" in rest:
        raise bad_request(f"invalid field selector: invalid escape sequence: {value[:80]}")
    if "=" in rest:
        raise bad_request(f"invalid field selector: unescaped character in value: {value[:80]}")
    return re.sub(r"\\([\\,=])", r"\1", value)


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """The value at a dotted path as a field selector compares it; absent is the empty string."""
    at: Any = obj
    for step in path.removeprefix(".").split("."):
        if not isinstance(at, Mapping):
            return _ABSENT.get(path, "")
        at = at.get(step)
    if at is None:
        return _ABSENT.get(path, "")
    if isinstance(at, dict | list):
        return ""
    if isinstance(at, bool):
        return "true" if at else "false"
    return str(at)


def matches_fields(terms: Iterable[FieldTerm], obj: Mapping[str, Any]) -> bool:
    """Whether an object satisfies every term."""
    return all((field_value(obj, term.path) == term.value) != term.differs for term in terms)


def selector(labels: str, fields: str, resource: Resource) -> Callable[[Mapping[str, Any]], bool]:
    """One predicate of both query parameters."""
    requirements = parse_labels(labels) if labels else ()
    terms = parse_fields(fields, resource) if fields else ()
    return lambda obj: matches_labels(requirements, obj) and matches_fields(terms, obj)
