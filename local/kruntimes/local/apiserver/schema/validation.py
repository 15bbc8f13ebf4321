"""The faults of a value by its schema, in the API server's words. Pure.

On an update, what has not changed is not found fault with again (a schema may have become stricter): list items are
told apart by their keys in a list of type map, and by nothing else.
"""

import math
from typing import Any

from kruntimes.local.apiserver.regex import BadPattern, compiled
from kruntimes.local.apiserver.schema import faults
from kruntimes.local.apiserver.schema.formats import FORMATS
from kruntimes.local.apiserver.schema.structural import ABSENT, Bounds, Node, child
from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.values import compact, number, quote, same, type_of

NO_PATH = "<nil>"
"""What the server calls the path of a fault that it cannot place."""
INT32, INT64 = 1 << 31, 1 << 63
EXACT = 1 << 53
"""From here on a float is no whole number to JSON."""


def validate(value: Any, node: Node, *, base: str = "", old: Any = ABSENT) -> list[Cause]:
    """All faults of *value*. base: the path of the value itself; messages name fields below it.

    old: the value that is being replaced; faults of what equals it are passed over.
    """
    found = _Validator(base).check(value, node, "", ABSENT)
    return _Validator(base).check(value, node, "", old) if found and old is not ABSENT else found


class _Validator:
    """One pass. base: where paths start."""

    def __init__(self, base: str) -> None:
        self._base = base

    def _at(self, path: str) -> str:
        if not path:
            return self._base or NO_PATH
        return child(self._base, path)

    def check(self, value: Any, node: Node, path: str, old: Any) -> list[Cause]:
        """The faults of one value and of all below it."""
        if old is not ABSENT and same(value, old):
            return []
        if isinstance(value, int) and type_of(value) == "number":
            value = float(value)  # beyond 64 bits
        causes = self._type(value, node, path)
        if value is None:
            return causes + self._enum(value, node.bounds, path)
        causes += self._composed(value, node, path)
        if isinstance(value, str):
            causes += self._string(value, node.bounds, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            causes += self._number(value, node, path)
        elif isinstance(value, list):
            causes += self._list(value, node, path, old)
        causes += self._enum(value, node.bounds, path)
        if isinstance(value, dict):
            causes += self._object(value, node, path, old)
        return causes

    # ------------------------------------------------------------ one value

    def _type(self, value: Any, node: Node, path: str) -> list[Cause]:
        types, is_ = node.types, type_of(value)
        wanted = ",".join(types)
        if value is None:
            return [self._wrong_type(path, wanted, "null")] if types and not node.nullable else []
        if not types or is_ in types:
            return []
        if is_ == "integer" and "number" in types:
            return []
        if is_ == "number" and "integer" in types and float(value).is_integer() and abs(value) < EXACT:
            return []
        numeric = "number" in types or "integer" in types
        if node.bounds.format and is_ not in ("string", "array"):
            return [
                self._wrong_type(path, node.bounds.format_text, {"integer": "int64", "number": "float64"}.get(is_, ""))
            ]
        if node.bounds.format and not numeric:
            return []
        return [self._wrong_type(path, wanted, is_)]

    def _wrong_type(self, path: str, wanted: str, found: str) -> Cause:
        why = f"{path} in body must be of type {wanted}: {quote(found)}"
        return faults.type_invalid(self._at(path), found, why)

    def _enum(self, value: Any, bounds: Bounds, path: str) -> list[Cause]:
        if not bounds.enum or any(same(value, allowed) for allowed in bounds.enum):
            return []
        supported = [allowed if isinstance(allowed, str) else compact(allowed) for allowed in bounds.enum]
        return [faults.not_supported(self._at(path), value, supported)]

    def _string(self, value: str, bounds: Bounds, path: str) -> list[Cause]:
        causes: list[Cause] = []
        if bounds.max_length is not None and len(value) > bounds.max_length:
            causes.append(faults.too_long(self._at(path), bounds.max_length))
        elif bounds.min_length is not None and len(value) < bounds.min_length:
            causes.append(self._bad(path, value, f"should be at least {bounds.min_length} chars long"))
        elif bounds.pattern:
            try:
                fits, said = compiled(bounds.pattern).search(value) is not None, bounds.pattern
            except BadPattern as bad:
                fits, said = False, f"{bounds.pattern}, but pattern is invalid: {bad}"
            if not fits:
                causes.append(self._bad(path, value, f"should match '{said}'"))
        if bounds.format in FORMATS and not FORMATS[bounds.format](value):
            why = f"{path} in body must be of type {bounds.format_text}: {quote(value)}"
            causes.append(faults.type_invalid(self._at(path), value, why))
        return causes

    def _number(self, value: float, node: Node, path: str) -> list[Cause]:
        bounds, causes = node.bounds, []
        if node.type == "integer":
            limit = INT32 if bounds.format == "int32" else INT64
            if not -limit <= value < limit or not float(value).is_integer():
                kind = f"with format {bounds.format}" if bounds.format else "(default format)"
                why = f"Checked value must be of type integer {kind} in {path}"
                causes.append(faults.invalid(self._base or NO_PATH, "", why))
        if bounds.multiple_of is not None:
            # As there: for a whole number the factor is cut to a whole number, too.
            factor = math.trunc(bounds.multiple_of) if isinstance(value, int) else bounds.multiple_of
            if factor <= 0:
                why = f"factor MultipleOf declared for {path} must be positive: {number(factor)}"
                causes.append(faults.invalid(self._at(path), factor, why))
            elif not _multiple(value, factor):
                causes.append(self._bad(path, value, f"should be a multiple of {number(factor)}"))
        if bounds.maximum is not None:
            most = math.trunc(bounds.maximum) if isinstance(value, int) else bounds.maximum
            if value > most or (bounds.exclusive_maximum and value == most):
                word = "less than" if bounds.exclusive_maximum else "less than or equal to"
                causes.append(self._bad(path, value, f"should be {word} {number(most)}"))
        if bounds.minimum is not None:
            least = math.trunc(bounds.minimum) if isinstance(value, int) else bounds.minimum
            if value < least or (bounds.exclusive_minimum and value == least):
                word = "greater than" if bounds.exclusive_minimum else "greater than or equal to"
                causes.append(self._bad(path, value, f"should be {word} {number(least)}"))
        return causes

    def _bad(self, path: str, value: Any, why: str) -> Cause:
        return faults.invalid(self._at(path), value, f"{path} in body {why}")

    # ------------------------------------------------------------ containers

    def _list(self, value: list[Any], node: Node, path: str, old: Any) -> list[Cause]:
        bounds, causes = node.bounds, []
        if node.items is not None:
            held = _correlated(node, old)
            for i, item in enumerate(value):
                key = node.key_of(item) if held else None
                before = held.get(key, ABSENT) if key is not None else ABSENT
                causes += self.check(item, node.items, f"{path}[{i}]", before)
        if bounds.min_items is not None and len(value) < bounds.min_items:
            causes.append(self._bad(path, len(value), f"should have at least {bounds.min_items} items"))
        if bounds.max_items is not None and len(value) > bounds.max_items:
            causes.append(faults.too_many(self._at(path), len(value), bounds.max_items))
        if bounds.unique_items and any(same(a, b) for i, a in enumerate(value) for b in value[:i]):
            causes.append(faults.invalid(self._at(path), "", f"{path} in body shouldn't contain duplicates"))
        return causes

    def _object(self, value: dict[str, Any], node: Node, path: str, old: Any) -> list[Cause]:
        bounds, causes = node.bounds, []
        if bounds.min_properties is not None and len(value) < bounds.min_properties:
            causes.append(self._bad(path, len(value), f"should have at least {bounds.min_properties} properties"))
        if bounds.max_properties is not None and len(value) > bounds.max_properties:
            causes.append(faults.too_many(self._at(path), len(value), bounds.max_properties))
        before = old if isinstance(old, dict) else {}
        for name, member in value.items():
            sub = node.field(name)
            if sub is not None:
                causes += self.check(member, sub, child(path, name), before.get(name, ABSENT))
            elif node.additional is False:
                causes.append(faults.invalid(self._at(path), name, f"{path}.{name} in body is a forbidden property"))
        causes += [faults.required(self._at(child(path, name))) for name in bounds.required if name not in value]
        return causes

    # ------------------------------------------------------------ combinations

    def _composed(self, value: Any, node: Node, path: str) -> list[Cause]:
        causes: list[Cause] = []
        if node.any_of:
            tried = [self.check(value, sub, path, ABSENT) for sub in node.any_of]
            if all(tried):
                causes.append(self._unplaced(f"{quote(path)} must validate at least one schema (anyOf)"))
                best = min(tried, key=len)
                causes += best
        if node.one_of:
            tried = [self.check(value, sub, path, ABSENT) for sub in node.one_of]
            valid = sum(not found for found in tried)
            if valid != 1:
                said = f"Found {valid} valid alternatives" if valid else "Found none valid"
                causes.append(self._unplaced(f"{quote(path)} must validate one and only one schema (oneOf). {said}"))
                best = [] if valid else min(tried, key=len)
                causes += best
        if node.all_of:
            tried = [self.check(value, sub, path, ABSENT) for sub in node.all_of]
            for found in tried:
                causes += found
            if any(tried):
                said = ". None validated" if all(tried) else ""
                causes.append(self._unplaced(f"{quote(path)} must validate all the schemas (allOf){said}"))
        if node.none_of is not None and not self.check(value, node.none_of, path, ABSENT):
            causes.append(self._unplaced(f"{quote(path)} must not validate the schema (not)"))
        return causes

    def _unplaced(self, why: str) -> Cause:
        return faults.invalid(self._base or NO_PATH, "", why)


def _multiple(value: float, factor: float) -> bool:
    if isinstance(value, int):
        return value % factor == 0
    quotient = value / factor
    return math.isfinite(quotient) and math.isclose(quotient, round(quotient), rel_tol=1e-9, abs_tol=1e-9)


def _correlated(node: Node, old: Any) -> dict[tuple[Any, ...], Any]:
    """The items that are replaced, by key."""
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    keyed = ((node.key_of(item), item) for item in old)
    return {key: item for key, item in keyed if key is not None}
