"""What became of requests: one log line and one count for each, told some at a time (design §9). Shell.

Nobody waits for them, and told one by one they cost as much as the call itself: code that has left the processor's
caches, a system call, and a wake-up of whoever reads the log, all at the moment when the next call comes in. A line
carries the time at which its request ended.
"""

import asyncio
import logging

import msgspec

from kruntimes.common import logs
from kruntimes.common.api.outcomes import Outcome
from kruntimes.runtimed.metrics import Metrics

log = logging.getLogger(__name__)

TELL_SECONDS = 0.1
"""A line is written, and its request counted, at most this much later. A process that is killed takes these along."""
TOGETHER = 16
"""Requests that are told of at once: some 0.3 ms, for which other calls wait."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is over.

    at: seconds since the epoch; seconds: how long it took; status: 499 where nobody waited for it.
    """

    at: float
    seconds: float
    status: int
    outcome: Outcome
    run_uid: str | None
    invocation_id: str | None
    attempt: int | None


class Journal:
    """Tells of the requests to *runtime*, in the order in which they ended."""

    def __init__(self, runtime: str, metrics: Metrics) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._untold: list[Ended] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, ended: Ended) -> None:
        """Takes note of *ended*; costs its caller next to nothing."""
        self._untold.append(ended)
        if len(self._untold) == TOGETHER:
            asyncio.get_running_loop().call_soon(self.tell)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TELL_SECONDS, self._due)

    def tell(self) -> None:
        """Tells of whatever has not been told."""
        untold, self._untold = self._untold, []
        with logs.together():
            for ended in untold:
                self._metrics.answered(hop="gateway", status=ended.status, outcome=ended.outcome, seconds=ended.seconds)
                if log.isEnabledFor(logging.INFO):
                    log.handle(self._record(ended))

    def _due(self) -> None:
        self._timer = None
        self.tell()

    def _record(self, ended: Ended) -> logging.LogRecord:
        extra = {
            "runtime": self._runtime,
            "run_uid": ended.run_uid,
            "invocation_id": ended.invocation_id,
            "attempt": ended.attempt,
            "status": ended.status,
            "outcome": ended.outcome.value,
            "ms": round(ended.seconds * 1000, 2),
        }
        record = log.makeRecord(log.name, logging.INFO, "", 0, "invocation ended", (), None, extra=extra)
        record.created = ended.at
        return record
