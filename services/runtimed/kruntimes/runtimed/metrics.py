"""What runtimed counts. No label names a Run: cardinality stays bounded (design §9)."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from kruntimes.common.api.outcomes import Outcome
from kruntimes.common.tally import Spread, Tally

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30, 60, 300, 900)
"""From a warm call of a millisecond to the longest deadline."""


class Metrics:
    """The figures of one runtimed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Tally(
            "kruntimes_runtimed_requests", "Requests answered.", ("hop", "status", "outcome"), registry=registry
        )
        self._seconds = Spread(
            "kruntimes_runtimed_invocation_seconds",
            "Time from request to answer, of invocations that were dispatched.",
            buckets=BUCKETS,
            registry=registry,
        )
        self.decisions = Counter(
            "kruntimes_runtimed_decisions", "Lifecycle decisions carried out.", ("decision",), registry=registry
        )
        self._access = Tally(
            "kruntimes_runtimed_access", "Authorization checks, by how they were answered.", ("how",), registry=registry
        )
        self.registered = Gauge("kruntimes_runtimed_registrations", "Functions held by this Pod.", registry=registry)
        self.fenced = Gauge("kruntimes_runtimed_fenced", "1 while the heartbeat is too old.", registry=registry)

    def checked(self, how: str) -> None:
        """Counts one authorization check; *how* is one of the few words of `Access`."""
        self._access.add(how)

    def answered(self, *, hop: str, status: int, outcome: Outcome, seconds: float) -> None:
        """Counts one answer; hop is `gateway` or `peer`."""
        self._requests.add(hop, str(status), outcome.value)
        if not outcome.retry_safe:
            self._seconds.observe(seconds)
