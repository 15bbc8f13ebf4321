"""Random schedules of everything that may go wrong in the life of a few Runs, and what must hold at every step of each.

A schedule is a seed, so one that fails is repeated by its number: `MODEL_SEED=n MODEL_SCHEDULES=1`.
"""

import os
from collections.abc import Iterable

import pytest
from model.world import Broken, models, play

from kruntimes.common.api.reasons import Reason
from kruntimes.controller import lifecycle
from kruntimes.controller.book import Book
from kruntimes.runtimed import decide
from kruntimes.runtimed.selffence import SelfFence

SCHEDULES = int(os.environ.get("MODEL_SCHEDULES", "200"))
"""In CI; a few seconds of one core."""
BATCHES = 4
SABOTAGED = 400
"""Schedules within which each fault that is put in must be found; the first ones do as a rule."""


def play_all(seeds: Iterable[int]) -> None:
    with models() as listener:
        for seed in seeds:
            play(seed, listener)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_schedule_keeps_the_invariants_and_comes_to_rest(batch: int) -> None:
    first = int(os.environ.get("MODEL_SEED", "0"))
    play_all(range(first + batch, first + SCHEDULES, BATCHES))


def _never_silent(self: SelfFence) -> bool:
    return False


def _no_fence(observed: lifecycle.Observed) -> Reason | None:
    """Takes every lost Pod for gone."""
    return Reason.FENCED_POD_GONE


def _nothing_is_booked(self: Book, pod_uid: str) -> dict[str, int]:
    return {}


@pytest.mark.parametrize(
    ("place", "name", "wrong"),
    [
        pytest.param(SelfFence, "holds", property(_never_silent), id="no-self-fence"),
        pytest.param(lifecycle, "_fence", _no_fence, id="no-fence"),
        pytest.param(Book, "used", _nothing_is_booked, id="double-booking"),
        pytest.param(decide, "_release", lambda local, now, drain: None, id="no-clean-up"),
    ],
)
def test_a_rule_that_is_missing_is_missed(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, wrong: object
) -> None:
    """The model itself is tested: without one of the rules some schedule must break."""
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(Broken):
        play_all(range(SABOTAGED))
