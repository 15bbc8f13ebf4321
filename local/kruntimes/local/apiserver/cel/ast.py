"""The syntax tree of an expression. Pure. Macros are nodes of their own: they need no expansion to be evaluated."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Expr:
    """position: where it stands in the source, for messages."""

    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(Expr):
    """A constant; type names its CEL type, since an int and a uint are both whole."""

    value: Any
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ident(Expr):
    """A variable, or the name of a type."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Expr):
    """`operand.field`; test: `has(operand.field)`; optional: `operand.?field`."""

    operand: Expr
    field: str
    test: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Expr):
    """A function, a method (with target) or an operator (named as in `_+_`)."""

    function: str
    args: tuple[Expr, ...]
    target: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeList(Expr):
    """`[a, ?b]`; optional: positions whose item may be left out."""

    items: tuple[Expr, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeMap(Expr):
    """`{a: b, ?c: d}`."""

    entries: tuple[tuple[Expr, Expr], ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold(Expr):
    """A macro over a list or map: all, exists, exists_one, filter, map, transformList, transformMap, transformMapEntry.

    names: one or two loop variables. condition: of a filtering form; body: what each step makes or asks.
    """

    kind: str
    over: Expr
    names: tuple[str, ...]
    body: Expr
    condition: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalMap(Expr):
    """`target.optMap(name, body)`; flat: the body is an optional itself."""

    target: Expr
    name: str
    body: Expr
    flat: bool
