"""How long to wait before the next try. Pure: randomness is an argument."""


def exponential(*, failures: int, first: float, cap: float, draw: float) -> float:
    """Seconds to wait after *failures* failures in a row (one-based), doubling from *first* up to *cap*.

    draw: a random number in [0, 1); the wait lies between half of the full step and the step, so that clients
    which failed together do not come back together, and none comes back at once.
    """
    if failures <= 0:
        return 0.0
    step = min(cap, first * 2.0 ** min(failures - 1, 32))
    return step * (0.5 + draw / 2)
