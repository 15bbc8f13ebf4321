"""Static types of expressions, and how they fit. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Type:
    """A type by name, with its parameters: list(A), map(K, V), optional(T), type(T); `dyn` may be anything.

    A name in capitals, such as `A`, is a parameter of a function's signature.
    """

    name: str
    args: tuple["Type", ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.args))
        if self.name == "null_type":
            return "null"
        return f"{self.name}({inner})" if inner else self.name


@dataclass(frozen=True, slots=True, eq=False)
class ObjectType(Type):
    """An object of a schema: its fields, under the names that expressions use. Two are the same only if identical."""

    fields: Mapping[str, Type] = field(default_factory=dict)
    raw_names: Mapping[str, str] = field(default_factory=dict)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return "object"


DYN, BOOL, INT, UINT, DOUBLE = Type("dyn"), Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null_type")
DURATION, TIMESTAMP = Type("google.protobuf.Duration"), Type("google.protobuf.Timestamp")
A, B = Type("A"), Type("B")
QUANTITY, URL, IP, CIDR = Type("kubernetes.Quantity"), Type("kubernetes.URL"), Type("net.IP"), Type("net.CIDR")
FORMAT, SEMVER = Type("kubernetes.NamedFormat"), Type("kubernetes.Semver")
NAMED = {t.name: t for t in (DYN, BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, DURATION, TIMESTAMP)}
"""The types that an expression may name."""


def list_of(item: Type) -> Type:
    """list(item)."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """map(key, value)."""
    return Type("map", (key, value))


def optional_of(inner: Type) -> Type:
    """optional(inner)."""
    return Type("optional_type", (inner,))


def type_of(inner: Type) -> Type:
    """type(inner)."""
    return Type("type", (inner,))


Bindings = dict[str, Type]


def fits(wanted: Type, found: Type, bound: Bindings) -> bool:
    """Whether a value of type *found* may stand for *wanted*; binds the parameters of *wanted*."""
    if len(wanted.name) == 1:
        held = bound.get(wanted.name)
        if held is None or held == DYN:
            bound[wanted.name] = found
            return True
        if found == DYN:
            return True
        if fits(held, found, bound):
            return True
        if fits(found, held, {}):
            bound[wanted.name] = found
            return True
        return False
    if DYN in (wanted, found):
        return True
    if NULL in (wanted, found):
        other = found if wanted == NULL else wanted
        return other in (NULL, DURATION, TIMESTAMP) or isinstance(other, ObjectType) or other.name == "optional_type"
    if isinstance(wanted, ObjectType) or isinstance(found, ObjectType):
        return wanted is found
    if wanted.name == found.name == "type":
        return True
    if wanted.name != found.name or len(wanted.args) != len(found.args):
        return False
    return all(fits(w, f, bound) for w, f in zip(wanted.args, found.args, strict=True))


def filled(pattern: Type, bound: Bindings) -> Type:
    """*pattern* with its parameters put in; those that nothing bound are dyn."""
    if len(pattern.name) == 1:
        return bound.get(pattern.name, DYN)
    if not pattern.args or isinstance(pattern, ObjectType):
        return pattern
    return Type(pattern.name, tuple(filled(arg, bound) for arg in pattern.args))


def joined(a: Type, b: Type) -> Type | None:
    """The type that takes both, or None."""
    if a == b or (fits(a, b, {}) and a != NULL):
        return a
    return b if fits(b, a, {}) else None
