"""The Runtime Server's figures for Prometheus; no Run appears in a label (design §9)."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kruntimes.common.tally import Spread, Tally
from kruntimes.runtime.ladder import Action

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)


class Metrics:
    """What is counted; each method is named after the event."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._invocations = Tally(
            "kruntimes_runtime_invocations", "Invocations that ended, by code.", ["code"], registry=registry
        )
        self._refused = Counter(
            "kruntimes_runtime_refused", "Invocations refused because one was in flight.", registry=registry
        )
        self._stops = Counter(
            "kruntimes_runtime_stops", "Invocations that were stopped, by the last step taken.", ["stage"],
            registry=registry,
        )  # fmt: skip
        self._seconds = Spread(
            "kruntimes_runtime_invocation_seconds", "From admission to the end of the work.", buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self._initialisations = Counter(
            "kruntimes_runtime_initialisations", "Functions that were initialised.", ["outcome"], registry=registry
        )
        self._initialisation_seconds = Histogram(
            "kruntimes_runtime_initialisation_seconds", "Start and import, or sourcing.", buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self._strangers = Counter(
            "kruntimes_runtime_strangers", "Connections to our sockets that were refused.", registry=registry
        )
        self._tasks = Counter(
            "kruntimes_runtime_tasks", "Task executions that ended.", ["outcome", "reason"], registry=registry
        )
        self._in_flight = Gauge("kruntimes_runtime_in_flight", "Invocations that run now.", registry=registry)
        for stage in Action:
            self._stops.labels(stage.value)

    def follow(self, in_flight: Callable[[], float]) -> None:
        """Reads the gauge from its source."""
        self._in_flight.set_function(in_flight)

    def invoked(self, *, code: int, stage: Action | None, seconds: float) -> None:
        """An invocation ended."""
        self._invocations.add(str(code))
        self._seconds.observe(seconds)
        if stage is not None:
            self._stops.labels(stage.value).inc()

    def refused(self) -> None:
        """An invocation overlapped another."""
        self._refused.inc()

    def stranger(self) -> None:
        """A connection to one of our sockets was refused."""
        self._strangers.inc()

    def task_ended(self, *, ok: bool, reason: str) -> None:
        """A task execution ended."""
        self._tasks.labels("succeeded" if ok else "failed", reason).inc()

    def initialised(self, *, ok: bool, seconds: float) -> None:
        """A function's first initialisation ended."""
        self._initialisations.labels("ready" if ok else "failed").inc()
        self._initialisation_seconds.observe(seconds)
