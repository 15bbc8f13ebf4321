"""Macros over lists and maps: all, exists, exists_one, filter, map, sortBy, transformList, transformMap(Entry).

Pure.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kruntimes.local.apiserver.cel import types
from kruntimes.local.apiserver.cel.ast import Fold
from kruntimes.local.apiserver.cel.errors import EvaluationError, NoOverload
from kruntimes.local.apiserver.cel.program import Checked, Frame, Run
from kruntimes.local.apiserver.cel.texts import in_order
from kruntimes.local.apiserver.cel.types import BOOL, DYN, Type
from kruntimes.local.apiserver.cel.values import LISTS, MAPS

if TYPE_CHECKING:
    from kruntimes.local.apiserver.cel.compiler import Compiler

_ASKING = ("all", "exists", "exists_one", "filter")


def fold(compiler: "Compiler", expr: Fold) -> Checked:
    """The type and closure of a macro."""
    over = compiler.visit(expr.over)
    key, value = _parts(compiler, over.type, expr)
    two = len(expr.names) == 2
    loop = key if over.type.name == "map" and not two else value
    bound = ((expr.names[0], key), (expr.names[1], value)) if two else ((expr.names[0], loop),)
    conditions: list[Checked] = []

    def inside() -> Checked:
        if expr.condition is not None:
            conditions.append(compiler.visit(expr.condition))
        return compiler.visit(expr.body)

    slots, body = compiler.bind(bound, inside)
    asked = [(c, expr.condition) for c in conditions] + ([(body, expr.body)] if expr.kind in _ASKING else [])
    for checked, at in asked:
        if checked.type not in (BOOL, DYN) and at is not None:
            raise compiler.bad(f"expected type 'bool' but found '{checked.type}'", at)
    steps = _Steps(over.run, slots, conditions[0].run if conditions else None)
    match expr.kind:
        case "all" | "exists":
            return Checked(type=BOOL, run=_quantified(steps, body.run, by=expr.kind == "exists"))
        case "exists_one":
            return Checked(type=BOOL, run=_exactly_one(steps, body.run))
        case "filter":
            return Checked(type=types.list_of(loop), run=_filtered(steps, body.run))
        case "sortBy":
            return Checked(type=types.list_of(loop), run=_ordered(steps, body.run))
        case "transformMap":
            return Checked(type=types.map_of(key, body.type), run=_mapped(steps, body.run))
        case "transformMapEntry":
            entry = body.type if body.type.name == "map" else types.map_of(DYN, DYN)
            return Checked(type=entry, run=_entries(steps, body.run))
    return Checked(type=types.list_of(body.type), run=_made(steps, body.run))


def _parts(compiler: "Compiler", over: Type, expr: Fold) -> tuple[Type, Type]:
    """The types of keys (or positions) and of values."""
    if over.name == "list":
        return types.INT, over.args[0]
    if over.name == "map":
        return over.args[0], over.args[1]
    if over == DYN:
        return DYN, DYN
    raise compiler.bad(
        f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)", expr.over
    )


class _Steps:
    """The steps of one macro: sets the loop variables, pays, and leaves out what the condition does not want."""

    def __init__(self, over: Run, slots: list[int], condition: Run | None) -> None:
        self._over, self._slots, self._condition = over, slots, condition

    def __call__(self, f: Frame) -> Iterator[tuple[Any, Any]]:
        """(key or position, value or the one loop variable), step by step."""
        held, slots, condition = self._over(f), self._slots, self._condition
        if not isinstance(held, LISTS + MAPS):
            raise NoOverload
        keyed = isinstance(held, MAPS)
        for i, item in enumerate(held):
            f.spend(1)
            key = item if keyed else i
            if len(slots) == 2:
                value = held[item] if keyed else item
                f.slots[slots[0]], f.slots[slots[1]] = key, value
            else:
                value = item
                f.slots[slots[0]] = item
            if condition is None or _sure(condition(f)):
                yield key, value


def _sure(value: Any) -> bool:
    if not isinstance(value, bool):
        raise NoOverload
    return value


def _quantified(steps: _Steps, body: Run, *, by: bool) -> Run:
    """all (by False), exists (by True): an error counts only where no other step decides."""

    def decide(f: Frame) -> bool:
        failed: EvaluationError | None = None
        for _ in steps(f):
            try:
                if _sure(body(f)) is by:
                    return by
            except EvaluationError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return not by

    return decide


def _exactly_one(steps: _Steps, body: Run) -> Run:
    return lambda f: sum(_sure(body(f)) for _ in steps(f)) == 1


def _filtered(steps: _Steps, body: Run) -> Run:
    return lambda f: [value for _, value in steps(f) if _sure(body(f))]


def _made(steps: _Steps, body: Run) -> Run:
    return lambda f: [body(f) for _ in steps(f)]


def _ordered(steps: _Steps, body: Run) -> Run:
    def order(f: Frame) -> list[Any]:
        pairs = [(value, body(f)) for _, value in steps(f)]
        return in_order([value for value, _ in pairs], [key for _, key in pairs])

    return order


def _mapped(steps: _Steps, body: Run) -> Run:
    return lambda f: {key: body(f) for key, _ in steps(f)}


def _entries(steps: _Steps, body: Run) -> Run:
    def collect(f: Frame) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for _ in steps(f):
            entry = body(f)
            if not isinstance(entry, MAPS):
                raise NoOverload
            for key in entry:
                if key in made:
                    raise EvaluationError(f"insert failed: key {key} already exists")
                made[key] = entry[key]
        return made

    return collect
