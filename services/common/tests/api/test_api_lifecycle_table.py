"""The documentation of the lifecycle is made of the code's own table."""

from pathlib import Path

import pytest

from kruntimes.common.api import lifecycle_table
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.transitions import TRANSITIONS, Event

DOCUMENT = Path(__file__).parents[4] / "docs" / "lifecycle.md"


def test_the_document_is_current() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    remedy = "python -m kruntimes.common.api.lifecycle_table docs/lifecycle.md"
    assert lifecycle_table.rewritten(text) == text, f"make it anew: {remedy}"


@pytest.mark.parametrize("name", lifecycle_table.TABLES)
def test_every_table_is_in_the_document_once(name: str) -> None:
    assert DOCUMENT.read_text(encoding="utf-8").count(f"<!-- table: {name} -->") == 1


def test_a_table_has_every_row_every_event_and_every_phase() -> None:
    assert lifecycle_table.rows().count("\n") == 2 + len(TRANSITIONS)
    assert lifecycle_table.cells().count("\n") == 2 + len(Event)
    assert all(f"| {phase.value} |" in lifecycle_table.classes() for phase in Phase)
    assert "| Scheduled | its runtimed claims it | runtimed | Running | Preparing |" in lifecycle_table.rows()
    assert "| its runtimed claims it | | Running | | |" in lifecycle_table.cells()


def test_what_is_outside_the_markers_stays() -> None:
    text = "a\n<!-- table: phases -->\nold\n<!-- end -->\nb\n"
    made = lifecycle_table.rewritten(text)
    assert made.startswith("a\n<!-- table: phases -->\n\n| phase |")
    assert made.endswith("|\n\n<!-- end -->\nb\n")
    assert "old" not in made
    assert lifecycle_table.rewritten(made) == made
