"""What a call can come to once it has reached its function: every status that a Pod gives (design §6)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_table import RUNTIMED, Expect, Row, Target, check, params
from support import Api, path_of

SOURCE = Path(__file__).parent / "functions" / "outcomes.py"
RAISED = Expect(500, "FunctionError", RUNTIMED, outcome="function_error")
LATE = Expect(504, "DeadlineExceeded", RUNTIMED, outcome="timeout")
SOON = ("x-kruntime-timeout-ms", "300")


def does(what: str, expect: Expect, *headers: tuple[str, str], id: str = "") -> Row:
    return Row(
        id=id or what, target="{function}", body=json.dumps({"do": what}).encode(), headers=headers, expect=expect
    )


ROWS = [
    does("raise", RAISED),
    does("raise-a-system-exit", RAISED),
    does("raise-an-interrupt", RAISED),
    does("exit-without-a-word", RAISED),
    does("kill-itself", RAISED),
    does("return-an-object", RAISED),
    does("return-not-a-number", RAISED),
    does("return-a-circle", RAISED),
    does("recurse", RAISED),
    does("sleep", LATE, SOON),
    does("spin", LATE, SOON),
    does("catch-everything", LATE, SOON),
    does("sleep", LATE, ("x-kruntime-timeout-ms", "1"), id="hardly-any-time"),
]


@pytest.fixture(scope="module")
def outcomes(api: Api, table: Target) -> Iterator[Target]:
    """The table's target, with a function that does as it is told."""
    with api.function(SOURCE.read_text()) as run:
        table.fields["function"] = path_of(run)
        yield table


@pytest.mark.parametrize(("row", "protocol"), params(ROWS))
def test_outcomes(outcomes: Target, row: Row, protocol: str) -> None:
    check(outcomes, row, protocol)
