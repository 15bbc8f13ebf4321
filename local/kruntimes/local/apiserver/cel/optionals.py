"""Optional values: `.?`, `[?…]`, optMap, and the functions on them. Pure."""

from typing import TYPE_CHECKING, Any

from kruntimes.local.apiserver.cel import types
from kruntimes.local.apiserver.cel.ast import Call, Expr, OptionalMap, Select
from kruntimes.local.apiserver.cel.core import CORE, has_key
from kruntimes.local.apiserver.cel.errors import EvaluationError, NoOverload
from kruntimes.local.apiserver.cel.program import Checked, Frame
from kruntimes.local.apiserver.cel.types import BOOL, DYN, A, ObjectType, Type, fits, optional_of
from kruntimes.local.apiserver.cel.values import LISTS, MAPS, NONE, Optional

if TYPE_CHECKING:
    from kruntimes.local.apiserver.cel.compiler import Compiler


def _value(held: Optional) -> Any:
    if not held.present:
        raise EvaluationError("optional.none() dereference")
    return held.value


def _non_zero(value: Any) -> Optional:
    empty = value is None or value is False or (isinstance(value, int | float) and value == 0)
    sized = isinstance(value, str | bytes | LISTS | MAPS)
    return NONE if empty or (sized and len(value) == 0) else Optional(True, value)


CORE.function("optional.of", A, to=optional_of(A), walks=False)(lambda value: Optional(True, value))
CORE.function("optional.ofNonZeroValue", A, to=optional_of(A), walks=False)(_non_zero)
CORE.function("optional.none", to=optional_of(A), walks=False)(lambda: NONE)
CORE.member("hasValue", optional_of(A), to=BOOL, walks=False)(lambda held: held.present)
CORE.member("value", optional_of(A), to=A, walks=False)(_value)
CORE.member("orValue", optional_of(A), A, to=A, walks=False)(lambda held, other: held.value if held.present else other)
CORE.member("or", optional_of(A), optional_of(A), to=optional_of(A), walks=False)(
    lambda held, other: held if held.present else other
)
CORE.function("optional.unwrap", types.list_of(optional_of(A)), to=types.list_of(A))(
    lambda held: [item.value for item in held if item.present]
)


def inner(compiler: "Compiler", checked: Checked, expr: Expr) -> Type:
    """What is in an optional that a literal takes with `?`."""
    if checked.type.name == "optional_type":
        return checked.type.args[0]
    if checked.type == DYN:
        return DYN
    raise compiler.bad(f"expected type 'optional_type({checked.type})' but found '{checked.type}'", expr)


def _unwrapped(type_: Type) -> Type:
    return type_.args[0] if type_.name == "optional_type" else type_


def selected(compiler: "Compiler", operand: Checked, expr: Select) -> Checked:
    """`a.?b`, and `a.b` where a is an optional."""
    type_, name = compiler.member_type(_unwrapped(operand.type), expr.field, expr)
    run, nulls = operand.run, not isinstance(_unwrapped(operand.type), ObjectType)

    def get(f: Frame) -> Any:
        held = run(f)
        if isinstance(held, Optional):
            if not held.present:
                return NONE
            held = held.value
        try:
            if name not in held:
                return NONE
            value = held[name]
            return Optional(True, value) if nulls or value is not None else NONE
        except TypeError:
            raise NoOverload from None

    if expr.test:
        return Checked(type=BOOL, run=lambda f: get(f).present)
    return Checked(type=optional_of(_unwrapped(type_)), run=get)


def indexed(compiler: "Compiler", parts: list[Checked], expr: Call) -> Checked:
    """`a[?b]`, and `a[b]` where a is an optional."""
    over, at = _unwrapped(parts[0].type), parts[1]
    wanted = {"list": types.INT, "map": over.args[0] if over.args else DYN}.get(over.name, DYN)
    if over.name not in ("list", "map", "dyn") or not fits(wanted, at.type, {}):
        raise compiler.bad(
            f"found no matching overload for '{expr.function}' applied to '({parts[0].type}, {at.type})'", expr
        )
    item = over.args[-1] if over.args else DYN
    run, key_of = parts[0].run, at.run

    def get(f: Frame) -> Optional:
        held, key = run(f), key_of(f)
        if isinstance(held, Optional):
            if not held.present:
                return NONE
            held = held.value
        if isinstance(held, LISTS) and isinstance(key, int):
            return Optional(True, held[key]) if 0 <= key < len(held) else NONE
        if not isinstance(held, MAPS):
            raise NoOverload
        return Optional(True, held[key]) if has_key(key, held) else NONE

    return Checked(type=optional_of(_unwrapped(item)), run=get)


def mapped(compiler: "Compiler", expr: OptionalMap) -> Checked:
    """optMap and optFlatMap."""
    target = compiler.visit(expr.target)
    if target.type.name != "optional_type" and target.type != DYN:
        raise compiler.bad(f"found no matching overload for 'optMap' applied to '{target.type}'", expr)
    (slot,), body = compiler.bind(((expr.name, _unwrapped(target.type)),), lambda: compiler.visit(expr.body))
    run, make, flat = target.run, body.run, expr.flat

    def get(f: Frame) -> Optional:
        held = run(f)
        if not isinstance(held, Optional):
            raise NoOverload
        if not held.present:
            return NONE
        f.slots[slot] = held.value
        made = make(f)
        return made if flat and isinstance(made, Optional) else Optional(True, made)

    return Checked(type=body.type if flat else optional_of(body.type), run=get)
