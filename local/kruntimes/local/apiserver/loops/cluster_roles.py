"""ClusterRoles that are put together from others by label. Shell over `rbac.aggregated`."""

from collections.abc import Iterable

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.loops.resource import resource
from kruntimes.local.apiserver.loops.work import follow
from kruntimes.local.apiserver.rbac import CLUSTER_ROLES, aggregated
from kruntimes.local.apiserver.store import Event


class Aggregation:
    """The loop: keys are names of ClusterRoles with an aggregationRule."""

    def __init__(self, api: Api) -> None:
        self._api, self._store = api, api.store

    async def run(self) -> None:
        """Until it is cancelled."""
        await follow(self._api, keys=self.keys, reconcile=self.reconcile, start=self._wholes())

    def _wholes(self) -> list[str]:
        roles = self._store.list(CLUSTER_ROLES)
        return [role["metadata"]["name"] for role in roles if role.get("aggregationRule") is not None]

    def keys(self, event: Event) -> Iterable[str]:
        """Any ClusterRole may be part of any other."""
        return self._wholes() if event.resource == CLUSTER_ROLES else ()

    def reconcile(self, name: str) -> float | None:
        """Writes the rules where they are not what they should be."""
        role = self._store.peek(CLUSTER_ROLES, "", name)
        rules = aggregated(role, self._store.list(CLUSTER_ROLES)) if role is not None else None
        if role is not None and rules is not None and rules != (role.get("rules") or []):
            self._api.change(resource(self._api, CLUSTER_ROLES), "", name, lambda obj: {**obj, "rules": rules})
        return None
