"""Checks the types of an expression and turns it into closures, in one walk over its tree. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from kruntimes.local.apiserver.cel import folds, formatting, kube, logic, optionals, parser, texts, types
from kruntimes.local.apiserver.cel.ast import (
    Call,
    Expr,
    Fold,
    Ident,
    Literal,
    MakeList,
    MakeMap,
    OptionalMap,
    Select,
)
from kruntimes.local.apiserver.cel.core import CORE
from kruntimes.local.apiserver.cel.errors import CompileError, EvaluationError, NoOverload
from kruntimes.local.apiserver.cel.functions import Overload, dispatched
from kruntimes.local.apiserver.cel.program import CHARACTERS_A_UNIT, Checked, Frame, Program, Run
from kruntimes.local.apiserver.cel.types import DYN, Bindings, ObjectType, Type, filled, fits, joined
from kruntimes.local.apiserver.cel.values import LISTS, TypeValue, UInt
from kruntimes.local.apiserver.durations import BadDuration, parse_duration
from kruntimes.local.apiserver.regex import BadPattern, compiled

EXTENSIONS = (texts, kube, optionals)
"""What has put its functions into the library."""


def compile_expression(source: str, variables: Mapping[str, Type]) -> Program:
    """The program of *source* over *variables*. Raises CompileError."""
    try:
        compiler = Compiler(source, variables)
        checked = compiler.visit(parser.parse(source))
    except RecursionError:
        raise CompileError("expression recursion limit exceeded", source, 0) from None
    return Program(
        source=source, type=checked.type, uses=frozenset(compiler.used), slots=compiler.most, names=tuple(variables),
        run=checked.run,
    )  # fmt: skip


class Compiler:
    """One walk. scope: the variables of the place that is visited, with their slots."""

    def __init__(self, source: str, variables: Mapping[str, Type]) -> None:
        self._source = source
        self.scope: dict[str, tuple[Type, int]] = {name: (t, i) for i, (name, t) in enumerate(variables.items())}
        self._globals = frozenset(variables)
        self.slots = self.most = len(variables)
        self.used: set[str] = set()
        self._mixed = False

    def bad(self, why: str, expr: Expr) -> CompileError:
        """A fault at the place of *expr*."""
        return CompileError(why, self._source, expr.position)

    def bind(self, names: tuple[tuple[str, Type], ...], body: Callable[[], Checked]) -> tuple[list[int], Checked]:
        """Visits *body* with more variables; returns their slots."""
        outer = self.scope
        self.scope = dict(outer)
        slots = []
        for name, type_ in names:
            self.scope[name] = (type_, self.slots)
            slots.append(self.slots)
            self.slots += 1
        self.most = max(self.most, self.slots)
        checked = body()
        self.scope = outer
        self.slots -= len(names)
        return slots, checked

    def visit(self, expr: Expr) -> Checked:
        """The type and the closure of an expression."""
        match expr:
            case Literal():
                return self._literal(expr)
            case Ident():
                return self._ident(expr)
            case Select():
                return self._select(expr)
            case Call():
                return self._call(expr)
            case MakeList():
                return self._list(expr)
            case MakeMap():
                return self._map(expr)
            case Fold():
                return folds.fold(self, expr)
            case OptionalMap():
                return optionals.mapped(self, expr)
        raise self.bad("unsupported expression", expr)

    # ------------------------------------------------------------ leaves

    def _literal(self, expr: Literal) -> Checked:
        value = UInt(expr.value) if expr.type == "uint" else expr.value
        return Checked(type=types.NAMED[expr.type], run=lambda f: value)

    def _ident(self, expr: Ident) -> Checked:
        found = self.scope.get(expr.name)
        if found is not None:
            if expr.name in self._globals:
                self.used.add(expr.name)
            type_, slot = found
            return Checked(type=type_, run=lambda f: f.slots[slot])
        return self._type_value(expr.name, expr)

    def _type_value(self, name: str, expr: Expr) -> Checked:
        if name in types.NAMED or name in ("list", "map", "type", "optional_type"):
            value = TypeValue(name)
            return Checked(type=types.type_of(types.NAMED.get(name, DYN)), run=lambda f: value)
        raise self.bad(f"undeclared reference to '{name}' (in container '')", expr)

    def _list(self, expr: MakeList) -> Checked:
        mixed = self._mixed
        parts = [self.visit(item) for item in expr.items]
        item = DYN if mixed else Type("A")
        for i, part in enumerate(parts):
            found = optionals.inner(self, part, expr.items[i]) if i in expr.optional else part.type
            item = item if mixed else self._agreed(item, found, expr.items[i])
        runs, optional = [part.run for part in parts], expr.optional

        def make(f: Frame) -> list[Any]:
            f.spend(len(runs))
            if not optional:
                return [run(f) for run in runs]
            made = []
            for i, run in enumerate(runs):
                value = run(f)
                if i not in optional:
                    made.append(value)
                elif value.present:
                    made.append(value.value)
            return made

        return Checked(type=types.list_of(filled(item, {})), run=make)

    def _agreed(self, held: Type, found: Type, expr: Expr) -> Type:
        """The items of a literal are of one type."""
        both = found if held == types.A else joined(held, found)
        if both is None:
            raise self.bad(f"expected type '{held}' but found '{found}'", expr)
        return both

    def _map(self, expr: MakeMap) -> Checked:
        key, value = Type("A"), Type("A")
        pairs: list[tuple[Run, Run, bool]] = []
        for i, (k, v) in enumerate(expr.entries):
            name, held = self.visit(k), self.visit(v)
            if name.type not in (types.STRING, types.INT, types.UINT, types.BOOL, DYN):
                raise self.bad(f"unsupported map key type: {name.type}", k)
            key = self._agreed(key, name.type, k)
            found = optionals.inner(self, held, v) if i in expr.optional else held.type
            value = DYN if self._mixed else self._agreed(value, found, v)
            pairs.append((name.run, held.run, i in expr.optional))

        def make(f: Frame) -> dict[Any, Any]:
            f.spend(len(pairs))
            made: dict[Any, Any] = {}
            for name_of, value_of, optional in pairs:
                name, value = name_of(f), value_of(f)
                if name in made:
                    raise EvaluationError(f"Failed with repeated key: {name}")
                if not optional:
                    made[name] = value
                elif value.present:
                    made[name] = value.value
            return made

        return Checked(type=types.map_of(filled(key, {}), filled(value, {})), run=make)

    # ------------------------------------------------------------ members

    def _select(self, expr: Select) -> Checked:
        dotted = _dotted(expr)
        if dotted in types.NAMED and dotted.partition(".")[0] not in self.scope:
            return self._type_value(dotted, expr)
        operand = self.visit(expr.operand)
        if expr.optional or operand.type.name == "optional_type":
            return optionals.selected(self, operand, expr)
        type_, name = self.member_type(operand.type, expr.field, expr)
        run = operand.run
        # A member of an object that is null is as one that is not there; a map's value is not.
        nulls = not isinstance(operand.type, ObjectType)
        if expr.test:
            return Checked(type=types.BOOL, run=lambda f: _has(run(f), name, nulls=nulls))

        def get(f: Frame) -> Any:
            held = run(f)
            try:
                value = held[name]
            except KeyError:
                raise EvaluationError(f"no such key: {expr.field}") from None
            except (TypeError, IndexError):
                raise NoOverload from None
            if value is None and not nulls:
                raise EvaluationError(f"no such key: {expr.field}")
            return value

        return Checked(type=type_, run=get)

    def member_type(self, type_: Type, name: str, expr: Expr) -> tuple[Type, str]:
        """The type of a member, and the name that the data has it under."""
        if isinstance(type_, ObjectType):
            found = type_.fields.get(name)
            if found is None:
                raise self.bad(f"undefined field '{name}'", expr)
            return found, type_.raw_names[name]
        if type_.name == "map" and fits(type_.args[0], types.STRING, {}):
            return type_.args[1], name
        if type_ == DYN:
            return DYN, name
        raise self.bad(f"type '{type_}' does not support field selection", expr)

    # ------------------------------------------------------------ calls

    def _call(self, expr: Call) -> Checked:
        name = expr.function
        if name in ("_&&_", "_||_", "_?_:_"):
            return logic.logical(self, expr)
        if name == "_[?_]" or (name == "_[_]" and expr.args):
            indexed = [self.visit(arg) for arg in expr.args]
            if name == "_[?_]" or indexed[0].type.name == "optional_type":
                return optionals.indexed(self, indexed, expr)
            return self._overloaded(expr, name, indexed, member=False)
        if expr.target is not None:
            qualified = f"{_dotted(expr.target)}.{name}"
            if CORE.find(qualified, member=False) and _dotted(expr.target).partition(".")[0] not in self.scope:
                return self._overloaded(expr, qualified, [self.visit(a) for a in expr.args], member=False)
            target = self.visit(expr.target)
            self._known(name, expr)
            if name == "format":
                return self._format(expr, target)
            args = [target, *(self.visit(a) for a in expr.args)]
            return self._overloaded(expr, name, args, member=True)
        self._known(name, expr)
        return self._overloaded(expr, name, [self.visit(a) for a in expr.args], member=False)

    def _format(self, expr: Call, target: Checked) -> Checked:
        """What is formatted is of many types, where all other literals are of one."""
        before, self._mixed = self._mixed, True
        checked = self._overloaded(expr, "format", [target, *(self.visit(a) for a in expr.args)], member=True)
        items = expr.args[0].items if isinstance(expr.args[0], MakeList) else ()
        if isinstance(expr.target, Literal) and isinstance(expr.args[0], MakeList) and not expr.args[0].optional:
            found = formatting.refusal(str(expr.target.value), [self.visit(item).type for item in items])
            if found is not None:
                raise self.bad(found[0], expr if found[1] is None else items[found[1]])
        self._mixed = before
        return checked

    def _known(self, name: str, expr: Call) -> None:
        if not CORE.knows(name):
            raise self.bad(f"undeclared reference to '{name}' (in container '')", expr)

    def _overloaded(self, expr: Call, name: str, args: list[Checked], *, member: bool) -> Checked:
        overloads = CORE.find(name, member=member)
        found: list[tuple[Overload, Type]] = []
        for overload in overloads:
            bound: Bindings = {}
            if len(overload.params) == len(args) and all(
                fits(param, arg.type, bound) for param, arg in zip(overload.params, args, strict=True)
            ):
                found.append((overload, filled(overload.result, bound)))
        if not found:
            shown = [str(arg.type) for arg in args]
            applied = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
            raise self.bad(f"found no matching overload for '{name}' applied to '{applied}'", expr)
        self._validate(name, expr)
        certain = len(found) == 1 and all(_certain(arg.type) for arg in args)
        call = found[0][0].run if certain else dispatched(name, [overload for overload, _ in found])
        result = found[0][1] if all(type_ == found[0][1] for _, type_ in found) else DYN
        return Checked(type=result, run=_caller(call, [arg.run for arg in args], walks=found[0][0].walks))

    def _validate(self, name: str, expr: Call) -> None:
        """Constants that can never be right are refused at once."""
        last = expr.args[-1] if expr.args else None
        if not isinstance(last, Literal) or not isinstance(last.value, str):
            return
        try:
            if name == "matches":
                compiled(last.value)
            elif name == "duration":
                parse_duration(last.value)
            elif name == "timestamp":
                CORE.find("timestamp", member=False)[-2].run(last.value)
        except (BadPattern, BadDuration, EvaluationError):
            raise self.bad(f"invalid {name} argument", last) from None


def _certain(type_: Type) -> bool:
    """Whether nothing of a type is left to run time."""
    return type_ != DYN and type_ != types.NULL and all(map(_certain, type_.args))


def _dotted(expr: Expr) -> str:
    """`a.b.c` as text, or empty where it is something else."""
    if isinstance(expr, Ident):
        return expr.name
    if isinstance(expr, Select) and not expr.test and not expr.optional:
        before = _dotted(expr.operand)
        return f"{before}.{expr.field}" if before else ""
    return ""


def _has(held: Any, name: str, *, nulls: bool) -> bool:
    try:
        return name in held and (nulls or held[name] is not None)
    except TypeError:
        raise NoOverload from None


def _caller(call: Callable[..., Any], runs: list[Run], *, walks: bool) -> Run:
    """Evaluates the arguments, pays for them and calls."""

    def cost(value: Any) -> int:
        if isinstance(value, str | bytes):
            return 1 + len(value) // CHARACTERS_A_UNIT
        return 1 + len(value) if isinstance(value, LISTS) else 1

    def failing(error: Exception) -> EvaluationError:
        return NoOverload() if isinstance(error, TypeError | AttributeError) else EvaluationError(str(error))

    if len(runs) == 1:
        (one,) = runs

        def unary(f: Frame) -> Any:
            value = one(f)
            f.spend(cost(value) if walks else 1)
            try:
                return call(value)
            except (TypeError, AttributeError, OverflowError) as error:
                raise failing(error) from error

        return unary

    def many(f: Frame) -> Any:
        values = [run(f) for run in runs]
        f.spend(sum(map(cost, values)) if walks else 1)
        try:
            return call(*values)
        except (TypeError, AttributeError, OverflowError) as error:
            raise failing(error) from error

    return many
