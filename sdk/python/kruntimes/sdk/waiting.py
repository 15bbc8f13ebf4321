"""Waiting for a Run, for both clients: when to look again, and when to give up. Pure: Runs and times in."""

from dataclasses import dataclass

from kruntimes.common.api.phases import Phase
from kruntimes.common.api.views import Run
from kruntimes.sdk import wire
from kruntimes.sdk.errors import NotFoundError, NotReadyError

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
"""A wait asks often at first, since a warm Pod makes a function Ready at once, and then less and less often."""
GROWTH = 1.5


@dataclass(slots=True, kw_only=True)
class Waiting:
    """One wait for *state* (`wire.reached`), begun *at* on the monotonic clock, for *timeout* seconds."""

    name: str
    state: str
    timeout: float
    at: float
    _pause: float = FIRST_PAUSE_SECONDS

    def look(self, found: Run | None, *, now: float) -> float | None:
        """Seconds until the next look, or None where the Run (None: it is not there) has reached the state.

        Raises NotFoundError, EndedError where it never will, and NotReadyError where the time would be over.
        """
        if found is None and self.state != "deleted":
            raise NotFoundError(f"there is no Run {self.name}", status=404)
        if wire.reached(found, self.state):
            return None
        pause = self._pause
        if now + pause > self.at + self.timeout:
            said = standing(found) if found is not None else "gone"
            raise NotReadyError(f"Run {self.name} is not {self.state} after {self.timeout:g} s (it is {said})")
        self._pause = min(LONGEST_PAUSE_SECONDS, pause * GROWTH)
        return pause


def standing(run: Run) -> str:
    """Where *run* stands, in a few words: its phase and what its condition Ready says of the reason."""
    phase = "Deleting" if run.metadata.deleting else run.status.phase or Phase.PENDING
    ready = next((c for c in run.status.conditions if c.type == "Ready" and c.status != "True"), None)
    if ready is None or not ready.reason:
        return str(phase)
    return f"{phase}, {ready.reason}: {ready.message}" if ready.message else f"{phase}, {ready.reason}"
