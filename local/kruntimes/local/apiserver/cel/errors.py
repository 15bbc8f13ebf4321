"""What can be wrong with an expression: at compile time with its place, at run time with a sentence. Pure."""


class CompileError(Exception):
    """The expression cannot be compiled. position: characters from its start."""

    def __init__(self, message: str, source: str, position: int) -> None:
        self.position, self.source = position, source
        before = source[:position]
        line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
        text = source.split("\n")[line - 1]
        # Tabs are written as one space, so that the mark stands under its character.
        shown = text.replace("\t", " ")
        super().__init__(f"ERROR: <input>:{line}:{column}: {message}\n | {shown}\n | {'.' * (column - 1)}^")


class WrongResult(CompileError):
    """The expression compiles, and yields something of the wrong type."""

    def __init__(self, message: str, source: str) -> None:
        super().__init__(message, source, 0)
        self.args = (message,)


class EvaluationError(Exception):
    """The expression has no value for this object: `no such key: x`, `division by zero`."""


class NoOverload(EvaluationError):
    """An operator or function met a value that it does not take; static types let it through as dyn."""

    def __init__(self) -> None:
        super().__init__("no such overload")


class OverBudget(Exception):
    """The evaluation costs more than it may."""
