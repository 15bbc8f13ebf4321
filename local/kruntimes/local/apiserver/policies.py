"""The policy as it is now: compiled again when it is asked after a write to a role or binding."""

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.parts import Verdict
from kruntimes.local.apiserver.rbac import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, KEYS, ROLES, Policy, compiled
from kruntimes.local.apiserver.request import Request
from kruntimes.local.apiserver.store import Event


class Policies:
    """Follows the RBAC objects of one core; before `attach` it allows system:masters alone."""

    def __init__(self) -> None:
        self._api: Api | None = None
        self._compiled: Policy | None = Policy()

    def attach(self, api: Api) -> None:
        """Reads from *api* from now on."""
        self._api, self._compiled = api, None
        api.listen(self._wrote)

    def _wrote(self, event: Event) -> None:
        if event.resource in KEYS:
            self._compiled = None

    def now(self) -> Policy:
        """The policy of this moment."""
        if self._compiled is None:
            assert self._api is not None
            store = self._api.store
            self._compiled = compiled(
                roles=store.list(ROLES),
                cluster_roles=store.list(CLUSTER_ROLES),
                bindings=store.list(BINDINGS),
                cluster_bindings=store.list(CLUSTER_BINDINGS),
            )
        return self._compiled

    def authorize(self, request: Request) -> Verdict:
        """Whether a request is allowed."""
        return self.now().decide(request)
