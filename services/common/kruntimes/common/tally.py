"""Figures that every call moves, for Prometheus: to count is one addition, and whoever scrapes pays for the rest.

prometheus_client's own take a lock for each addition, since threads may share them, and look for a histogram's bucket
one by one; on the path of a call that is a tenth of the work. These belong to the thread of the event loop, in which
they are scraped too.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_INFINITE = float("inf")


class Tally(Collector):
    """A counter with labels: `add` them, in their order. shown: label values that are told before they are counted."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        registry: CollectorRegistry,
        shown: Iterable[tuple[str, ...]] = (),
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self._counts: Counter[tuple[str, ...]] = Counter(dict.fromkeys(shown, 0))
        registry.register(self)

    def add(self, *values: str) -> None:
        """Counts one event with these label values."""
        self._counts[values] += 1

    def collect(self) -> Iterable[Metric]:
        """The figures as they are."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in self._counts.items():
            family.add_metric(values, count)
        yield family


class Spread(Collector):
    """A histogram without labels. buckets: upper bounds, rising; one without bound is added."""

    def __init__(self, name: str, documentation: str, *, buckets: Sequence[float], registry: CollectorRegistry) -> None:
        self._name, self._documentation = name, documentation
        self._bounds = (*buckets, _INFINITE)
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        """Notes one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterable[Metric]:
        """The figures as they are."""
        total, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip(self._bounds, self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == _INFINITE else str(float(bound)), total))
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)
