"""The faults of a CustomResourceDefinition. Pure. Wording as of the API server's validation of apiextensions."""

import re
from typing import Any

from kruntimes.local.apiserver import metadata
from kruntimes.local.apiserver.custom.schema_checks import schema_faults
from kruntimes.local.apiserver.schema import faults
from kruntimes.local.apiserver.schema.structural import Json, Node, read
from kruntimes.local.apiserver.status import Cause

COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
MAX_SELECTABLE = 8
_PATH = re.compile(r"(\.[A-Za-z_][A-Za-z0-9_-]*)+")


def definition(crd: Json) -> list[Cause]:
    """What is wrong with it."""
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        return [faults.required("spec")]
    raw = spec.get("names")
    names: Json = raw if isinstance(raw, dict) else {}
    group = spec.get("group") or ""
    causes: list[Cause] = []
    wanted = f"{names.get('plural', '')}.{group}"
    if crd["metadata"].get("name") != wanted:
        name = crd["metadata"].get("name", "")
        causes.append(faults.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if not group:
        causes.append(faults.required("spec.group"))
    elif found := metadata.name_faults(group, "subdomain"):
        causes.append(faults.invalid("spec.group", group, ",".join(found)))
    elif "." not in group:
        causes.append(faults.invalid("spec.group", group, "should be a domain with at least one dot"))
    scope = spec.get("scope") or ""
    if not scope:
        causes.append(faults.required("spec.scope"))
    elif scope not in ("Cluster", "Namespaced"):
        causes.append(faults.not_supported("spec.scope", scope, ["Cluster", "Namespaced"]))
    return causes + _versions(spec) + _names(names)


def _names(names: Json) -> list[Cause]:
    causes: list[Cause] = []
    for key in ("plural", "singular", "kind", "listKind"):
        value = names.get(key) or ""
        if not value:
            causes.append(faults.required(f"spec.names.{key}"))
            continue
        found = metadata.name_faults(value.lower() if "ind" in key else value, "label1035")
        prefix = "may have mixed case, but should otherwise match: " if "ind" in key else ""
        if found:
            causes.append(faults.invalid(f"spec.names.{key}", value, prefix + ",".join(found)))
    for key in ("shortNames", "categories"):
        for i, value in enumerate(names.get(key) or ()):
            if found := metadata.name_faults(value, "label1035"):
                causes.append(faults.invalid(f"spec.names.{key}[{i}]", value, ",".join(found)))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        why = "kind and listKind may not be the same"
        causes.append(faults.invalid("spec.names.listKind", names["listKind"], why))
    return causes


def _versions(spec: Json) -> list[Cause]:
    versions = spec.get("versions") or []
    causes: list[Cause] = []
    for i, version in enumerate(versions):
        if found := metadata.name_faults(version.get("name", ""), "label1035"):
            causes.append(faults.invalid(f"spec.versions[{i}].name", version.get("name", ""), ",".join(found)))
    if len({version.get("name") for version in versions}) != len(versions):
        causes.append(faults.invalid("spec.versions", versions, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        causes.append(
            faults.invalid("spec.versions", versions, "must have exactly one version marked as storage version")
        )
    # What all versions share is told as if it stood beside them.
    for key, at in (("schema", "validation"), ("additionalPrinterColumns",) * 2, ("subresources",) * 2):
        shared = all(version.get(key) == versions[0].get(key) for version in versions[1:])
        for i, version in enumerate(versions[:1] if shared else versions):
            path = f"spec.{at}" if shared else f"spec.versions[{i}].{key}"
            causes += _PARTS[key](version, path)
    for i, version in enumerate(versions):
        shared = len(versions) == 1 or all(
            v.get("selectableFields") == versions[0].get("selectableFields") for v in versions
        )
        path = "spec.selectableFields" if shared else f"spec.versions[{i}].selectableFields"
        causes += [] if shared and i else _selectable(version, path)
    return causes


def _schema(version: Json, path: str) -> list[Cause]:
    raw = (version.get("schema") or {}).get("openAPIV3Schema")
    if raw is None:
        at = path.replace("spec.validation", "spec.versions[0].schema")
        return [faults.required(f"{at}.openAPIV3Schema", "schemas are required")]
    status = "status" in (version.get("subresources") or {})
    return schema_faults(raw, f"{path}.openAPIV3Schema", status=status)


def _columns(version: Json, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for i, column in enumerate(version.get("additionalPrinterColumns") or ()):
        at, type_ = f"{path}[{i}]", column.get("type") or ""
        if not column.get("name"):
            causes.append(faults.required(f"{at}.name"))
        allowed = f"must be one of {','.join(COLUMN_TYPES)}"
        if not type_:
            causes.append(faults.required(f"{at}.type", allowed))
        elif type_ not in COLUMN_TYPES:
            causes.append(faults.invalid(f"{at}.type", type_, allowed))
        if not column.get("jsonPath"):
            causes.append(faults.required(f"{at}.JSONPath"))
        elif not column["jsonPath"].startswith("."):
            why = "must be a simple json path starting with ."
            causes.append(faults.invalid(f"{at}.JSONPath", column["jsonPath"], why))
    return causes


def _subresources(version: Json, path: str) -> list[Cause]:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return []
    causes: list[Cause] = []
    for key, roots in (("specReplicasPath", (".spec.",)), ("statusReplicasPath", (".status.",)),
                       ("labelSelectorPath", (".spec.", ".status."))):  # fmt: skip
        value, at = scale.get(key) or "", f"{path}.scale.{key}"
        if not value:
            causes += [] if key == "labelSelectorPath" else [faults.required(at)]
        elif not _PATH.fullmatch(value):
            causes.append(faults.invalid(at, value, "must be a simple json path starting with ."))
        elif not value.startswith(roots):
            where = "either .spec or .status" if len(roots) > 1 else roots[0].rstrip(".")
            causes.append(faults.invalid(at, value, f"should be a json path under {where}"))
    return causes


_PARTS: dict[str, Any] = {"schema": _schema, "additionalPrinterColumns": _columns, "subresources": _subresources}


def _selectable(version: Json, path: str) -> list[Cause]:
    fields = version.get("selectableFields") or []
    raw = (version.get("schema") or {}).get("openAPIV3Schema")
    if not fields or not isinstance(raw, dict):
        return []
    causes: list[Cause] = []
    seen: set[str] = set()
    root = read(raw)
    for i, field in enumerate(fields):
        at, text = f"{path}[{i}].jsonPath", field.get("jsonPath") or ""
        node = _found(root, text)
        if not text:
            causes.append(faults.required(at))
        elif node is None:
            causes.append(faults.invalid(at, text, "is an invalid path: does not refer to a valid field"))
        elif text.startswith(".metadata"):
            causes.append(faults.invalid(at, text, "must not point to fields in metadata"))
        elif node.type not in ("string", "boolean", "integer"):
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            causes.append(faults.invalid(at, text, why))
        if text in seen:
            causes.append(faults.duplicate(at, text))
        seen.add(text)
    if len(seen) > MAX_SELECTABLE:
        causes.append(faults.too_many(path, len(seen), MAX_SELECTABLE))
    return causes


def _found(node: Node | None, path: str) -> Node | None:
    if not _PATH.fullmatch(path):
        return None
    for step in path.strip(".").split("."):
        node = node.properties.get(step) if node is not None else None
    return node
