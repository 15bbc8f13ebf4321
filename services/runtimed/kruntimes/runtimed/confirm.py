"""After a self-fence: what we hold is served again only where the API says, now, that it is still ours (design §5).

While we were silent the operator may have proved us so, and given our Runs to others. The renewed heartbeat ends the
silence at once, the watch tells of the change a little later, and between the two a Run would be served twice.
"""

from collections.abc import Callable, Mapping

from kruntimes.common import clock
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.views import RouteRun
from kruntimes.common.kube import paths
from kruntimes.common.kube.transport import Kube
from kruntimes.runtimed.held import Held, Registry

REPEAT_SECONDS = 1.0
"""Between two questions to an API server that does not answer; nothing is served meanwhile."""


def ours(held: Held, runs: Mapping[str, RouteRun]) -> bool:
    """Whether *held* may go on. runs: by UID, all that are assigned to our Pod at this moment."""
    run = runs.get(held.epoch.run_uid)
    if run is None or run.metadata.deleting or run.epoch != held.epoch:
        return False
    return run.status.phase in (Phase.RUNNING, Phase.READY)


async def confirm(
    kube: Kube, registry: Registry, *, namespace: str, pod_uid: str, look: Callable[[Held], None]
) -> None:
    """Closes what is not ours any more; look: is told of each. Raises ApiError where the API server gave no answer."""
    found, _ = await kube.list(paths.runs(namespace), RouteRun, field_selector=f"status.assignedPodUID={pod_uid}")
    runs = {run.metadata.uid: run for run in found}
    for held in registry:
        if not ours(held, runs) and held.open:
            held.open, held.closed_at = False, clock.monotonic()
            look(held)
