"""Query strings and Accept headers as values, and the forms of an answer. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kruntimes.local.apiserver import tables
from kruntimes.local.apiserver.metadata import forbidden_value, invalid_value, not_supported, required
from kruntimes.local.apiserver.parts import JSON, PROTOBUF, YAML
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import About, Cause, bad_request, internal, invalid, not_acceptable
from kruntimes.local.apiserver.strategy import DeleteOptions
from kruntimes.local.apiserver.tables import Form

Json = dict[str, Any]
Query = Mapping[str, str]

_TRUE, _FALSE = (
    frozenset({"1", "t", "T", "true", "TRUE", "True"}),
    frozenset({"0", "f", "F", "false", "FALSE", "False"}),
)


def form_of(accept: str) -> Form:
    """The form of the answer; raises NotAcceptable."""
    form = tables.wanted(accept)
    if form is None:
        raise not_acceptable((JSON, YAML, PROTOBUF))
    return form


# ---------------------------------------------------------------- query strings


def flag(query: Query, name: str) -> bool | None:
    """A boolean parameter; None where it is not given. Raises BadRequest."""
    text = query.get(name, "")
    if not text:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise bad_request(
        f'unable to decode query parameter {name}: strconv.ParseBool: parsing "{text[:40]}": invalid syntax'
    )


def number(query: Query, name: str) -> int | None:
    """An integer parameter; None where it is not given. Raises BadRequest."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        if not text.lstrip("-").isdecimal():
            raise ValueError
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text[:40]}": invalid syntax') from None


MAX_MANAGER = 128
"""Bytes of a fieldManager's name."""


def field_manager(query: Query, kind: str, *, agent: str, apply: bool) -> str:
    """Who is said to write: the parameter, or else the User-Agent up to its first slash. Raises Invalid."""
    named = query.get("fieldManager", "")
    if apply and not named:
        raise invalid(_options(kind), [required("fieldManager", "is required for apply patch")])
    if len(named.encode()) > MAX_MANAGER:
        said = f"Too long: may not be more than {MAX_MANAGER} bytes"
        raise invalid(_options(kind), [Cause("fieldManager", "FieldValueTooLong", said)])
    if kind == "PatchOptions" and not apply and flag(query, "force") is not None:
        raise invalid(_options(kind), [forbidden_value("force", "may not be specified for non-apply patch")])
    return named or agent.partition("/")[0][:MAX_MANAGER] or "unknown"


_STRICTNESS = ["", "Ignore", "Strict", "Warn"]


def strictness(query: Query, kind: str) -> str:
    """What is to become of unknown and duplicate fields: Ignore, Strict or Warn. Raises Invalid."""
    asked = query.get("fieldValidation", "")
    if asked not in _STRICTNESS:
        raise invalid(_options(kind), [not_supported("fieldValidation", asked, _STRICTNESS)])
    return asked or "Warn"


def dry_run(query: Query, kind: str) -> bool:
    """Whether nothing is to be stored; raises Invalid, naming the options' *kind*, for a value other than All."""
    value = query.get("dryRun", "")
    return _dry_run([value] if value else [], kind)


def _options(kind: str) -> About:
    return About(group=tables.META, kind=kind)


def _dry_run(values: Sequence[Any], kind: str) -> bool:
    wrong = [value for value in values if value != "All"]
    if wrong:
        raise invalid(_options(kind), [not_supported("dryRun", list(values), ["All"])])
    return bool(values)


def delete_options(body: Any, query: Query) -> DeleteOptions:
    """The options of a DELETE, from its body or else from its query. Raises BadRequest and Invalid."""
    kind = "DeleteOptions"
    if not isinstance(body, dict) or body.get("kind", kind) != kind:
        raise bad_request("the body is not DeleteOptions")
    if body:
        preconditions = body.get("preconditions") or {}
        grace, propagation, orphan = (
            body.get(k) for k in ("gracePeriodSeconds", "propagationPolicy", "orphanDependents")
        )
        dry = _dry_run(body.get("dryRun") or [], kind)
    else:
        preconditions = {}
        grace, propagation = number(query, "gracePeriodSeconds"), query.get("propagationPolicy")
        orphan, dry = flag(query, "orphanDependents"), dry_run(query, kind)
    if grace is not None and not isinstance(grace, int):
        raise bad_request("gracePeriodSeconds must be an integer")
    causes = []
    if propagation is not None and orphan is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(invalid_value("propagationPolicy", propagation, why))
    if propagation not in (None, "Background", "Foreground", "Orphan"):
        causes.append(not_supported("propagationPolicy", propagation, ["Foreground", "Background", "Orphan", "nil"]))
    if causes:
        raise invalid(_options(kind), causes)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    return DeleteOptions(
        grace_seconds=grace, uid=preconditions.get("uid"), resource_version=preconditions.get("resourceVersion"),
        propagation=propagation, dry_run=dry,
    )  # fmt: skip


# ---------------------------------------------------------------- answers

_ANY = datetime.min.replace(tzinfo=UTC)
"""A moment for what does not look at it."""


@dataclass(frozen=True, slots=True)
class View:
    """How objects of *resource* are shown to one caller: form, and for Tables what each row carries."""

    resource: Resource
    form: Form
    include: str = "Metadata"

    def one(self, obj: Json, *, now: datetime, columns: bool = True) -> Json:
        """One object in this form."""
        if self.form.listed and columns:
            said = f"object *unstructured.Unstructured is not a list of {self.resource.kind}"
            raise internal(said) if self.resource.custom else not_acceptable((JSON, YAML, PROTOBUF))
        if self.form.kind == "Table":
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return tables.table(self.resource, (obj,), meta, now=now, include=self.include, columns=columns)
        return tables.partial(obj) if self.form.kind else self.resource.shows(obj)

    def carrier(self, bare: Json, *, columns: bool) -> Json:
        """A Table of one row without cells, which only carries an object."""
        meta = {"resourceVersion": bare["metadata"]["resourceVersion"]}
        shown = tables.table(self.resource, (), meta, now=_ANY, include="None", columns=columns)
        carried = tables.partial(bare) if self.include == "Metadata" else bare
        return {**shown, "rows": [{"cells": tables.empty_row(self.resource), "object": carried}]}

    @property
    def content_type(self) -> str:
        """Of a stream of these."""
        return f"{JSON};as={self.form.kind};g={tables.META};v=v1" if self.form.kind else JSON

    def head(self, meta: Json) -> Json:
        """A list without its items."""
        if self.form.kind:
            return {"kind": "PartialObjectMetadataList", "apiVersion": f"{tables.META}/v1", "metadata": meta}
        return {"kind": f"{self.resource.kind}List", "apiVersion": self.resource.api_version, "metadata": meta}

    def item(self, obj: Json) -> Json:
        """One object as an item of a list: those of built-in kinds carry neither kind nor apiVersion there."""
        if self.form.kind:
            return tables.partial(obj)
        if self.resource.custom:
            return self.resource.shows(obj)
        return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
