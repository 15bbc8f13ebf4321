"""Faults of an object in the words of the API server: one constructor for each reason. Pure.

A field path such as `spec.env[0].name` is empty where the whole object is meant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.values import quote, shown

REQUIRED, INVALID, TYPE_INVALID = "FieldValueRequired", "FieldValueInvalid", "FieldValueTypeInvalid"
NOT_SUPPORTED, DUPLICATE, FORBIDDEN = "FieldValueNotSupported", "FieldValueDuplicate", "FieldValueForbidden"
TOO_LONG, TOO_MANY = "FieldValueTooLong", "FieldValueTooMany"
BLOCKING = frozenset({REQUIRED, TYPE_INVALID, NOT_SUPPORTED, TOO_LONG, TOO_MANY})
"""With one of these, rules in CEL are not evaluated: they may rely on what is broken."""


class _Omitted:
    """No value is written."""


OMITTED = _Omitted()


@dataclass(frozen=True, slots=True)
class Written:
    """A value that is written as *text*."""

    text: str


def _said(word: str, value: Any, why: str) -> str:
    parts = [word] if value is OMITTED else [word, value.text if isinstance(value, Written) else shown(value)]
    return ": ".join([*parts, why] if why else parts)


def required(field: str, why: str = "") -> Cause:
    """The field must be there."""
    return Cause(field, REQUIRED, _said("Required value", OMITTED, why))


def invalid(field: str, value: Any, why: str) -> Cause:
    """The value breaks a rule."""
    return Cause(field, INVALID, _said("Invalid value", value, why))


def type_invalid(field: str, value: Any, why: str) -> Cause:
    """The value is of the wrong type."""
    return Cause(field, TYPE_INVALID, _said("Invalid value", value, why))


def not_supported(field: str, value: Any, supported: Sequence[str]) -> Cause:
    """The value is none of an enumeration."""
    why = f"supported values: {', '.join(map(quote, supported))}" if supported else ""
    return Cause(field, NOT_SUPPORTED, _said("Unsupported value", value, why))


def duplicate(field: str, value: Any) -> Cause:
    """A list that is a set or a map has an item twice."""
    return Cause(field, DUPLICATE, _said("Duplicate value", value, ""))


def forbidden(field: str, why: str) -> Cause:
    """The field may not be there."""
    return Cause(field, FORBIDDEN, _said("Forbidden", OMITTED, why))


def too_long(field: str, longest: int) -> Cause:
    """The text is longer than *longest* characters (the wording says bytes)."""
    unit = "byte" if longest == 1 else "bytes"
    return Cause(field, TOO_LONG, f"Too long: may not be more than {longest} {unit}")


def too_many(field: str, count: int, most: int) -> Cause:
    """A list or an object has more than *most* entries."""
    unit = "item" if most == 1 else "items"
    return Cause(field, TOO_MANY, f"Too many: {count}: must have at most {most} {unit}")
