"""The table in docs/functions-manager.md: complete, and every test and module that it names exists."""

import importlib
import re
from pathlib import Path

TESTS = Path(__file__).parent
DOCUMENT = (TESTS.parents[2] / "docs/functions-manager.md").read_text()
LINES_OF_THE_SOURCE = 217
ROW = re.compile(r"^\| (\d+)(?:–(\d+))? \|(.*)\|$", re.MULTILINE)


def rows() -> list[tuple[range, list[str]]]:
    """The rows of the table: lines, and the other columns."""
    return [
        (range(int(first), int(last or first) + 1), [cell.strip() for cell in cells.split("|")])
        for first, last, cells in ROW.findall(DOCUMENT)
    ]


def test_every_line_of_the_document_is_in_the_table() -> None:
    covered = {line for lines, _ in rows() for line in lines}
    assert covered == set(range(1, LINES_OF_THE_SOURCE + 1))


def test_every_row_names_code_and_a_test() -> None:
    for lines, (rule, code, test, _) in rows():
        assert rule, lines
        assert re.fullmatch(r"`[a-z.]+`(, `[a-z.]+`)*", code), (lines, code)
        assert re.fullmatch(r"`test_\w+\.py::test_\w+`", test), (lines, test)


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(?:(test_\w+\.py)::)?(test_\w+)`", DOCUMENT)
    assert len(named) > 70
    everything = "\n".join(path.read_text() for path in TESTS.glob("test_*.py"))
    for file, test in named:
        text = (TESTS / file).read_text() if file else everything
        assert re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), (file, test)


def test_every_module_that_is_named_exists() -> None:
    for _, (_, code, _, _) in rows():
        for module in re.findall(r"`([a-z.]+)`", code):
            importlib.import_module(f"kruntimes.functions.{module}")


def test_the_bounds_are_those_of_the_code() -> None:
    from kruntimes.functions.bounds import Bounds

    assert f"{Bounds().tombstones:,}" in DOCUMENT
    assert f"{Bounds().read_ahead_calls:,} calls" in DOCUMENT
