"""What authz counts: results, never who asked for what (design §9)."""

from collections.abc import Sized

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kruntimes.authz.decide import Allow, Deny

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
"""Seconds: a hit takes tens of microseconds, a review some milliseconds, an unknown UID a quarter of a second."""


class Metrics:
    """Counters of checks by result and of reviews by what became of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._checks = Counter(
            "kruntimes_authz_checks",
            "Checks by result: allow, or the reason of the refusal.",
            ["result"],
            registry=registry,
        )
        self._reviews = Counter(
            "kruntimes_authz_reviews",
            "Questions to the decision cache, by how they were answered.",
            ["event"],
            registry=registry,
        )
        self._seconds = Histogram(
            "kruntimes_authz_check_seconds", "Seconds from a check to its answer.", buckets=BUCKETS, registry=registry
        )

        self._allowed = self._checks.labels("allow")
        self._events: dict[str, Counter] = {}
        self._index = Gauge("kruntimes_authz_index_runs", "Runs whose name is known.", registry=registry)

    def watch_index(self, index: Sized) -> None:
        """Shows the size of *index* from now on."""
        self._index.set_function(lambda: len(index))

    def answered(self, answer: Allow | Deny, seconds: float) -> None:
        """Counts one check."""
        (self._allowed if isinstance(answer, Allow) else self._checks.labels(answer.kind.reason)).inc()
        self._seconds.observe(seconds)

    def reviewed(self, event: str) -> None:
        """Counts what `kruntimes.common.access` tells: one of a few words."""
        counter = self._events.get(event)
        if counter is None:
            counter = self._events[event] = self._reviews.labels(event)
        counter.inc()
