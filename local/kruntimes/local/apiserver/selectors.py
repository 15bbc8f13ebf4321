"""Label and field selectors, as they stand in a query string (`labels.Parse` and `fields.ParseSelector`). Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import bad_request

MAX_SELECTOR = 16 * 1024
"""Characters of a selector; a request line holds no more anyway."""

_KEY = r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s+\(\s*([^()]*?)\s*\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_NUMBER = re.compile(rf"({_KEY})\s*([<>])\s*(-?[0-9]+)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_VALUE_ONLY = re.compile(_VALUE)

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
    found: list[Requirement] = []
    for part in _split(text):
        term = part.strip()
        if not term:
            continue
        if match := _SET.fullmatch(term):
            values = [value.strip() for value in match[3].split(",")]
            for value in values:
                if not _VALUE_ONLY.fullmatch(value):
                    raise bad_request(f"unable to parse requirement: values: Invalid value: {value!r}")
            found.append(Requirement(match[1], match[2], frozenset(values)))
        elif match := _EQUAL.fullmatch(term):
            found.append(Requirement(match[1], "!=" if match[2] == "!=" else "=", frozenset({match[3]})))
        elif match := _NUMBER.fullmatch(term):
            found.append(Requirement(match[1], match[2], frozenset({match[3]})))
        elif match := _EXISTS.fullmatch(term):
            found.append(Requirement(match[2], "!" if match[1] else "exists"))
        else:
            raise bad_request(f"unable to parse requirement: {term[:80]!r}")
    return tuple(found)


def _split(text: str) -> Iterable[str]:
    """Splits at the commas outside parentheses."""
    depth, start = 0, 0
    for i, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    yield text[start:]


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


def parse_fields(text: str, resource: Resource) -> tuple[FieldTerm, ...]:
    """Reads `spec.nodeName=a,status.phase!=b`; raises BadRequest for a field that *resource* cannot be selected by."""
    if len(text) > MAX_SELECTOR:
        raise bad_request("the field selector is too long")
    found: list[FieldTerm] = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        match = re.fullmatch(r"([^=!]+?)(!=|==|=)(.*)", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: {text[:80]!r}; can't understand {part[:80]!r}")
        path = "." + match[1].removeprefix(".")
        allowed = _METADATA if resource.namespaced else _METADATA[:1]
        if path not in allowed and path not in resource.selectable:
            where = f'"{resource.api_version}, Kind={resource.kind}"'
            raise bad_request(f"Unable to find {where} that match label selector \"\", field selector {text[:80]!r}: "
                              f"field label not supported: {path[1:]}")  # fmt: skip
        value = re.sub(r"\\([\\,=])", r"\1", match[3])
        found.append(FieldTerm(path, value, match[2] == "!="))
    return tuple(found)


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """The value at a dotted path as a field selector compares it; absent is the empty string."""
    at: Any = obj
    for step in path.removeprefix(".").split("."):
        if not isinstance(at, Mapping):
            return ""
        at = at.get(step)
    if at is None or isinstance(at, dict | list):
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
