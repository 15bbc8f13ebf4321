"""Media types, bodies and query strings: what the wire says, as values; what is answered, as bytes. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kruntimes.local.apiserver import tables
from kruntimes.local.apiserver.metadata import invalid_value, not_supported
from kruntimes.local.apiserver.parts import APPLY_PATCH, JSON, PROTOBUF, YAML
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import About, bad_request, invalid, not_acceptable, unsupported_media_type
from kruntimes.local.apiserver.strategy import DeleteOptions
from kruntimes.local.apiserver.tables import Form

Json = dict[str, Any]
Query = Mapping[str, str]

OFFERED = (JSON, YAML)
_YAMLS = frozenset({YAML, "application/x-yaml", "text/yaml"})
_TRUE, _FALSE = (
    frozenset({"1", "t", "T", "true", "TRUE", "True"}),
    frozenset({"0", "f", "F", "false", "FALSE", "False"}),
)

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode


def media_type(header: str) -> str:
    """The media type of a Content-Type header, without parameters; JSON where there is none."""
    return header.partition(";")[0].strip() or JSON


def form_of(accept: str) -> Form:
    """The form of the answer; raises NotAcceptable."""
    form = tables.wanted(accept)
    if form is None:
        raise not_acceptable((JSON, YAML, PROTOBUF))
    return form


def decode(body: bytes, media: str, protobuf: Callable[[bytes], Json]) -> Any:
    """The value of a body; raises BadRequest and UnsupportedMediaType."""
    if media in (PROTOBUF, f"{PROTOBUF};stream=watch"):
        return protobuf(body)
    if media in _YAMLS or media == APPLY_PATCH:
        return _yaml(body)
    if media == JSON or media.endswith("+json"):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            said = "couldn't get version/kind; json parse error" if media == JSON else "invalid JSON patch"
            raise bad_request(f"{said}: {error}") from None
    raise unsupported_media_type((JSON, YAML, PROTOBUF))


def _yaml(body: bytes) -> Any:
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # YAML allows more than JSON does
    from kruntimes.local.apiserver import yaml_bodies

    return yaml_bodies.load(body)


def as_object(value: Any, resource: Resource) -> Json:
    """A decoded body that must be an object of *resource*; raises BadRequest."""
    if not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    kind, version = value.setdefault("kind", resource.kind), value.setdefault("apiVersion", resource.api_version)
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind != resource.kind:
        raise bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            "the kind in the data does not match the expected kind"
        )
    return value


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
        raise bad_request(
            f'unable to decode query parameter {name}: strconv.ParseInt: parsing "{text[:40]}": invalid syntax'
        ) from None


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


@dataclass(frozen=True, slots=True)
class View:
    """How objects of *resource* are shown to one caller: form, and for Tables what each row carries."""

    resource: Resource
    form: Form
    include: str = "Metadata"

    def one(self, obj: Json, *, now: datetime, columns: bool = True) -> Json:
        """One object in this form."""
        if self.form.kind == "Table":
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return tables.table(self.resource, (obj,), meta, now=now, include=self.include, columns=columns)
        return tables.partial(obj) if self.form.kind else obj

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
            return obj
        return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
