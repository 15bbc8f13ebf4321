"""The faults of a schema: it must be structural, within what is supported, and its rules must compile. Pure."""

import copy
from typing import Any

from kruntimes.local.apiserver.cel.errors import CompileError, WrongResult
from kruntimes.local.apiserver.cel.rules import compile_rule
from kruntimes.local.apiserver.cel.schema_types import seen, with_type_fields
from kruntimes.local.apiserver.regex import BadPattern, compiled
from kruntimes.local.apiserver.schema import faults, filling
from kruntimes.local.apiserver.schema.fieldpaths import normalized
from kruntimes.local.apiserver.schema.structural import ABSENT, Json, Node, read
from kruntimes.local.apiserver.schema.validation import validate
from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.values import compact, quote, same

TYPES = ("array", "boolean", "integer", "number", "object", "string")
MAX_DEPTH = 64
"""Nesting of a schema."""
REASONS = (faults.DUPLICATE, faults.FORBIDDEN, faults.INVALID, faults.REQUIRED)
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_ROOT_WITH_STATUS = ("description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum",
                     "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems",
                     "multipleOf", "required", "items", "properties")  # fmt: skip
_NOT_NESTED = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
}


def schema_faults(raw: Any, path: str, *, status: bool) -> list[Cause]:
    """What is wrong with the schema of a version. status: whether it has the status subresource."""
    if not isinstance(raw, dict):
        return [faults.invalid(path, raw, "must be an object")]
    causes: list[Cause] = []
    if raw.get("nullable"):
        causes.append(faults.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    causes += _structure(raw, path, "root", 0)
    if causes:
        return causes
    node = read(raw)
    return _defaults(node, path) + _rules(node, raw, path, root=True)


def _structure(raw: Json, path: str, place: str, depth: int) -> list[Cause]:
    """Types are given where they must be, nothing unsupported is used. place: root, items, field or additional."""
    if depth > MAX_DEPTH:
        return [faults.invalid(path, "", f"must not be nested deeper than {MAX_DEPTH}")]
    causes: list[Cause] = []
    type_, free = raw.get("type") or "", bool(raw.get("x-kubernetes-int-or-string"))
    if type_ and type_ not in TYPES:
        causes.append(faults.not_supported(f"{path}.type", type_, TYPES))
    if place == "root" and type_ != "object":
        if type_:
            causes.append(faults.invalid(f"{path}.type", type_, "must be object at the root"))
        else:
            causes.append(faults.required(f"{path}.type", "must not be empty at the root"))
    elif not type_ and not free and not raw.get("x-kubernetes-preserve-unknown-fields"):
        what = "array items" if place == "items" else "object fields"
        causes.append(faults.required(f"{path}.type", f"must not be empty for specified {what}"))
    causes += [faults.forbidden(f"{path}.{key}", f"{key} is not supported") for key in _UNSUPPORTED if raw.get(key)]
    if raw.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        causes.append(faults.forbidden(f"{path}.uniqueItems", why))
    causes += _lists(raw, path)
    if raw.get("pattern"):
        try:
            compiled(raw["pattern"])
        except BadPattern as bad:
            why = f"must be a valid regular expression, but isn't: {bad}"
            causes.append(faults.invalid(f"{path}.pattern", raw["pattern"], why))
    properties, additional, items = raw.get("properties"), raw.get("additionalProperties"), raw.get("items")
    if properties and isinstance(additional, dict):
        why = "additionalProperties and properties are mutual exclusive"
        causes.append(faults.forbidden(f"{path}.additionalProperties", why))
    for name, sub in (properties or {}).items():
        causes += _structure(sub, f"{path}.properties[{name}]", "field", depth + 1)
    if isinstance(additional, dict):
        causes += _structure(additional, f"{path}.additionalProperties", "additional", depth + 1)
    if isinstance(items, list):
        causes.append(faults.forbidden(f"{path}.items", "items must be a schema object and not an array"))
    elif isinstance(items, dict):
        causes += _structure(items, f"{path}.items", "items", depth + 1)
    elif type_ == "array":
        causes.append(faults.required(f"{path}.items", "must be specified"))
    for key in ("allOf", "anyOf", "oneOf"):
        for i, sub in enumerate(raw.get(key) or ()):
            causes += _nested(sub, f"{path}.{key}[{i}]", free=free)
    if isinstance(raw.get("not"), dict):
        causes += _nested(raw["not"], f"{path}.not", free=False)
    return causes


def _nested(raw: Json, path: str, *, free: bool) -> list[Cause]:
    """Within allOf and the like only bounds may stand, and the two types of an int-or-string."""
    causes = [
        faults.forbidden(f"{path}.{key}", why)
        for key, why in _NOT_NESTED.items()
        if raw.get(key) not in (None, "", False, [], {}) and not (key == "type" and free)
    ]
    for name, sub in (raw.get("properties") or {}).items():
        causes += _nested(sub, f"{path}.properties[{name}]", free=False)
    if isinstance(raw.get("items"), dict):
        causes += _nested(raw["items"], f"{path}.items", free=False)
    for key in ("allOf", "anyOf", "oneOf"):
        for i, sub in enumerate(raw.get(key) or ()):
            causes += _nested(sub, f"{path}.{key}[{i}]", free=free and key == "anyOf")
    return causes


def _lists(raw: Json, path: str) -> list[Cause]:
    type_, list_type = raw.get("type") or "", raw.get("x-kubernetes-list-type")
    keys, map_type = raw.get("x-kubernetes-list-map-keys") or [], raw.get("x-kubernetes-map-type")
    causes: list[Cause] = []
    for key, value, needed, known in (
        ("x-kubernetes-map-type", map_type, "object", ("atomic", "granular")),
        ("x-kubernetes-list-type", list_type, "array", ("atomic", "set", "map")),
    ):
        if value is None:
            continue
        if type_ != needed:
            why = f"must be {needed} if {key} is specified"
            causes.append(faults.invalid(f"{path}.type", type_, why) if type_ else faults.required(f"{path}.type", why))
        if value not in known:
            causes.append(faults.not_supported(f"{path}.{key}", value, known))
    if keys and list_type != "map":
        why, at = "must be map if x-kubernetes-list-map-keys is non-empty", f"{path}.x-kubernetes-list-type"
        causes.append(faults.required(at, why) if list_type is None else faults.invalid(at, list_type, why))
    if list_type != "map":
        return causes
    at = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        causes.append(faults.required(at, "must not be empty if x-kubernetes-list-type is map"))
    items = raw.get("items")
    if not isinstance(items, dict):
        return [*causes, faults.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")]
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        causes.append(faults.invalid(f"{path}.items.type", items.get("type") or "", why))
    properties, required = items.get("properties") or {}, items.get("required") or []
    for key in keys:
        if key not in properties:
            causes.append(faults.invalid(at, keys, "entries must all be names of item properties"))
        elif "default" not in properties[key] and key not in required:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            causes.append(faults.required(f"{path}.items.properties[{key}].default", why))
    return causes


def _defaults(node: Node, path: str) -> list[Cause]:
    """Defaults are valid by the schema that they stand in, and hold nothing unknown."""
    causes: list[Cause] = []
    for name, sub in node.properties.items():
        at = f"{path}.properties[{name}]"
        if sub.default is not ABSENT:
            pruned = copy.deepcopy(sub.default)
            filling.prune_nulls(pruned, sub)
            filling.fill(pruned, sub)
            filled = copy.deepcopy(pruned)
            filling.prune_below(pruned, sub)
            if not same(pruned, filled):
                causes.append(faults.invalid(f"{at}.default", sub.default, "must not have unknown fields"))
            causes += [
                Cause(f"{at}.default{cause.field.removeprefix('default')}", cause.reason, cause.message)
                for cause in validate(pruned, sub, base="default")
            ]
        causes += _defaults(sub, at)
    if node.items is not None:
        causes += _defaults(node.items, f"{path}.items")
    if isinstance(node.additional, Node):
        causes += _defaults(node.additional, f"{path}.additionalProperties")
    return causes


def _rules(node: Node, raw: Json, path: str, *, root: bool = False) -> list[Cause]:
    """Every rule compiles."""
    causes: list[Cause] = []
    shown = with_type_fields(node) if root else seen(node)
    for i, rule in enumerate(node.rules):
        causes += _rule(shown, rule, f"{path}.x-kubernetes-validations[{i}]")
    for name, sub in node.properties.items():
        causes += _rules(sub, raw["properties"][name], f"{path}.properties[{name}]")
    if node.items is not None:
        causes += _rules(node.items, raw["items"], f"{path}.items")
    if isinstance(node.additional, Node):
        causes += _rules(node.additional, raw["additionalProperties"], f"{path}.additionalProperties")
    for i, sub in enumerate(node.all_of):
        causes += _rules(sub, raw["allOf"][i], f"{path}.allOf[{i}]")
    return causes


def _written(raw: Json) -> faults.Written:
    """A rule as refusals show it."""
    texts = {key.capitalize(): raw.get(key) or "" for key in ("rule", "message")}
    texts |= {"MessageExpression": raw.get("messageExpression") or "", "Reason": raw.get("reason")}
    texts |= {"FieldPath": raw.get("fieldPath") or "", "OptionalOldSelf": raw.get("optionalOldSelf")}
    return faults.Written("{" + ",".join(f"{quote(key)}:{compact(value)}" for key, value in texts.items()) + "}")


def _rule(node: Node, raw: Json, at: str) -> list[Cause]:
    causes: list[Cause] = []
    text, message = raw.get("rule") or "", raw.get("message")
    if not text.strip():
        return [faults.required(f"{at}.rule", "rule is not specified")]
    if message is not None and not message.strip():
        causes.append(faults.invalid(f"{at}.message", message, "must be non-empty if specified"))
    elif message and "\n" in message.strip():
        causes.append(faults.invalid(f"{at}.message", message, "must not contain line breaks"))
    elif not message and "\n" in text.strip() and not raw.get("messageExpression"):
        causes.append(faults.required(f"{at}.message", "message must be specified if rule contains line breaks"))
    reason = raw.get("reason")
    if reason is not None and reason not in REASONS:
        causes.append(faults.not_supported(f"{at}.reason", reason, REASONS))
    where = raw.get("fieldPath")
    if where is not None and not where.strip():
        causes.append(faults.invalid(f"{at}.fieldPath", where, "must be non-empty if specified"))
    elif where is not None and "\n" in where:
        causes.append(faults.invalid(f"{at}.fieldPath", where, "must not contain line breaks"))
    elif where is not None and normalized(where, node) is None:
        causes.append(faults.invalid(f"{at}.fieldPath", where, "must be a valid path"))
    try:
        rule = compile_rule(node, raw)
    except CompileError as bad:
        key = "messageExpression" if bad.source != text else "rule"
        kind = "messageExpression compilation" if bad.source != text else "compilation"
        why = str(bad) if isinstance(bad, WrongResult) else f"{kind} failed: {bad}"
        return [*causes, faults.invalid(f"{at}.{key}", _written(raw), why)]
    if rule.optional_old and not rule.transition:
        why = "may not be set if oldSelf is not used in rule"
        causes.append(faults.invalid(f"{at}.optionalOldSelf", True, why))
    return causes
