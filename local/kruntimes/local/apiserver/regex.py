"""Regular expressions in RE2's syntax, which is what the API server speaks: matching takes linear time. Pure.

The library is loaded with the first pattern: most servers start without one.
"""

from functools import lru_cache
from typing import Protocol

KEPT = 512
"""Compiled patterns that are remembered: more than all the CRDs of a large cluster have."""


class BadPattern(ValueError):
    """The pattern cannot be compiled; the text says why."""


class Pattern(Protocol):
    """What is used of a compiled pattern."""

    def search(self, text: str) -> object | None:
        """The first match anywhere in *text*, or None."""

    def fullmatch(self, text: str) -> object | None:
        """A match of all of *text*, or None."""


@lru_cache(maxsize=KEPT)
def compiled(pattern: str) -> Pattern:
    """The compiled *pattern*. Raises BadPattern."""
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    try:
        made: Pattern = re2.compile(pattern, options)
    except re2.error as bad:
        said = bad.args[0] if bad.args else ""
        why = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise BadPattern(f"error parsing regexp: {why}") from None
    return made
