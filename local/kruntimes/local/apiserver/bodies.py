"""Bodies of requests: bytes in, one decoded value out, with every refusal in the real server's words. Pure."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from kruntimes.local.apiserver.metadata import invalid_value
from kruntimes.local.apiserver.parts import APPLY_PATCH, JSON, PROTOBUF, YAML
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import About, StatusError, bad_request, invalid, unsupported_media_type

Json = dict[str, Any]

_YAMLS = frozenset({YAML, "application/x-yaml", "text/yaml"})
_TYPE_META = (
    'Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
    '"json:\\"kind,omitempty\\"" }'
)
_JSON_NAMES = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}
SHOWN_BYTES = 30
"""Of a body that nobody understands; a refusal repeats that much of it."""


def media_type(header: str) -> str:
    """The media type of a Content-Type header, without parameters; JSON where there is none."""
    return header.partition(";")[0].strip() or JSON


def decode(body: bytes, media: str, protobuf: Callable[[bytes], Json]) -> Any:
    """The value of a body; raises BadRequest and UnsupportedMediaType."""
    if media == PROTOBUF:
        return protobuf(body)
    if media in _YAMLS or media == APPLY_PATCH:
        try:
            return _yaml(body)
        except ValueError as error:
            raise bad_request(f"error decoding YAML: {error}") from None
    if media == JSON or media.endswith("+json"):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            said = "couldn't get version/kind; json parse error" if media == JSON else "invalid JSON patch"
            raise bad_request(f"{said}: {error}") from None
    raise unsupported_media_type((JSON, YAML, PROTOBUF))


def _yaml(body: bytes) -> Any:
    """Raises ValueError."""
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # YAML allows more than JSON does
    from kruntimes.local.apiserver import yaml_bodies

    return yaml_bodies.load(body)


def _shown(body: bytes) -> str:
    """The beginning of a body, as text where it looks like JSON."""
    if not body:
        return "<empty>"
    cut = body[:SHOWN_BYTES] + (b" ..." if len(body) > SHOWN_BYTES else b"")
    return cut.decode(errors="replace") if body[:1] == b"{" else cut.hex()


def unrecognized(resource: Resource, body: bytes, why: str) -> StatusError:
    """The body is no object at all."""
    return bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {why} ({_shown(body)})")


def read_object(
    body: bytes,
    media: str,
    resource: Resource,
    *,
    protobuf: Callable[[bytes], Json],
    registered: Callable[[str, str], bool],
) -> Json:
    """A body that must be an object of *resource*; raises BadRequest, Invalid and UnsupportedMediaType.

    registered: whether an apiVersion and a kind are one of the server's.
    """
    if media == JSON:
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = "unexpected end of JSON input" if "truncated" in str(error) else str(error)
            raise unrecognized(resource, body, f"couldn't get version/kind; json parse error: {why}") from None
    elif media in _YAMLS:
        try:
            value = _yaml(body)
        except ValueError as error:
            raise unrecognized(resource, body, str(error)) from None
    else:
        value = decode(body, media, protobuf)
    if not isinstance(value, dict):
        found = _JSON_NAMES.get(type(value), "null")
        why = f"couldn't get version/kind; json parse error: json: cannot unmarshal {found} into {_TYPE_META}"
        raise unrecognized(resource, body, why)
    if resource.custom:
        _check_custom(value, body, resource)
    else:
        as_object(value, resource, registered=registered)
    return value


def _check_custom(value: Json, body: bytes, resource: Resource) -> None:
    kind, version = value.get("kind", ""), value.get("apiVersion", "")
    if not kind:
        raise unrecognized(resource, body, f"Object 'Kind' is missing in '{body.decode(errors='replace')[:1000]}'")
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind != resource.kind:
        meta = value.get("metadata")
        name = meta.get("name", "") if isinstance(meta, dict) else ""
        about = About(group=resource.group, kind=str(kind), name=str(name))
        raise invalid(about, [invalid_value("kind", kind, f"must be {resource.kind}")])


def as_object(
    value: Json, resource: Resource, *, registered: Callable[[str, str], bool] = lambda version, kind: False
) -> None:
    """Fills in the kind of a built-in *resource*'s body, in place; raises BadRequest for one of another kind."""
    kind, full = value.get("kind") or resource.kind, value.get("apiVersion") or resource.api_version
    value["kind"], value["apiVersion"] = kind, full
    if (kind, full) == (resource.kind, resource.api_version):
        return
    version = str(full).rpartition("/")[2]
    if registered(str(full), str(kind)):
        why = f"converting ({version}.{kind}) to (core.{resource.kind}): unknown conversion"
    else:
        why = f'no kind "{kind}" is registered for version "{full}" in scheme "pkg/runtime/scheme.go:111"'
    raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}')


# ---------------------------------------------------------------- fields that stand there twice


class _Pairs(dict[str, Any]):
    """An object, with the names that stood in it more than once."""

    twice: Sequence[str] = ()


def duplicates(body: bytes) -> list[str]:
    """The paths of the fields that a JSON body names twice in one object; the last value of each counts."""
    found = False

    def note(pairs: list[tuple[str, Any]]) -> _Pairs:
        nonlocal found
        made = _Pairs(pairs)
        if len(made) != len(pairs):
            found = True
            names = [name for name, _ in pairs]
            made.twice = sorted({name for name in names if names.count(name) > 1}, key=names.index)
        return made

    try:
        value = json.loads(body, object_pairs_hook=note)
    except (ValueError, RecursionError):
        return []  # the decoder proper has its own word for it
    return list(_named_twice(value, "")) if found else []


def _named_twice(value: Any, at: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        prefix = f"{at}." if at else ""
        for name in value.twice:
            yield prefix + name
        for key, item in value.items():
            yield from _named_twice(item, prefix + key)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _named_twice(item, f"{at}[{i}]")
