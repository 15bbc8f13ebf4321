"""Who may take a Lease, as a table."""

import pytest

from kruntimes.common.api.views import LeaseSpec
from kruntimes.common.kube.election import Seen, Timing, may_take, observe

TIMING = Timing(duration=15, renew_deadline=10, stop_grace=4, retry=2)


def _record(holder: str, *, seconds: int = 15, renewed: str = "t1") -> LeaseSpec:
    return LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds, renew_time=renewed)


@pytest.mark.parametrize(
    ("record", "seen_at", "now", "expected"),
    [
        pytest.param(_record("other"), 100, 100, False, id="held-and-just-seen"),
        pytest.param(_record("other"), 100, 115, False, id="at-the-end-of-its-time"),
        pytest.param(_record("other"), 100, 115.1, True, id="past-its-time"),
        pytest.param(_record("other", seconds=60), 100, 130, False, id="the-holder-promised-longer"),
        pytest.param(_record("other", seconds=1), 100, 110, False, id="never-sooner-than-our-own-duration"),
        pytest.param(_record(""), 100, 100, True, id="given-back"),
        pytest.param(_record("me"), 100, 100, True, id="ours-already"),
    ],
)
def test_may_take(record: LeaseSpec, seen_at: float, now: float, expected: bool) -> None:
    assert may_take(Seen(record, seen_at), identity="me", now=now, timing=TIMING) is expected


def test_a_record_is_seen_anew_only_when_it_changes() -> None:
    first = observe(None, _record("other"), now=1)
    assert observe(first, _record("other"), now=9) is first
    assert observe(first, _record("other", renewed="t2"), now=9) == Seen(_record("other", renewed="t2"), 9)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"duration": 14}, id="stops-too-late"),
        pytest.param({"retry": 10}, id="no-second-try"),
        pytest.param({"retry": 0}, id="spins"),
    ],
)
def test_timing_that_would_allow_two_leaders_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="before its lease can be taken over"):
        Timing(**wrong)
