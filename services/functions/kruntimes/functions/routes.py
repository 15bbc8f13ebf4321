"""Which handler a call goes to, and under which schedule key (second source document, "Keyed scheduler"). Pure.

A call of a function with prefixes goes to the prefix that its first argument starts with; a call that fits none
goes to the function's own handler, where it has one. What is registered or withdrawn later changes nothing for a
call that was admitted: it holds its Route.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

H = TypeVar("H")

SEPARATOR = "|"
"""Between a function's name and its prefix in a schedule key, so it cannot stand in a name."""


class OverlappingPrefix(ValueError):
    """Two prefixes of one function would both fit some call."""


@dataclass(frozen=True, slots=True, eq=False)
class Route(Generic[H]):
    """handler: None for a function that is announced and has none yet. key: calls of one key never run at once.

    timeout: seconds for a call that names none, or None for the manager's default.
    """

    key: str
    handler: H | None
    timeout: float | None = None


class Routes(Generic[H]):
    """Every registered function."""

    def __init__(self) -> None:
        self._direct: dict[str, Route[H]] = {}
        self._prefixes: dict[str, dict[str, Route[H]]] = {}

    def register(self, name: str, handler: H | None, *, timeout: float | None = None) -> Route[H]:
        """Registers *name*, or replaces what it stood for. Raises ValueError for a name that no call can carry."""
        _check_name(name)
        route = self._direct[name] = Route(name, handler, timeout)
        return route

    def register_prefix(self, name: str, prefix: str, handler: H | None, *, timeout: float | None = None) -> Route[H]:
        """Registers *prefix* of *name*, or replaces it.

        Raises OverlappingPrefix, and changes nothing, where another one is a prefix of it or the reverse.
        """
        _check_name(name)
        if not prefix or " " in prefix:
            raise ValueError("a prefix is not empty and holds no blank")
        known = self._prefixes.get(name, {})
        for other in known:
            if other != prefix and (other.startswith(prefix) or prefix.startswith(other)):
                raise OverlappingPrefix(f"the prefix {prefix!r} of {name!r} overlaps {other!r}")
        route = Route(f"{name}{SEPARATOR}{prefix}", handler, timeout)
        self._prefixes.setdefault(name, {})[prefix] = route
        return route

    def unregister(self, name: str) -> list[Route[H]]:
        """Withdraws *name* with its prefixes; the routes that go."""
        gone = [route] if (route := self._direct.pop(name, None)) is not None else []
        return gone + list(self._prefixes.pop(name, {}).values())

    def unregister_prefix(self, name: str, prefix: str) -> list[Route[H]]:
        """Withdraws one prefix; the routes that go, none where it was not there."""
        known = self._prefixes.get(name, {})
        gone = [route] if (route := known.pop(prefix, None)) is not None else []
        if not known:
            self._prefixes.pop(name, None)
        return gone

    def resolve(self, name: str, args: tuple[str, ...]) -> Route[H] | None:
        """The route of a call, or None where nothing fits."""
        if self._prefixes and args and (known := self._prefixes.get(name)):
            first = args[0]
            for prefix, route in known.items():
                if first.startswith(prefix):
                    return route
        return self._direct.get(name)

    def names(self) -> list[str]:
        """Every name that is registered, sorted."""
        return sorted({*self._direct, *self._prefixes})


def _check_name(name: str) -> None:
    if not name or " " in name or SEPARATOR in name:
        raise ValueError(f"a function's name is not empty and holds neither a blank nor {SEPARATOR!r}")
