"""Every call that was admitted, from there to its one answer (second source document, "Tracking and finalization").

Pure: times are arguments. `finalise` is the only way to a terminal state, and the first who takes it wins.
"""

from collections import deque

from kruntimes.functions.invocation import Invocation, State


class Ledger:
    """Active calls by their id, and the ids that were answered lately.

    tombstone: how long such an id is remembered, in seconds; tombstones: how many are, at most.
    """

    def __init__(self, *, tombstone: float, tombstones: int) -> None:
        self.active: dict[str, Invocation] = {}
        self.awaiting = 0
        self.late_terminal_dropped = 0
        self._seconds = tombstone
        self._most = tombstones
        self._dead: set[str] = set()
        self._expiry: deque[tuple[float, str]] = deque()

    def known(self, uid: str, now: float) -> bool:
        """Whether *uid* is active, or was answered lately: then its input is a duplicate."""
        expiry = self._expiry
        while expiry and expiry[0][0] <= now:
            self._dead.discard(expiry.popleft()[1])
        return uid in self.active or uid in self._dead

    def add(self, invocation: Invocation) -> None:
        """Admits *invocation*, whose id is not known."""
        assert invocation.call.uid not in self.active, "an id is admitted once"
        self.active[invocation.call.uid] = invocation

    def run(self, invocation: Invocation) -> None:
        """queued → running."""
        assert invocation.state is State.QUEUED, "only a queued call starts"
        invocation.state = State.RUNNING
        invocation.working = True

    def await_result(self, invocation: Invocation) -> None:
        """running → awaiting_result: its work ended without an answer."""
        assert invocation.state is State.RUNNING, "only a running call can be left unanswered"
        invocation.state = State.AWAITING_RESULT
        self.awaiting += 1

    def finalise(self, invocation: Invocation, now: float) -> bool:
        """Makes *invocation* terminal; False where it was already, and the answer at hand must be dropped."""
        if invocation.state is State.TERMINAL:
            self.late_terminal_dropped += 1
            return False
        if invocation.state is State.AWAITING_RESULT:
            self.awaiting -= 1
        invocation.state = State.TERMINAL
        del self.active[invocation.call.uid]
        self.bury(invocation.call.uid, now)
        return True

    def bury(self, uid: str, now: float) -> None:
        """Remembers *uid* for a while, as one that was answered."""
        self._dead.add(uid)
        self._expiry.append((now + self._seconds, uid))
        if len(self._expiry) > self._most:
            self._dead.discard(self._expiry.popleft()[1])

    @property
    def tombstones(self) -> int:
        """How many answered ids are remembered."""
        return len(self._dead)
