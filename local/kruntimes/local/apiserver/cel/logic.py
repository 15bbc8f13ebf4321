"""`&&`, `||` and `?:`. Pure. An error on one side does not count where the other side decides."""

from typing import TYPE_CHECKING, Any

from kruntimes.local.apiserver.cel.ast import Call
from kruntimes.local.apiserver.cel.errors import EvaluationError, NoOverload
from kruntimes.local.apiserver.cel.program import Checked, Frame, Run
from kruntimes.local.apiserver.cel.types import BOOL, DYN, joined

if TYPE_CHECKING:
    from kruntimes.local.apiserver.cel.compiler import Compiler


def logical(compiler: "Compiler", expr: Call) -> Checked:
    """The type and closure of a logical operator."""
    args = [compiler.visit(arg) for arg in expr.args]
    wanted = args[:1] if expr.function == "_?_:_" else args
    for arg, at in zip(wanted, expr.args, strict=False):
        if arg.type not in (BOOL, DYN):
            if expr.function != "_?_:_":
                raise compiler.bad(f"expected type 'bool' but found '{arg.type}'", at)
            shown = ", ".join(str(a.type) for a in args)
            raise compiler.bad(f"found no matching overload for '_?_:_' applied to '({shown})'", expr)
    if expr.function != "_?_:_":
        return Checked(type=BOOL, run=decided([arg.run for arg in args], by=expr.function == "_||_"))
    condition, then, otherwise = args
    result = joined(then.type, otherwise.type)
    if result is None:
        shown = ", ".join(str(a.type) for a in args)
        raise compiler.bad(f"found no matching overload for '_?_:_' applied to '({shown})'", expr)
    ask, left, right = condition.run, then.run, otherwise.run

    def choose(f: Frame) -> Any:
        chosen = ask(f)
        if chosen is True:
            return left(f)
        if chosen is False:
            return right(f)
        raise NoOverload

    return Checked(type=result, run=choose)


def decided(runs: list[Run], *, by: bool) -> Run:
    """All of them (by False) or any of them (by True); the first that is *by* decides."""

    def decide(f: Frame) -> bool:
        failed: EvaluationError | None = None
        for run in runs:
            try:
                value = run(f)
            except EvaluationError as error:
                failed = failed or error
                continue
            if not isinstance(value, bool):
                failed = failed or NoOverload()
            elif value is by:
                return by
        if failed is not None:
            raise failed
        return not by

    return decide
