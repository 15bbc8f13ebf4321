"""Durations, quantities and the retry decision (design §4 and §5)."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kruntimes.common.api import quantities
from kruntimes.common.api.durations import seconds
from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.retry import BACKOFF_CAP_SECONDS, backoff_seconds, may_retry


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0", 0),
        ("+0", 0),
        ("0s", 0),
        ("30s", 30),
        ("+5s", 5),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h15m30.918273645s", 4530.918273645),
        ("1m1h", 3660),
        ("1s1s", 2),
        ("250ms", 0.25),
        (".5s", 0.5),
        ("1.s", 1),
        ("1.5h", 5400),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("1μs", 1e-6),
        ("1ns", 1e-9),
        ("0.4ns", 0),
        ("007s", 7),
        ("0.1s", 0.1),
        ("2562047h47m16.854775807s", 2562047 * 3600 + 47 * 60 + 16.854775807),
    ],
)
def test_durations_mean_what_go_means(text: str, meant: float) -> None:
    assert seconds(text) == meant


@pytest.mark.parametrize(
    "text",
    ["", " ", "5", "s", ".", ".s", "5 s", " 5s", "5s ", "5s\n", "5d", "5S", "5sm", "1h-5m", "-5s", "-0", "++5s", "1e3s",
     "0x5s", "1,5s", "1_0s", "٥s", "1..5s", "5s!", "2562047h47m16.854775808s", "99999999999999h", "inf", "nan"],
)  # fmt: skip
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds(text)


@settings(deadline=None)
@given(st.integers(0, 2**53))
def test_a_duration_of_whole_nanoseconds_is_exact(nanos: int) -> None:
    h, rest = divmod(nanos, 3_600_000_000_000)
    m, rest = divmod(rest, 60_000_000_000)
    s, n = divmod(rest, 1_000_000_000)
    assert seconds(f"{h}h{m}m{s}.{n:09d}s") == nanos / 1e9
    assert seconds(f"{nanos}ns") == nanos / 1e9


@pytest.mark.parametrize(
    ("value", "meant"),
    [(0, 0), (7, 7), ("0", 0), ("2", 2), ("007", 7), ("1k", 1000), ("3M", 3_000_000), ("2G", 2_000_000_000),
     ("1Ki", 1024), ("2Mi", 2 * 1024**2), ("999999999Gi", 999_999_999 * 1024**3)],
)  # fmt: skip
def test_quantities(value: str | int, meant: int) -> None:
    assert quantities.parse(value) == meant < 2**63


@pytest.mark.parametrize(
    "value", ["", "-1", -1, "+1", "1.0", "500m", "1e3", "1T", "1ki", "K", " 1", "1 ", "1\n", "٢", 10**9, True, "1_0"]
)
def test_what_is_no_quantity(value: str | int) -> None:
    with pytest.raises(ValueError, match="not a whole quantity"):
        quantities.parse(value)


def test_runs_is_always_among_requests_and_capacity() -> None:
    assert quantities.requests({}) == {"runs": 1}
    assert quantities.requests({"gpu": "1"}) == {"runs": 1, "gpu": 1}
    assert quantities.requests({"runs": 3}) == {"runs": 3}
    assert quantities.capacity({}) == {"runs": 2}
    assert quantities.capacity({"runs": "8", "gpu": "1k"}) == {"runs": 8, "gpu": 1000}


NEVER = {Reason.CANCELLED, Reason.LIFETIME_TIMEOUT, Reason.IDLE_TIMEOUT}


@pytest.mark.parametrize("reason", Reason)
def test_with_no_list_every_reason_is_worth_another_attempt_but_an_intended_end(reason: Reason) -> None:
    assert may_retry(attempt=1, max_attempts=2, reason=reason, retryable=()) is (reason not in NEVER)
    assert may_retry(attempt=1, max_attempts=2, reason=reason, retryable=[r.value for r in Reason]) is (
        reason not in NEVER
    )


@pytest.mark.parametrize(
    ("attempt", "max_attempts", "retryable", "again"),
    [
        (0, 1, (), True),
        (1, 1, (), False),
        (1, 2, (), True),
        (2, 2, (), False),
        (99, 100, (), True),
        (100, 100, (), False),
        (101, 100, (), False),
        (1, 2, ("RuntimePodLost",), True),
        (1, 2, ("RegistrationFailed", "RuntimePodLost"), True),
        (1, 2, ("RegistrationFailed",), False),
        (1, 2, ("runtimepodlost",), False),
    ],
)
def test_attempts_and_reasons(attempt: int, max_attempts: int, retryable: tuple[str, ...], again: bool) -> None:
    decided = may_retry(attempt=attempt, max_attempts=max_attempts, reason=Reason.RUNTIME_POD_LOST, retryable=retryable)
    assert decided is again


@pytest.mark.parametrize(
    ("attempt", "base", "wait"),
    [(1, 1.0, 1.0), (2, 1.0, 2.0), (3, 1.0, 4.0), (6, 1.0, 32.0), (7, 1.0, 60.0), (100, 1.0, 60.0), (1, 0.5, 0.5),
     (1, 90.0, 60.0), (5, 0.0, 0.0), (0, 3.0, 3.0), (10**9, 1e-9, 1e-9 * 2**32)],
)  # fmt: skip
def test_backoff(attempt: int, base: float, wait: float) -> None:
    assert backoff_seconds(attempt=attempt, base=base) == wait


@settings(deadline=None)
@given(st.floats(0, 1e9, allow_nan=False))
def test_backoff_never_falls_and_never_passes_its_cap(base: float) -> None:
    waits = [backoff_seconds(attempt=attempt, base=base) for attempt in range(1, 110)]
    assert all(0 <= a <= b <= BACKOFF_CAP_SECONDS for a, b in itertools.pairwise(waits))
