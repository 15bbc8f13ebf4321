"""Phases and the transition table, cell by cell (design §4 and §5)."""

import itertools

import pytest

from kruntimes.common.api.phases import ASSIGNED, CLASSES, TERMINAL, Phase, classify
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.retry import may_retry
from kruntimes.common.api.transitions import TRANSITIONS, Event, ForbiddenTransition, Transition, Writer, check, row

P, S, R, Y = Phase.PENDING, Phase.SCHEDULED, Phase.RUNNING, Phase.READY
OK, BAD, LATE, GONE = Phase.SUCCEEDED, Phase.FAILED, Phase.TIMEOUT, Phase.CANCELLED

ALLOWED: dict[tuple[Phase, Writer], set[Phase]] = {
    (P, Writer.SCHEDULER): {P, S, LATE, GONE},
    (P, Writer.OPERATOR): {P},
    (P, Writer.RUNTIMED): {P},
    (S, Writer.SCHEDULER): {S},
    (S, Writer.OPERATOR): {S, P, BAD, LATE, GONE},
    (S, Writer.RUNTIMED): {S, R, P, BAD, LATE, GONE},
    (R, Writer.SCHEDULER): {R},
    (R, Writer.OPERATOR): {R, P, BAD, LATE, GONE},
    (R, Writer.RUNTIMED): {R, Y, P, OK, BAD, LATE, GONE},
    (Y, Writer.SCHEDULER): {Y},
    (Y, Writer.OPERATOR): {Y, P, BAD, LATE, GONE},
    (Y, Writer.RUNTIMED): {Y, R, P, BAD, LATE, GONE},
}
"""Read off the table of design §5 by hand; from a terminal phase nobody moves anything."""


@pytest.mark.parametrize(
    ("source", "target", "writer"),
    [pytest.param(*cell, id="-".join(part.value for part in cell)) for cell in itertools.product(Phase, Phase, Writer)],
)
def test_every_cell(source: Phase, target: Phase, writer: Writer) -> None:
    if target in ALLOWED.get((source, writer), set()):
        check(source, target, writer)
    else:
        with pytest.raises(ForbiddenTransition, match=f"{writer.value} may not move a Run from {source.value}"):
            check(source, target, writer)


HELD = (S, R, Y)
BY_EVENT: dict[Event, dict[Phase, Phase]] = {
    Event.CANCEL_REQUESTED_WAITING: {P: GONE},
    Event.LIFETIME_OVER_WAITING: {P: LATE},
    Event.POD_HAS_ROOM: {P: S},
    Event.UNCLAIMED: {S: P},
    Event.CLAIMED: {S: R},
    Event.REGISTERED: {R: Y},
    Event.FORGOTTEN: {R: R, Y: R},
    Event.REGISTRATION_FAILED: {R: P, Y: P},
    Event.REGISTRATION_EXHAUSTED: {R: BAD, Y: BAD},
    Event.CANCEL_REQUESTED: dict.fromkeys(HELD, GONE),
    Event.DRAINED: dict.fromkeys(HELD, P),
    Event.DRAINED_EXHAUSTED: dict.fromkeys(HELD, BAD),
    Event.LIFETIME_OVER: dict.fromkeys(HELD, LATE),
    Event.IDLE: {Y: LATE},
    Event.TASK_SUCCEEDED: {R: OK},
    Event.TASK_FAILED: {R: P},
    Event.TASK_EXHAUSTED: {R: BAD},
    Event.POD_LOST: dict.fromkeys(HELD, P),
    Event.POD_LOST_EXHAUSTED: dict.fromkeys(HELD, BAD),
    Event.POD_LOST_CANCELLED: dict.fromkeys(HELD, GONE),
    Event.POD_LOST_LIFETIME: dict.fromkeys(HELD, LATE),
}
"""Read off design §5 by hand: where an event leads from a phase. What is not here is impossible."""


@pytest.mark.parametrize(
    ("source", "event"),
    [pytest.param(*cell, id=f"{cell[0].value}-{cell[1].name}") for cell in itertools.product(Phase, Event)],
)
def test_where_an_event_leads(source: Phase, event: Event) -> None:
    found = row(source, event)
    assert (None if found is None else found.target) == BY_EVENT[event].get(source)


def test_no_two_rows_answer_one_event_in_one_phase() -> None:
    cells = [(source, one.event) for one in TRANSITIONS for source in one.sources]
    assert len(cells) == len(set(cells))
    assert {one.event for one in TRANSITIONS} == set(Event)


def test_terminal_phases_are_four_and_final() -> None:
    assert {OK, BAD, LATE, GONE} == TERMINAL
    assert not any(row.sources & TERMINAL for row in TRANSITIONS)


def test_every_phase_that_is_not_terminal_can_be_left_and_reached() -> None:
    left = frozenset().union(*(row.sources for row in TRANSITIONS))
    assert left == frozenset(Phase) - TERMINAL
    assert {row.target for row in TRANSITIONS} == set(Phase)


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row.writer.value}: {row.event}")
def test_reasons_of_a_row_fit_its_target(row: Transition) -> None:
    by_target = {
        BAD: {Reason.RETRIES_EXHAUSTED},
        LATE: {Reason.LIFETIME_TIMEOUT, Reason.IDLE_TIMEOUT},
        GONE: {Reason.CANCELLED},
        Y: {Reason.FUNCTION_REGISTERED},
    }
    allowed = by_target.get(row.target)
    assert allowed is None or row.reasons <= allowed


@pytest.mark.parametrize("row", [r for r in TRANSITIONS if r.target is P and P not in r.sources], ids=lambda r: r.event)
def test_what_returns_a_run_for_another_attempt_is_worth_one(row: Transition) -> None:
    for reason in row.reasons:
        assert may_retry(attempt=1, max_attempts=2, reason=reason, retryable=())


@pytest.mark.parametrize(
    ("phase", "terminal", "assigned", "claimed"),
    [
        ("Pending", False, False, False),
        ("Scheduled", False, True, False),
        ("Running", False, True, True),
        ("Ready", False, True, True),
        ("Succeeded", True, False, False),
        ("Failed", True, False, False),
        ("Timeout", True, False, False),
        ("Cancelled", True, False, False),
    ],
)
def test_what_a_phase_implies(phase: str, terminal: bool, assigned: bool, claimed: bool) -> None:
    implied = classify(phase)
    assert (implied.terminal, implied.assigned, implied.claimed) == (terminal, assigned, claimed)
    assert (Phase(phase) in ASSIGNED) is assigned


def test_every_phase_is_classified_and_nothing_else() -> None:
    assert set(CLASSES) == set(Phase)
    assert classify("") == classify("Pending"), "a Run that no one has touched is pending"
    for unknown in ("ready", "Done", " Ready"):
        with pytest.raises(ValueError, match="not a valid Phase"):
            classify(unknown)
