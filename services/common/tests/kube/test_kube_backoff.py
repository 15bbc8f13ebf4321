"""Back-off doubles, has a cap, never spins, and heeds what the server asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.kube.backoff import exponential, wait_after
from kruntimes.common.kube.errors import TooManyRequests


@pytest.mark.parametrize(
    ("failures", "draw", "expected"),
    [
        pytest.param(0, 0.9, 0.0, id="no-failure"),
        pytest.param(1, 0.0, 0.5, id="first-at-least-half"),
        pytest.param(1, 1.0, 1.0, id="first-at-most-whole"),
        pytest.param(4, 1.0, 8.0, id="doubles"),
        pytest.param(5, 1.0, 10.0, id="cap"),
        pytest.param(10**6, 0.0, 5.0, id="no-overflow"),
    ],
)
def test_exponential(failures: int, draw: float, expected: float) -> None:
    assert exponential(failures=failures, first=1.0, cap=10.0, draw=draw) == expected


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_wait_lies_between_half_the_first_step_and_the_cap(failures: int, draw: float) -> None:
    assert 0.5 <= exponential(failures=failures, first=1.0, cap=10.0, draw=draw) <= 10.0


@pytest.mark.parametrize(("asked", "expected"), [(7.0, 7.0), (10_000.0, 20.0)], ids=["heeded", "capped"])
def test_retry_after(asked: float, expected: float) -> None:
    assert wait_after(TooManyRequests(status=429, retry_after=asked), failures=1, first=1.0, cap=20.0) == expected
