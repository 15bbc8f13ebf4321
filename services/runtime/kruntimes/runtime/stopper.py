"""How one call is stopped on its host, step by step (shell around `ladder`)."""

import asyncio

from kruntimes.runtime.hosts import HostProcess
from kruntimes.runtime.ladder import LADDERS, Action, Why, faster


class Stopper:
    """Climbs the ladder against the call *uid*; told to stop for a second reason, it takes the faster one.

    why: for the caller's answer. stage: the last step taken. Costs nothing for a call that is not stopped.
    """

    __slots__ = ("_host", "_timers", "_uid", "stage", "why")

    def __init__(self, uid: str) -> None:
        self.why: Why | None = None
        self.stage: Action | None = None
        self._uid = uid
        self._host: HostProcess | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def at(self, seconds: float, why: Why) -> None:
        """Begins to stop in *seconds*."""
        self._timers.append(asyncio.get_running_loop().call_later(seconds, self.stop, why))

    def begin(self, host: HostProcess) -> None:
        """The call is on *host* from now on."""
        self._host = host

    def stop(self, why: Why) -> None:
        """Begins to stop the call; safe to repeat."""
        self.why = faster(self.why, why)
        if self._host is not None:
            for step in LADDERS[why]:
                self._timers.append(asyncio.get_running_loop().call_later(step.after, self._act, step.action))

    def end(self) -> None:
        """The work has ended; no further step is taken."""
        for timer in self._timers:
            timer.cancel()

    def _act(self, action: Action) -> None:
        assert self._host is not None
        order = list(Action)
        if self.stage is None or order.index(action) > order.index(self.stage):
            self.stage = action
        self._host.act(action, self._uid)
