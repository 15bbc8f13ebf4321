"""The self-fence: while the heartbeat is too old nothing is served here, nor after that before the API has spoken.

Source: design §5, "Self-fence". The rules are in `heartbeat` and `confirm`; this holds the state between them.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kruntimes.common.kube import errors
from kruntimes.common.kube.transport import Kube
from kruntimes.runtimed.confirm import REPEAT_SECONDS, confirm
from kruntimes.runtimed.heartbeat import Pulse, pulse_of, watch_pulse
from kruntimes.runtimed.held import Held, Registry
from kruntimes.runtimed.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class SelfFence:
    """Whether we may be relied on. last_renewed: as `Heartbeat.last_renewed`. look: at one epoch again; look_at_all:
    at everything, since the answer has changed for all.
    """

    kube: Kube
    registry: Registry
    metrics: Metrics
    namespace: str
    pod_uid: str
    last_renewed: Callable[[], float]
    look: Callable[[Held], None]
    look_at_all: Callable[[], None]
    tasks: asyncio.TaskGroup
    _doubtful: bool = field(default=False)

    @property
    def stale(self) -> bool:
        """Whether others may take us for lost."""
        return self._pulse() >= Pulse.STALE

    @property
    def holds(self) -> bool:
        """Whether no invocation may be let in."""
        return self._doubtful or self._pulse() is Pulse.FENCED

    async def run(self) -> None:
        """Watches the heartbeat's age until cancelled."""
        await watch_pulse(self._pulse, self._changed)

    def _pulse(self) -> Pulse:
        return pulse_of(self.last_renewed)

    def _changed(self, current: Pulse) -> None:
        if current is Pulse.FENCED:
            self._doubtful = True
        elif self._doubtful:
            self.tasks.create_task(self._confirm())
        self.metrics.fenced.set(current is Pulse.FENCED)
        if current is not Pulse.LIVE:
            log.warning("heartbeat is old", extra={"pulse": current.name.lower()})
        self.look_at_all()

    async def _confirm(self) -> None:
        """Ends the fence once the API has said what of all that we hold is still ours."""
        while self._doubtful and self._pulse() is not Pulse.FENCED:
            try:
                await confirm(self.kube, self.registry, namespace=self.namespace, pod_uid=self.pod_uid, look=self.look)
            except errors.ApiError as error:
                log.warning("not known yet what is ours", extra={"error": error.reason})
                await asyncio.sleep(REPEAT_SECONDS)
            else:
                self._doubtful = self._pulse() is Pulse.FENCED
        self.look_at_all()
