"""Tallies and spreads are scraped as prometheus_client's own counters and histograms are."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from kruntimes.common.tally import Spread, Tally

BOUNDS = (0.001, 0.25, 1, 30)


def exposition(registry: CollectorRegistry) -> list[str]:
    """Without when each figure was made, which the standard ones tell too."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", 'y"\\\n']))))
def test_a_tally_is_a_counter(events: list[tuple[str, str]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = Tally("calls", "Calls.", ("hop", "what"), registry=ours, shown=[("a", "x")])
    counter = Counter("calls", "Calls.", ("hop", "what"), registry=theirs)
    counter.labels("a", "x")
    for event in events:
        tally.add(*event)
        counter.labels(*event).inc()
    assert exposition(ours) == exposition(theirs)


@given(st.lists(st.floats(0, 100) | st.sampled_from(BOUNDS)))
def test_a_spread_is_a_histogram(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread("seconds", "Seconds.", buckets=BOUNDS, registry=ours)
    histogram = Histogram("seconds", "Seconds.", buckets=BOUNDS, registry=theirs)
    for value in values:
        spread.observe(value)
        histogram.observe(value)
    assert exposition(ours) == exposition(theirs)
