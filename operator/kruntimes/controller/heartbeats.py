"""How long a heartbeat has been silent, on the operator's own monotonic clock.

Two machines' clocks are never compared to call a Pod lost: only a change that was seen counts, and only while
the watch could have shown one. After an outage of the watch the time begins anew.

Source: design §5, "Lost" and "Self-fence".
"""

from dataclasses import dataclass

from kruntimes.common.api.views import Lease
from kruntimes.controller.lifecycle import LOST_SECONDS
from kruntimes.controller.views import instant


@dataclass(frozen=True, slots=True)
class Beat:
    """The last renewal that was seen. seen: monotonic seconds; fresh: it was recent when it was first seen."""

    renewed: str
    seen: float
    fresh: bool


class Heartbeats:
    """What was seen of every Pod's Lease; keys are `namespace/name` of Pod and Lease alike."""

    def __init__(self) -> None:
        self._beats: dict[tuple[str, str], Beat] = {}

    def observe(self, lease: Lease, *, monotonic: float, wall: float) -> None:
        """Takes note of a Lease as the watch shows it.

        Of the first sight of a Lease it is not known how old it is; it counts as life only if its own time is
        recent by *wall*. Every change after that is life by itself, whatever the clocks say.
        """
        key = (lease.metadata.key, holder(lease))
        known = self._beats.get(key)
        if known is not None and known.renewed == lease.spec.renew_time:
            return
        self._beats[key] = Beat(lease.spec.renew_time, monotonic, known is not None or _recent(lease, wall))

    def forget(self, key: str) -> None:
        """Drops what is known of a Lease that was deleted."""
        for known in [known for known in self._beats if known[0] == key]:
            del self._beats[known]

    def silence(self, key: str, uid: str, *, monotonic: float, healthy_since: float | None, since: float) -> float:
        """Seconds without a sign of life of the Pod *uid*; 0 while the watch is broken.

        since: monotonic seconds at which the Pod was first seen, for one that has shown no sign yet.
        """
        if healthy_since is None:
            return 0.0
        beat = self._beats.get((key, uid))
        last = since if beat is None else beat.seen
        return max(0.0, monotonic - max(last, healthy_since))

    def alive(self, key: str, uid: str, *, monotonic: float, healthy_since: float | None) -> bool:
        """Whether the Pod *uid* may be given new Runs: it has shown life, and no more than 30 s ago."""
        beat = self._beats.get((key, uid))
        if beat is None or not beat.fresh:
            return False
        return self.silence(key, uid, monotonic=monotonic, healthy_since=healthy_since, since=0.0) < LOST_SECONDS


def holder(lease: Lease) -> str:
    """The UID of the Pod whose sign of life a Lease is: of its owner, else what it names as its holder."""
    owner = next((owner.uid for owner in lease.metadata.owner_references if owner.kind == "Pod"), "")
    return owner or lease.spec.holder_identity


def _recent(lease: Lease, wall: float) -> bool:
    try:
        return abs(wall - instant(lease.spec.renew_time)) < LOST_SECONDS
    except ValueError:
        return False
