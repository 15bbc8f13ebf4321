"""A compiled expression, and what it costs to run. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.cel.errors import OverBudget
from kruntimes.local.apiserver.cel.types import Type

CALL_BUDGET = 1_000_000
"""Units that one evaluation may cost: a step of a macro, a call and an item read are one each, as are ten
characters read."""
OBJECT_BUDGET = 3_000_000
"""Units for all the rules of one object: some seconds, in which the server does nothing else. The real one allows more;
no object of a local stack comes near either."""
CHARACTERS_A_UNIT = 10


class Frame:
    """The state of one evaluation: the variables by their slot, and what is left of the budget."""

    __slots__ = ("left", "slots")

    def __init__(self, slots: list[Any], left: int) -> None:
        self.slots, self.left = slots, left

    def spend(self, units: int) -> None:
        """Raises OverBudget."""
        self.left -= units
        if self.left < 0:
            raise OverBudget


Run = Callable[[Frame], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A part of an expression: its static type, and what evaluates it."""

    type: Type
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled expression. uses: the variables that it names; slots: how many a frame needs."""

    source: str
    type: Type
    uses: frozenset[str]
    slots: int
    names: tuple[str, ...]
    run: Run

    def evaluate(self, variables: Mapping[str, Any], budget: int = CALL_BUDGET) -> tuple[Any, int]:
        """The value, and what it cost. Raises EvaluationError and OverBudget."""
        slots = [variables.get(name) for name in self.names]
        frame = Frame(slots + [None] * (self.slots - len(slots)), budget)
        value = self.run(frame)
        return value, budget - frame.left
