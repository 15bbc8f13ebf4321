"""What the router counts (design §9); no label has an unbounded set of values."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kruntimes.router.snapshot import Snapshot
from kruntimes.router.stream import ORDER
from kruntimes.router.subscription import Reply

_PUSH_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Seconds: 3 ms is usual for one change, a full load takes a second or more."""
_OTHER_TYPE = "other"


class Metrics:
    """The router's figures in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "kruntimes_router"
        self._registry = registry
        self._resources = Gauge(f"{prefix}_resources", "Published resources.", ["type"], registry=registry)
        self._runs = Gauge(
            f"{prefix}_runs", "Ready Runs, by whether they are routed or why not.", ["outcome"], registry=registry
        )
        self._sent = Counter(f"{prefix}_sent_bytes", "Bytes of responses to Envoys.", ["type"], registry=registry)
        self._replies = Counter(
            f"{prefix}_replies",
            "Requests of Envoys, by what they say of a response.",
            ["type", "reply"],
            registry=registry,
        )
        self._push = Histogram(
            f"{prefix}_push_seconds",
            "From publication of a change to an Envoy's acknowledgement.",
            ["type"],
            buckets=_PUSH_BUCKETS,
            registry=registry,
        )
        self.streams = Gauge(f"{prefix}_streams", "Connected Envoys.", registry=registry)
        self._refused = Counter(f"{prefix}_streams_refused", "Streams refused.", ["reason"], registry=registry)
        for type_url in ORDER:
            for reply in (Reply.ACK, Reply.NACK):
                self._replies.labels(_short(type_url), reply.value)

    def published(self, snapshot: Snapshot, runs: Mapping[str, int]) -> None:
        """What is published now; runs: the number of Runs by outcome."""
        for type_url in ORDER:
            self._resources.labels(_short(type_url)).set(len(snapshot.of_type(type_url)))
        for outcome, count in runs.items():
            self._runs.labels(outcome).set(count)

    def sent(self, type_url: str, size: int) -> None:
        """A response of *size* bytes was handed to the connection."""
        self._sent.labels(_short(type_url)).inc(size)

    def replied(self, type_url: str, reply: Reply) -> None:
        """A request came."""
        self._replies.labels(_short(type_url), reply.value).inc()

    def pushed(self, type_url: str, seconds: float) -> None:
        """A change that was published *seconds* ago is in effect at one Envoy."""
        self._push.labels(_short(type_url)).observe(seconds)

    def refused(self, reason: str) -> None:
        """A stream was refused."""
        self._refused.labels(reason).inc()

    def watch(
        self, *, age_of: Mapping[str, Callable[[], float]], undecodable: Mapping[str, Callable[[], float]]
    ) -> None:
        """Reports of each watch, at each scrape: seconds without a gap, 0 while it is broken; objects passed over."""
        ages = Gauge(
            "kruntimes_router_watch_age_seconds",
            "How long each watch has been without a gap; 0 while it is broken.",
            ["kind"],
            registry=self._registry,
        )
        for kind, age in age_of.items():
            ages.labels(kind).set_function(age)
        passed_over = Gauge(
            "kruntimes_router_undecodable_objects",
            "Objects that could not be read since the start.",
            ["kind"],
            registry=self._registry,
        )
        for kind, count in undecodable.items():
            passed_over.labels(kind).set_function(count)


def _short(type_url: str) -> str:
    """`RouteConfiguration` and the like; whatever else a client names is one label."""
    return type_url.rpartition(".")[2] if type_url in ORDER else _OTHER_TYPE
