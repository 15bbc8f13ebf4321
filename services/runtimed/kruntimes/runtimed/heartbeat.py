"""What the age of our own heartbeat means: the self-fence (design §5, "Self-fence").

A runtimed that cannot renew falls silent by itself, before the operator takes it for dead.
"""

import asyncio
from collections.abc import Callable
from enum import IntEnum

from kruntimes.common import clock

STALE_SECONDS = 30.0
"""A heartbeat this old counts as lost: no new Runs come, and the operator withdraws the routes."""
FENCE_SECONDS = 60.0
"""Without a renewal for this long no invocation is let in; the operator counts 75 s before it takes over."""
RESTART_SECONDS = 300.0
"""A self-fence that has held for this long asks for a restart: an outage of the API server is over by then as a rule,
and what is wrong with this process alone (a token that is refused for ever, a stuck connection) is not mended here."""
LOOK_SECONDS = 1.0
"""How often the age is looked at: well within the 10 s in which calls under way must have ended."""
FIRST_LOOK_SECONDS = 0.02
"""How often the first heartbeat is looked for, which holds up the start."""


class Pulse(IntEnum):
    """How far one may rely on us."""

    LIVE = 0
    STALE = 1
    FENCED = 2


def pulse(*, last_renewed: float, now: float) -> Pulse:
    """What the age of the renewal at *last_renewed* means at *now*, both monotonic.

    A process that has never renewed has nothing registered that it could serve, and counts as fenced.
    """
    age = now - last_renewed
    if age >= FENCE_SECONDS:
        return Pulse.FENCED
    return Pulse.STALE if age >= STALE_SECONDS else Pulse.LIVE


def alive(*, last_renewed: float, begun: float | None, now: float) -> bool:
    """Whether this process may still come back by itself; False asks the kubelet for a restart. Monotonic times.

    begun: when the heartbeat began, None before: until then we wait for others, and a restart would mend nothing.
    Nothing is lost with a fenced process: its calls have ended, and what is registered is found again.
    """
    return begun is None or now - max(last_renewed, begun) < FENCE_SECONDS + RESTART_SECONDS


async def first_renewal(last_renewed: Callable[[], float]) -> None:
    """Waits, without end, for the first heartbeat: before it nothing may be served."""
    while last_renewed() == float("-inf"):  # noqa: ASYNC110 (the heartbeat tells its age and nothing else)
        await asyncio.sleep(FIRST_LOOK_SECONDS)


async def watch_pulse(read: Callable[[], Pulse], on_change: Callable[[Pulse], None]) -> None:
    """Tells each change of the pulse, until cancelled; the first look always tells."""
    known: Pulse | None = None
    while True:
        current = read()
        if current is not known:
            known = current
            on_change(current)
        await asyncio.sleep(LOOK_SECONDS)


def pulse_of(last_renewed: Callable[[], float]) -> Pulse:
    """The pulse at this moment; *last_renewed* as `Heartbeat.last_renewed`."""
    return pulse(last_renewed=last_renewed(), now=clock.monotonic())
