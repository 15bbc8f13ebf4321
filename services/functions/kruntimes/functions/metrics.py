"""The manager's figures under the names of the second source document, and for Prometheus.

Whoever runs a service of runtime components hands it to `registered`; whoever scrapes uses `PrometheusCollector`.
Reading costs nothing on the path of a call: the figures are the manager's own counters.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kruntimes.functions.manager import Stats

PREFIX = "netdata.go.plugin.framework.functions.manager."
PROMETHEUS_PREFIX = "kruntimes_functions_manager_"


class Kind(Enum):
    """GAUGE: goes up and down. COUNTER: since the start."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. name: as in the source document, without its prefix."""

    name: str
    kind: Kind
    help: str
    read: Callable[[Stats], int]


FIGURES = (
    Figure("invocations_active", Kind.GAUGE, "Calls that were admitted and not answered.", lambda s: s.active),
    Figure(
        "invocations_awaiting_result", Kind.GAUGE, "Calls whose work ended without an answer.",
        lambda s: s.awaiting_result,
    ),
    Figure("scheduler_pending", Kind.GAUGE, "Calls that wait for their lane or a worker.", lambda s: s.pending),
    Figure(
        "cancel_fallback_total", Kind.COUNTER, "Cancelled calls that the manager had to answer itself.",
        lambda s: s.cancel_fallback,
    ),
    Figure(
        "late_terminal_dropped_total", Kind.COUNTER, "Answers to calls that had one.",
        lambda s: s.late_terminal_dropped,
    ),
    Figure(
        "duplicate_uid_ignored_total", Kind.COUNTER, "Input with an id in use or of the last minute.",
        lambda s: s.duplicate_uid_ignored,
    ),
    Figure("calls_total", Kind.COUNTER, "Calls that were read, whatever became of them.", lambda s: s.calls),
)  # fmt: skip
"""The six of the source document, and the one that the manager it describes counts as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """How the manager presents itself to a service of runtime components."""

    name: str = "functions.manager"
    module: str = "functions"
    job: str = "manager"
    autogen_charts: bool = True


COMPONENT = Component()


class ComponentService(Protocol):
    """What keeps runtime components."""

    def register(self, component: Component, read: Callable[[], dict[str, int]]) -> None:
        """Adds *component*; *read* gives its figures by their full names."""

    def unregister(self, name: str) -> None:
        """Takes the component of that name out."""


def figures(stats: Stats) -> dict[str, int]:
    """Every figure by its full name in the source document."""
    return {PREFIX + figure.name: figure.read(stats) for figure in FIGURES}


@contextlib.contextmanager
def registered(service: ComponentService | None, stats: Callable[[], Stats]) -> Iterator[None]:
    """Keeps the manager's component with *service*, where there is one, while the context lasts."""
    if service is None:
        yield
        return
    service.register(COMPONENT, lambda: figures(stats()))
    try:
        yield
    finally:
        service.unregister(COMPONENT.name)


class PrometheusCollector(Collector):
    """The same figures for a Prometheus registry, with answers by code and refused input by reason."""

    def __init__(self, stats: Callable[[], Stats]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """Reads them."""
        stats = self._stats()
        for figure in FIGURES:
            name = PROMETHEUS_PREFIX + figure.name
            family = GaugeMetricFamily if figure.kind is Kind.GAUGE else CounterMetricFamily
            yield family(name, figure.help, value=figure.read(stats))
        answers = CounterMetricFamily(PROMETHEUS_PREFIX + "answers", "Answers by code.", labels=["code"])
        for code, count in sorted(stats.answered.items()):
            answers.add_metric([str(code)], count)
        yield answers
        rejected = CounterMetricFamily(PROMETHEUS_PREFIX + "rejected", "Refused input by reason.", labels=["reason"])
        for reason, count in sorted(stats.rejected.items()):
            rejected.add_metric([reason], count)
        yield rejected
