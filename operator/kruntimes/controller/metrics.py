"""The operator's figures. Their names stand beside the decisions that they count; no label holds a Run (design §9)."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from kruntimes.controller.approve import ISSUED_TOTAL
from kruntimes.controller.lifecycle import DECISIONS_TOTAL
from kruntimes.controller.schedule import ASSIGNED_TOTAL, ENDED_TOTAL, PENDING_RUNS

LEADING = "kruntimes_operator_leading"


class Metrics:
    """The counters of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.assigned = Counter(ASSIGNED_TOTAL, "Runs that were given a Pod.", registry=registry)
        self.ended = Counter(
            ENDED_TOTAL, "Runs that ended before they were given a Pod.", ["reason"], registry=registry
        )
        self.decisions = Counter(
            DECISIONS_TOTAL, "Lifecycle decisions carried out.", ["decision", "reason"], registry=registry
        )
        self.certificates = Counter(
            ISSUED_TOTAL, "Certificate requests answered.", ["signer", "verdict"], registry=registry
        )
        self._pending = Gauge(PENDING_RUNS, "Runs that wait for a Pod.", registry=registry)
        self._leading = Gauge(LEADING, "1 in the replica that decides, 0 in the others.", registry=registry)

    def observe(self, *, pending: Callable[[], float], leading: Callable[[], bool]) -> None:
        """Reads two figures where they are, whenever they are asked for."""
        self._pending.set_function(pending)
        self._leading.set_function(lambda: float(leading()))
