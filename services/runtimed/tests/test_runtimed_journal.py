"""What became of requests is told soon, in order, in few pieces, and with the time at which it was so."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from tests.runtimed_stub import until

from kruntimes.common import logs
from kruntimes.common.api.outcomes import Outcome
from kruntimes.runtimed.journal import TOGETHER, Ended, Journal
from kruntimes.runtimed.metrics import Metrics

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Pieces(io.StringIO):
    """A stream that knows in how many pieces it was written."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for piece in self.pieces for line in piece.splitlines()]


@pytest.fixture
def stream() -> Iterator[Pieces]:
    root, pieces = logging.getLogger(), Pieces()
    handler = logs.LineHandler(pieces)
    handler.setFormatter(logs.JsonFormatter("runtimed"))
    handler.addFilter(logging.Filter("kruntimes.runtimed"))  # servers of other tests may still have something to say
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield pieces
    root.setLevel(before)
    root.removeHandler(handler)


def ended(number: int) -> Ended:
    return Ended(
        at=1_700_000_000.25, seconds=0.0015, status=200, outcome=Outcome.COMPLETED,
        run_uid="uid", invocation_id=f"id-{number}", attempt=1,
    )  # fmt: skip


async def test_one_request_is_told_soon_with_its_own_time(stream: Pieces) -> None:
    figures = CollectorRegistry()
    Journal("default/python", Metrics(figures)).add(ended(1))
    await until(lambda: stream.pieces)
    [line] = stream.lines
    assert line["time"] == "2023-11-14T22:13:20.250+00:00"
    assert (line["runtime"], line["run_uid"], line["invocation_id"], line["attempt"]) == (
        "default/python",
        "uid",
        "id-1",
        1,
    )
    assert (line["status"], line["outcome"], line["ms"]) == (200, "completed", 1.5)
    labels = {"hop": "gateway", "status": "200", "outcome": "completed"}
    assert figures.get_sample_value("kruntimes_runtimed_requests_total", labels) == 1


async def test_many_are_told_in_few_pieces_and_in_order(stream: Pieces) -> None:
    journal, count = Journal("default/python", Metrics(CollectorRegistry())), 2 * TOGETHER + 3
    for number in range(count):
        journal.add(ended(number))
    await until(lambda: len(stream.lines) == count)
    assert [line["invocation_id"] for line in stream.lines] == [f"id-{number}" for number in range(count)]
    assert len(stream.pieces) <= 2


async def test_the_end_leaves_nothing_untold(stream: Pieces) -> None:
    journal = Journal("default/python", Metrics(CollectorRegistry()))
    journal.add(ended(1))
    assert not stream.pieces
    journal.tell()
    assert len(stream.lines) == 1


async def test_what_cannot_be_said_takes_no_other_line_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logs.LineHandler(stream := Pieces())
    handler.hold_lines()
    for message, *arguments in (("%d", "no number"), ("another",)):
        handler.handle(logging.LogRecord("a", logging.INFO, "", 0, message, tuple(arguments), None))
    handler.write_held()
    assert stream.pieces == ["another\n"]
    assert "no number" in capsys.readouterr().err
