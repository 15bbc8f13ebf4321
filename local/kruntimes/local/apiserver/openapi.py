"""`/openapi/v3`: the schemas that `kubectl explain` reads. Pure.

Custom kinds are told as their definition has them; of built-in kinds the fields and their types, without descriptions.
kubectl asks `/openapi/v2` only about a kind that version 3 does not have; what it needs to hear is that there is none.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kruntimes.local.apiserver import shapes
from kruntimes.local.apiserver.custom.strategy import DEFINITIONS
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.shapes import Shape
from kruntimes.local.apiserver.status import path_not_found

if TYPE_CHECKING:
    from kruntimes.local.apiserver.api import Api

Json = dict[str, Any]

V2_ACCEPTED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""What kubectl accepts at `/openapi/v2`, and nothing else."""
V2_MEDIA_TYPE = V2_ACCEPTED.replace("@", ".")
"""How the answer is named: kubectl cannot read a Content-Type with an @, and kube-apiserver answers so too."""
_TITLE = "kruntimes, the embedded API server"
_V2: Json = {"swagger": "2.0", "info": {"title": _TITLE, "version": "v1"}, "paths": {}}

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_API_VERSION = "The version of the schema that this object is written in, with its group: GROUP/VERSION."
_KIND = "What kind of object this is, in CamelCase. It cannot be changed."
_METADATA = "What every object has: name, namespace, labels, annotations and what the server keeps."
_PATCH_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": type_}}
    for name, type_ in (
        ("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean"),
    )
]  # fmt: skip
_TYPES: dict[str, Json] = {
    "s": {"type": "string"},
    "i": {"type": "integer", "format": "int64"},
    "f": {"type": "number", "format": "double"},
    "b": {"type": "boolean"},
    "t": {"type": "string", "format": "date-time"},
    "u": {"type": "string", "format": "date-time"},
    "q": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "o": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "a": {"type": "object"},
}


def openapi(api: "Api", path: str, query: Mapping[str, str]) -> Json:
    """The index at /openapi/v3, or the document of one group and version. Raises NotFound."""
    parts = path.strip("/").split("/")
    if parts == ["openapi", "v3"]:
        groups = dict.fromkeys((r.group, r.version) for r in api.resources)
        return {"paths": {_key(*gv): {"serverRelativeURL": f"/openapi/v3/{_key(*gv)}?hash={_hash(api, *gv)}"}
                          for gv in groups}}  # fmt: skip
    group, version = "", ""
    if parts[:3] == ["openapi", "v3", "api"] and len(parts) == 4:
        version = parts[3]
    elif parts[:3] == ["openapi", "v3", "apis"] and len(parts) == 5:
        group, version = parts[3:]
    found = [r for r in api.resources if (r.group, r.version) == (group, version)]
    if not found:
        raise path_not_found()
    return _document(api, found)


def openapi_v2() -> Json:
    """The document of version 2, which names no kind."""
    return _V2


def openapi_v2_protobuf() -> bytes:
    """The same as a message `openapi.v2.Document`: field 1 is swagger, 2 info, of which 1 is title and 2 version."""
    info = _text(1, _TITLE) + _text(2, "v1")
    return _text(1, "2.0") + bytes((2 << 3 | 2, len(info))) + info


def _text(field: int, value: str) -> bytes:
    """A short field of text: tag, length and bytes."""
    return bytes((field << 3 | 2, len(value))) + value.encode()


def _key(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _hash(api: "Api", group: str, version: str) -> str:
    """Changes with the definitions of the group."""
    definitions = [c for c in api.store.list(DEFINITIONS) if c["spec"]["group"] == group]
    said = [group, version, *(c["metadata"]["resourceVersion"] for c in definitions)]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:40].upper()


def _document(api: "Api", resources: Iterable[Resource]) -> Json:
    paths: Json = {}
    schemas: Json = {}
    for resource in resources:
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        operation = {"x-kubernetes-group-version-kind": kind, "responses": {"200": {"description": "OK"}}}
        at = f"/{_key(resource.group, resource.version)}"
        at += f"/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"/{resource.plural}"
        paths[at] = {"post" if resource.virtual else "get": operation}
        if "patch" in resource.verbs:
            # By these parameters kubectl sees that validation is the server's.
            paths[f"{at}/{{name}}"] = {"patch": {**operation, "parameters": _PATCH_PARAMETERS}}
        made = _custom(api, resource) if resource.custom else _built_in(resource, schemas)
        name = f"{_package(resource)}.{resource.kind}"
        schemas[name] = {**made, "x-kubernetes-group-version-kind": [kind]}
    _reach("ObjectMeta", _META, schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _package(resource: Resource) -> str:
    if resource.custom:
        return ".".join([*reversed(resource.group.split(".")), resource.version])
    return f"io.k8s.api.{resource.group.partition('.')[0] or 'core'}.{resource.version}"


def _common() -> Json:
    return {
        "apiVersion": {"type": "string", "description": _API_VERSION},
        "kind": {"type": "string", "description": _KIND},
        "metadata": {"description": _METADATA, "allOf": [{"$ref": f"#/components/schemas/{_META}"}], "default": {}},
    }


def _custom(api: "Api", resource: Resource) -> Json:
    definition = api.store.peek(DEFINITIONS, "", f"{resource.plural}.{resource.group}")
    versions = definition["spec"]["versions"] if definition is not None else []
    raw: Json = next((v for v in versions if v["name"] == resource.version), {})
    schema: Json = (raw.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    return {**schema, "properties": {**(schema.get("properties") or {}), **_common()}}


def _built_in(resource: Resource, schemas: Json) -> Json:
    shape = shapes.table().get(resource.kind)
    if shape is None:
        return {"type": "object", "properties": _common()}
    own = {name: _schema(sub, resource, schemas) for name, sub in (shape.fields or {}).items()}
    return {"type": "object", "properties": {**own, **_common()}}


def _schema(shape: Shape, resource: Resource, schemas: Json) -> Json:
    if shape.kind in ("list", "map"):
        assert shape.of is not None
        of = _schema(shape.of, resource, schemas)
        return (
            {"type": "array", "items": of} if shape.kind == "list" else {"type": "object", "additionalProperties": of}
        )
    if shape.kind != "struct":
        return _TYPES[shape.kind]
    name = shape.name.removeprefix("v1.")
    full = _META if name == "ObjectMeta" else f"{_package(resource)}.{name}"
    _reach(name, full, schemas, resource)
    return {"allOf": [{"$ref": f"#/components/schemas/{full}"}]}


def _reach(name: str, full: str, schemas: Json, resource: Resource | None = None) -> None:
    """Adds the schema of a shape, and of all that it refers to."""
    if full in schemas:
        return
    made: Json = {"type": "object"}
    schemas[full] = made
    owner = resource or Resource(
        group="", version="v1", plural="", singular="", kind="", namespaced=False,
    )  # fmt: skip
    fields = shapes.table()[name].fields or {}
    made["properties"] = {key: _schema(sub, owner, schemas) for key, sub in fields.items()}
