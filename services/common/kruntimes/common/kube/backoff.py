"""How long to wait before the next try."""

from random import SystemRandom

from kruntimes.common.kube.errors import ApiError

draw = SystemRandom().random
"""A random number in [0, 1), for whoever spreads work over time."""


def exponential(*, failures: int, first: float, cap: float, draw: float) -> float:
    """Seconds to wait after *failures* failures in a row (one-based), doubling from *first* up to *cap*.

    draw: a random number in [0, 1); the wait lies between half of the full step and the step, so that clients
    which failed together do not come back together, and none comes back at once.
    """
    if failures <= 0:
        return 0.0
    step = min(cap, first * 2.0 ** min(failures - 1, 32))
    return step * (0.5 + draw / 2)


def wait_after(error: Exception | None, *, failures: int, first: float, cap: float) -> float:
    """As `exponential`, but no less than what the server asked for in *error*, though never more than *cap*."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(exponential(failures=failures, first=first, cap=cap, draw=draw()), min(asked or 0.0, cap))
