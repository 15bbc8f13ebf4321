"""Functions as expressions see them: signatures for the checker, and what to call for values. Pure.

A function has overloads. Where the static types leave one, it is called at once; where some of them are dyn, the
values decide at run time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.cel.errors import EvaluationError, NoOverload
from kruntimes.local.apiserver.cel.types import Type
from kruntimes.local.apiserver.cel.values import LISTS, MAPS, Optional, TypeValue, type_name

Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature. member: it is called on its first parameter. walks: it reads its texts or lists whole, which
    costs by their length."""

    params: tuple[Type, ...]
    result: Type
    run: Run
    member: bool
    walks: bool = True


class Library:
    """Functions by name."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, bool], list[Overload]] = {}

    def add(self, name: str, overload: Overload) -> None:
        """Adds one overload."""
        self._held.setdefault((name, overload.member), []).append(overload)

    def member(self, name: str, *params: Type, to: Type, walks: bool = True) -> Callable[[Run], Run]:
        """Declares a method; its first parameter is what it is called on."""
        return self._declare(name, params, to, walks, member=True)

    def function(self, name: str, *params: Type, to: Type, walks: bool = True) -> Callable[[Run], Run]:
        """Declares a function."""
        return self._declare(name, params, to, walks, member=False)

    def both(self, name: str, *params: Type, to: Type, walks: bool = True) -> Callable[[Run], Run]:
        """Declares a function that is a method, too."""

        def declare(run: Run) -> Run:
            self.function(name, *params, to=to, walks=walks)(run)
            return self.member(name, *params, to=to, walks=walks)(run)

        return declare

    def _declare(
        self, name: str, params: tuple[Type, ...], to: Type, walks: bool, *, member: bool
    ) -> Callable[[Run], Run]:
        def declare(run: Run) -> Run:
            self.add(name, Overload(params, to, run, member, walks))
            return run

        return declare

    def find(self, name: str, *, member: bool) -> list[Overload]:
        """The overloads of a name; empty where there is no such function."""
        return self._held.get((name, member), [])

    def knows(self, name: str) -> bool:
        """Whether a function or method has that name."""
        return (name, True) in self._held or (name, False) in self._held


def takes(type: Type, value: Any) -> bool:
    """Whether a value is of a type, as far as it can be seen without looking into lists and maps."""
    name = type.name
    if name == "dyn" or len(name) == 1:
        return True
    if name == "list":
        return isinstance(value, LISTS)
    if name in ("map", "object"):
        return isinstance(value, MAPS)
    if name == "optional_type":
        return isinstance(value, Optional)
    if name == "type":
        return isinstance(value, TypeValue)
    return type_name(value) == name


def dispatched(name: str, overloads: Iterable[Overload]) -> Run:
    """What calls the first overload that takes the values it is given."""
    held = tuple(overloads)

    def call(*values: Any) -> Any:
        for overload in held:
            if all(map(takes, overload.params, values)):
                return overload.run(*values)
        raise NoOverload

    return call


def conversion_error(value: Any, wanted: str) -> EvaluationError:
    """A value cannot be made into another type."""
    return EvaluationError(f"type conversion error from '{type_name(value)}' to '{wanted}'")
