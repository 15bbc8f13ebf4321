"""What authz counts: results, never who asked for what (design §9)."""

from collections.abc import Sized

from prometheus_client import CollectorRegistry, Gauge

from kruntimes.authz.decide import Allow, Deny
from kruntimes.common.tally import Spread, Tally

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
"""Seconds: a hit takes tens of microseconds, a review some milliseconds, an unknown UID a quarter of a second."""


class Metrics:
    """Counters of checks by result and of reviews by what became of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._checks = Tally(
            "kruntimes_authz_checks",
            "Checks by result: allow, or the reason of the refusal.",
            ["result"],
            registry=registry,
            shown=[("allow",)],
        )
        self._reviews = Tally(
            "kruntimes_authz_reviews",
            "Questions to the decision cache, by how they were answered.",
            ["event"],
            registry=registry,
        )
        self._seconds = Spread(
            "kruntimes_authz_check_seconds", "Seconds from a check to its answer.", buckets=BUCKETS, registry=registry
        )
        self._index = Gauge("kruntimes_authz_index_runs", "Runs whose name is known.", registry=registry)

    def watch_index(self, index: Sized) -> None:
        """Shows the size of *index* from now on."""
        self._index.set_function(lambda: len(index))

    def answered(self, answer: Allow | Deny, seconds: float) -> None:
        """Counts one check."""
        self._checks.add("allow" if isinstance(answer, Allow) else answer.kind.reason)
        self._seconds.observe(seconds)

    def reviewed(self, event: str) -> None:
        """Counts what `kruntimes.common.access` tells: one of a few words."""
        self._reviews.add(event)
