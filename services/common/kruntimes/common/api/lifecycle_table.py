"""The transition table as people read it: `python -m kruntimes.common.api.lifecycle_table docs/lifecycle.md`.

Writes the tables between their markers in that file anew. A test asserts that nothing would change.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kruntimes.common.api.phases import CLASSES, TERMINAL, Phase
from kruntimes.common.api.transitions import TRANSITIONS, Event, Transition, row


def rows() -> str:
    """One line for each row of the table, in its order."""
    return _table(("from", "when", "who", "to", "reason of `Ready`"), map(_line, TRANSITIONS))


def cells() -> str:
    """Every event against every phase that can be left: where it leads, or nothing."""
    phases = [phase for phase in Phase if phase not in TERMINAL]
    lines = ([event.value, *(_target(phase, event) for phase in phases)] for event in Event)
    return _table(("when", *(phase.value for phase in phases)), lines)


def classes() -> str:
    """What each phase implies."""
    lines = (
        [phase.value, *("yes" if value else "" for value in (one.assigned, one.claimed, one.terminal))]
        for phase, one in CLASSES.items()
    )
    return _table(("phase", "takes capacity of a Pod", "claimed by a runtimed", "the end"), lines)


TABLES = {"transitions": rows, "cells": cells, "phases": classes}
_BLOCK = re.compile(r"(?<=<!-- table: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def rewritten(text: str) -> str:
    """*text* with every table between `<!-- table: NAME -->` and `<!-- end -->` made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}{found[2]}\n{TABLES[found[1]]()}\n", text)


def _line(one: Transition) -> Sequence[str]:
    sources = ", ".join(phase.value for phase in Phase if phase in one.sources)
    reasons = ", ".join(sorted(reason.value for reason in one.reasons))
    return sources, one.event.value, one.writer.value, one.target.value, reasons


def _target(phase: Phase, event: Event) -> str:
    found = row(phase, event)
    return found.target.value if found is not None else ""


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    made = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |").replace("|  |", "| |") for line in made)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        file = Path(name)
        file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")
