"""The rules of `metadata`, the same for every kind: what the server fills in, what may stand there, what may change.

Pure. Wording as of `k8s.io/apimachinery`'s validation, since clients show it to people.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from kruntimes.local.apiserver.status import Cause

Json = dict[str, Any]

MAX_NAME = 253
MAX_LABEL = 63
MAX_GENERATED_BASE = 58
"""Characters of a generateName that are kept: five more follow, and the whole may serve as a label."""
MAX_ANNOTATIONS_BYTES = 256 * 1024
SUFFIX_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What generateName draws from: no vowels, so that no words come out."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_QUALIFIED})?"

SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

_FULL = {
    "subdomain": (re.compile(_SUBDOMAIN), MAX_NAME, SUBDOMAIN_RULE),
    "label": (re.compile(_LABEL), MAX_LABEL, LABEL_RULE),
    "label1035": (re.compile(_LABEL_1035), MAX_LABEL, LABEL_1035_RULE),
}


def quoted(value: object) -> str:
    """A value as messages write it."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return json.dumps(value, separators=(",", ":"))


def invalid_value(field: str, value: object, why: str) -> Cause:
    """`Invalid value`."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {why}")


def required(field: str, why: str = "") -> Cause:
    """`Required value`."""
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def not_supported(field: str, value: object, supported: list[str]) -> Cause:
    """`Unsupported value`."""
    listed = ", ".join(quoted(s) for s in supported)
    said = f"Unsupported value: {quoted(value)}: supported values: {listed}"
    return Cause(field, "FieldValueNotSupported", said)


def forbidden_value(field: str, why: str) -> Cause:
    """`Forbidden`."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def name_faults(name: str, rule: str) -> list[str]:
    """What is wrong with a name by one of the rules of `Strategy.names`."""
    if rule == "path":
        if name in (".", ".."):
            return [f"may not be '{name}'"]
        return [f"may not contain '{c}'" for c in ("/", "%") if c in name]
    pattern, longest, text = _FULL[rule]
    faults = [f"must be no more than {longest} characters"] if len(name) > longest else []
    if rule == "label" and "." in name and re.fullmatch(_SUBDOMAIN, name):
        return [*faults, "must not contain dots"]
    return faults if pattern.fullmatch(name) else [*faults, text]


def generated(base: str, suffix: Callable[[], str]) -> str:
    """A name made of a generateName."""
    return base[:MAX_GENERATED_BASE] + suffix()


def validate(meta: Json, *, rule: str, any_finalizer: bool) -> list[Cause]:
    """Faults of the metadata of an object as it is about to be stored. The rest: see `Strategy`."""
    causes: list[Cause] = []
    prefix, name = meta.get("generateName", ""), meta.get("name", "")
    if prefix and rule == "path":
        causes += [invalid_value("metadata.generateName", prefix, f) for f in name_faults(prefix, rule)]
    elif prefix:
        # What is generated ends in a letter or digit: a trailing hyphen or dot of the prefix is no fault.
        probe = re.sub(r"[-.]$", "a", prefix)
        causes += [invalid_value("metadata.generateName", prefix, f) for f in name_faults(probe, rule)]
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        causes += [invalid_value("metadata.name", name, f) for f in name_faults(name, rule)]
    causes += label_faults(meta.get("labels") or {}, "metadata.labels")
    causes += annotation_faults(meta.get("annotations") or {}, "metadata.annotations")
    causes += _owners(meta.get("ownerReferences") or [])
    for i, finalizer in enumerate(meta.get("finalizers") or []):
        causes += [invalid_value("metadata.finalizers", finalizer, f) for f in key_faults(finalizer)]
        if not any_finalizer and not key_faults(finalizer) and unqualified(finalizer):
            why = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid_value(f"metadata.finalizers[{i}]", finalizer, why))
    return causes


def unqualified(finalizer: str) -> bool:
    """Whether a finalizer is neither a standard one nor has a domain."""
    return "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes")


def finalizer_warnings(meta: Json) -> list[str]:
    """What is said about finalizers without a domain where they are taken."""
    return [
        f"metadata.finalizers: {quoted(f)}: prefer a domain-qualified finalizer name to avoid accidental conflicts "
        "with other finalizer writers"
        for f in meta.get("finalizers") or []
        if unqualified(f)
    ]


def key_faults(key: str) -> list[str]:
    """What is wrong with the key of a label or annotation."""
    prefix, slash, name = key.rpartition("/")
    faults: list[str] = []
    if slash:
        if not prefix:
            faults.append("prefix part must be non-empty")
        elif "/" in prefix:
            return [
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
                "with an alphanumeric character with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ]
        elif not re.fullmatch(_SUBDOMAIN, prefix):
            faults.append(f"prefix part {SUBDOMAIN_RULE}")
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > MAX_LABEL:
        faults.append(f"name part must be no more than {MAX_LABEL} characters")
    if not re.fullmatch(_QUALIFIED, name):
        faults.append(QUALIFIED_RULE)
    return faults


def label_faults(labels: Json, at: str) -> list[Cause]:
    """What is wrong with labels, or with a selector by equality, at the path *at*."""
    causes: list[Cause] = []
    for key in sorted(labels):
        causes += [invalid_value(at, key, f) for f in key_faults(key)]
        value = labels[key]
        if len(value) > MAX_LABEL:
            causes.append(invalid_value(at, value, f"must be no more than {MAX_LABEL} characters"))
        if not re.fullmatch(_LABEL_VALUE, value):
            causes.append(invalid_value(at, value, LABEL_VALUE_RULE))
    return causes


def annotation_faults(annotations: Json, at: str) -> list[Cause]:
    """What is wrong with annotations at the path *at*."""
    causes: list[Cause] = []
    for key in sorted(annotations):
        causes += [invalid_value(at, key, f) for f in key_faults(key.lower())]
    size = sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items())
    if size > MAX_ANNOTATIONS_BYTES:
        said = f"Too long: may not be more than {MAX_ANNOTATIONS_BYTES} bytes"
        causes.append(Cause(at, "FieldValueTooLong", said))
    return causes


def _owners(owners: list[Json]) -> list[Cause]:
    causes: list[Cause] = []
    controllers = [o.get("name", "") for o in owners if o.get("controller")]
    for i, owner in enumerate(owners):
        at = f"metadata.ownerReferences[{i}]"
        if not owner.get("apiVersion"):
            causes.append(invalid_value(f"{at}.apiVersion", "", "version must not be empty"))
        missing = [key for key in ("kind", "name", "uid") if not owner.get(key)]
        causes += [required(f"{at}.{key}", "must not be empty") for key in missing]
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            why = "Invalid value: /v1, Kind=Event is disallowed from being an owner"
            causes.append(Cause(at, "FieldValueInvalid", why))
    if len(controllers) > 1:
        why = (
            "Only one reference can have Controller set to true. Found "
            f'"true" in references for {controllers[0]} and {controllers[1]}'
        )
        causes.append(Cause("metadata.ownerReferences", "FieldValueInvalid", f"Invalid value: {why}"))
    return causes


KEPT = ("creationTimestamp", "generation")
"""What an update does not change, whatever it says."""
_IMMUTABLE = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_OMITTED = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields", "generateName")
"""What is not there where it is empty."""


def tidy(meta: Json) -> None:
    """Takes away what says nothing, in place."""
    for key in [k for k, v in meta.items() if v is None or k == "selfLink" or (k in _OMITTED and not v)]:
        del meta[key]


def carry(meta: Json, old: Json) -> None:
    """Brings what the server keeps from *old* into the metadata of an update, in place."""
    tidy(meta)
    for key in KEPT:
        if key in old:
            meta[key] = old[key]
        else:
            meta.pop(key, None)
    for key in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if key in old:
            meta.setdefault(key, old[key])


def validate_update(meta: Json, old: Json) -> list[Cause]:
    """Faults of the change of metadata."""
    causes: list[Cause] = []
    if "deletionTimestamp" in old:
        added = [f for f in meta.get("finalizers") or [] if f not in (old.get("finalizers") or [])]
        if added:
            listed = ", ".join(quoted(f) for f in added)
            why = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            causes.append(forbidden_value("metadata.finalizers", why))
    changed = [key for key in _IMMUTABLE if meta.get(key) != old.get(key)]
    return causes + [invalid_value(f"metadata.{key}", meta.get(key), "field is immutable") for key in changed]
