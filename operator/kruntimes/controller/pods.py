"""The Pods' shell: heartbeats become the readiness gate, and their silence becomes news for the other controllers.

Source: design §5 ("Lost") and §13 (readiness gate `kruntimes.io/RuntimedReady`, written by the operator).
"""

import logging
from collections.abc import Callable

from kruntimes.common import clock
from kruntimes.common.api.names import READINESS_GATE
from kruntimes.common.api.views import Lease, Pod, condition
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import Conflict, Missing
from kruntimes.common.kube.queue import After, Done, WorkQueue, work
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.controller.book import Book
from kruntimes.controller.heartbeats import Heartbeats
from kruntimes.controller.lifecycle import LOST_SECONDS
from kruntimes.controller.views import timestamp

log = logging.getLogger(__name__)

WORKERS = 4
MANAGER = "kruntimes-operator"
"""The field manager of everything that the operator applies."""


class Pods:
    """Who is alive. on_change: called with a Pod when whether it lives, or for how long it has not, may matter."""

    def __init__(self, kube: Kube, book: Book, leases: Reflector[Lease], *, on_change: Callable[[Pod], None]) -> None:
        self._kube = kube
        self._book = book
        self._leases = leases
        self._beats = Heartbeats()
        self._since: dict[str, float] = {}
        self._lives: dict[str, bool] = {}
        self._on_change = on_change
        self._queue = WorkQueue()

    def alive(self, pod: Pod) -> bool:
        """Whether the Pod may be given new Runs, as far as its heartbeat goes."""
        return self._beats.alive(
            pod.metadata.key,
            pod.metadata.uid,
            monotonic=clock.monotonic(),
            healthy_since=self._leases.healthy_since(),
        )

    def silence(self, pod: Pod) -> float:
        """Seconds for which its heartbeat was not seen to change while the watch was healthy."""
        return self._beats.silence(
            pod.metadata.key,
            pod.metadata.uid,
            monotonic=clock.monotonic(),
            healthy_since=self._leases.healthy_since(),
            since=self._since.get(pod.metadata.uid, clock.monotonic()),
        )

    def lease_changed(self, key: str) -> None:
        """A Lease appeared, was renewed, or went."""
        lease = self._leases.store.get(key)
        if lease is None:
            self._beats.forget(key)
        else:
            self._beats.observe(lease, monotonic=clock.monotonic(), wall=clock.wall())
        pod = self._book.pod(key)
        if pod is not None and not self._lives.get(pod.metadata.uid, False):
            self._queue.add(key)

    def pod_changed(self, key: str, old: Pod | None) -> None:
        """A Pod appeared, changed or went; the book shows it already, *old* is what it showed before."""
        pod = self._book.pod(key)
        if old is not None and (pod is None or pod.metadata.uid != old.metadata.uid):
            self._since.pop(old.metadata.uid, None)
            self._lives.pop(old.metadata.uid, None)
        if pod is not None:
            self._since.setdefault(pod.metadata.uid, clock.monotonic())
            self._queue.add(key)

    async def run(self) -> None:
        """Watches over heartbeats until cancelled."""
        await work(self._queue, self._reconcile, workers=WORKERS)

    async def _reconcile(self, key: str) -> Done | After:
        """Looks again when the heartbeat, unless it is renewed, will have been silent for too long."""
        pod = self._book.pod(key)
        if pod is None:
            return Done()
        alive = self.alive(pod)
        silence = self.silence(pod)
        known = self._lives.get(pod.metadata.uid)
        self._lives[pod.metadata.uid] = alive
        if known is not None and known != alive:
            log.info(
                "heartbeat lives" if alive else "heartbeat is stale",
                extra={"pod": key, "pod_uid": pod.metadata.uid, "runtime": f"{pod.metadata.namespace}/{pod.runtime}"},
            )
        if known != alive or silence >= LOST_SECONDS:
            self._on_change(pod)
        await self._write_gate(pod, alive)
        return After(LOST_SECONDS - silence) if silence < LOST_SECONDS else Done()

    async def _write_gate(self, pod: Pod, alive: bool) -> None:
        """Sets the condition of the readiness gate; a Pod that has shown no life yet has none."""
        held = condition(pod.status.conditions, READINESS_GATE)
        wanted = "True" if alive else "False"
        if pod.metadata.deleting or (held.status if held is not None else "False") == wanted:
            return
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
            "status": {
                "conditions": [
                    {
                        "type": READINESS_GATE,
                        "status": wanted,
                        "reason": "HeartbeatLives" if alive else "HeartbeatStale",
                        "lastTransitionTime": timestamp(clock.wall()),
                    }
                ]
            },
        }
        path = paths.pods(pod.metadata.namespace, pod.metadata.name, "status")
        try:
            await self._kube.apply(path, body, Pod, manager=MANAGER)
        except (Missing, Conflict) as error:
            log.debug("pod went before its gate was written", extra={"pod": pod.metadata.key, "error": str(error)})
