"""What code leaves to the garbage collector."""

import gc
from collections.abc import Callable

TRIES = 5


def least_garbage(act: Callable[[], object]) -> int:
    """How many objects in circles *act* leaves behind each time that it runs.

    The least of a few tries: threads and finalizers of other tests may leave theirs at any moment, but not at each.
    """
    found = []
    for _ in range(TRIES):
        gc.collect()
        gc.disable()
        try:
            act()
            found.append(gc.collect())
        finally:
            gc.enable()
    return min(found)
