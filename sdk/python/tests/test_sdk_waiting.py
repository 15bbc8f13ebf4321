"""How both clients wait: when they look again, when they give up, and what they say of where a Run stands."""

import pytest

from kruntimes.common.api.phases import Phase
from kruntimes.common.api.views import Condition, Meta, Run, RunStatus
from kruntimes.sdk.errors import EndedError, NotFoundError, NotReadyError
from kruntimes.sdk.waiting import LONGEST_PAUSE_SECONDS, Waiting, standing

WHY = Condition(type="Ready", status="False", reason="Unscheduled", message="no Pod has room")


def run(phase: Phase | None = None, *conditions: Condition, deleting: bool = False) -> Run:
    meta = Meta(name="r", deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None)
    return Run(metadata=meta, status=RunStatus(phase=phase, conditions=conditions) if phase else RunStatus())


def test_it_looks_often_at_first_and_then_less_often() -> None:
    waiting, now, pauses = Waiting(name="r", state="ready", timeout=60, at=100.0), 100.0, []
    for _ in range(12):
        pause = waiting.look(run(Phase.PENDING), now=now)
        assert pause is not None
        pauses.append(pause)
        now += pause
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.1
    assert pauses[-1] == LONGEST_PAUSE_SECONDS


def test_it_gives_up_before_a_pause_that_would_be_too_long_and_says_where_the_run_stands() -> None:
    waiting = Waiting(name="r", state="ready", timeout=1, at=0.0)
    assert waiting.look(run(Phase.PENDING, WHY), now=0.9) is not None
    with pytest.raises(NotReadyError, match=r"not ready after 1 s \(it is Pending, Unscheduled: no Pod has room\)"):
        waiting.look(run(Phase.PENDING, WHY), now=0.95)


@pytest.mark.parametrize(
    ("state", "found", "error"),
    [
        pytest.param("ready", None, NotFoundError, id="there-is-none"),
        pytest.param("ready", run(Phase.FAILED), EndedError, id="it-ended"),
    ],
)
def test_what_can_never_be_is_not_waited_for(state: str, found: Run | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        Waiting(name="r", state=state, timeout=60, at=0.0).look(found, now=0.0)


@pytest.mark.parametrize(
    ("state", "found"),
    [
        pytest.param("deleted", None, id="gone"),
        pytest.param("ended", run(Phase.CANCELLED), id="ended"),
        pytest.param("phase=Pending", run(), id="no-phase-yet-is-pending"),
    ],
)
def test_what_has_come_is_told_at_once(state: str, found: Run | None) -> None:
    assert Waiting(name="r", state=state, timeout=0, at=0.0).look(found, now=9.0) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(run(), "Pending", id="nothing-yet"),
        pytest.param(run(Phase.SCHEDULED), "Scheduled", id="no-condition"),
        pytest.param(run(Phase.PENDING, WHY), "Pending, Unscheduled: no Pod has room", id="with-its-reason"),
        pytest.param(run(Phase.READY, deleting=True), "Deleting", id="going"),
    ],
)
def test_where_a_run_stands(found: Run, said: str) -> None:
    assert standing(found) == said
