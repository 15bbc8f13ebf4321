"""A runtimed's rights in the namespaces of Runtimes: one RoleBinding for each, whose subjects are who needs them.

The binding names the ServiceAccount of every Runtime and of every Pod that is left of one, since a Pod that drains
still unregisters its Runs after its Runtime went or has moved to another account. Its name is always the same, so
that the operator's own rights on bindings end at that name. None of this is owned by a Runtime: several share it.

Source: design §4 (the operator binds runtimed's role to whichever ServiceAccount the template names).
"""

import logging
from typing import Any

from kruntimes.common.api.names import RUNTIMED_ROLE, RUNTIMED_SERVICE_ACCOUNT
from kruntimes.common.api.views import Object, Runtime
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import AlreadyExists, Forbidden, Invalid, Missing
from kruntimes.common.kube.queue import After, Done, WorkQueue, work
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.controller.book import Book
from kruntimes.controller.pods import MANAGER
from kruntimes.controller.podtemplate import MANAGED_BY, service_account
from kruntimes.controller.views import RoleBinding

log = logging.getLogger(__name__)

WORKERS = 2
"""Namespaces that are looked at once; there are few, and what is done for one is a write or two."""


def standing(binding: RoleBinding | None) -> frozenset[str]:
    """The ServiceAccounts of its own namespace that *binding* gives a runtimed's rights; none where there is none."""
    if binding is None or binding.metadata.deleting or binding.role_ref.name != RUNTIMED_ROLE:
        return frozenset()
    home = binding.metadata.namespace
    return frozenset(
        one.name for one in binding.subjects if one.kind == "ServiceAccount" and one.namespace in ("", home)
    )


def role_binding(namespace: str, accounts: frozenset[str]) -> dict[str, Any]:
    """The binding that gives *accounts* a runtimed's rights in their *namespace*."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": RUNTIMED_ROLE, "namespace": namespace, "labels": MANAGED_BY},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": RUNTIMED_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace} for name in sorted(accounts)],
    }


class Grants:
    """Keeps the bindings, and the ServiceAccount of templates that name none. Caches: of the one name each."""

    def __init__(
        self,
        kube: Kube,
        book: Book,
        *,
        runtimes: Reflector[Runtime],
        bindings: Reflector[RoleBinding],
        accounts: Reflector[Object],
    ) -> None:
        self._kube = kube
        self._book = book
        self._runtimes = runtimes
        self._bindings = bindings
        self._accounts = accounts
        self._queue = WorkQueue()

    def changed(self, namespace: str) -> None:
        """The binding or the account of *namespace* changed, or who needs them may have."""
        self._queue.add(namespace)

    async def run(self) -> None:
        """Keeps what is needed until cancelled."""
        await work(self._queue, self._reconcile, workers=WORKERS)

    async def ensure(self, namespace: str) -> None:
        """Gives all that Runtimes and Pods of *namespace* need, unless it stands; to be waited for before a Pod."""
        declared = self._declared(namespace)
        if RUNTIMED_SERVICE_ACCOUNT in declared:
            await self._ensure_account(namespace)
        wanted = declared | self._book.accounts(namespace)
        if wanted == standing(self._bindings.store.get(f"{namespace}/{RUNTIMED_ROLE}")):
            return
        path = paths.rolebindings(namespace, RUNTIMED_ROLE)
        await self._kube.apply(path, role_binding(namespace, wanted), Object, manager=MANAGER)
        log.info("rights of runtimed bound", extra={"namespace": namespace, "accounts": sorted(wanted)})

    async def _reconcile(self, namespace: str) -> Done | After:
        held = self._bindings.store.get(f"{namespace}/{RUNTIMED_ROLE}")
        try:
            if self._declared(namespace) or self._book.accounts(namespace):
                await self.ensure(namespace)
            elif held is not None and _ours(held):
                path = paths.rolebindings(namespace, RUNTIMED_ROLE)
                await self._kube.delete(path, uid=held.metadata.uid)
                log.info("rights of runtimed withdrawn", extra={"namespace": namespace})
        except (Missing, Forbidden, Invalid) as error:
            # The namespace is gone or going, and takes the binding with it; or a foreign binding has the name, which
            # the Runtime's status says.
            log.info("rights of runtimed not kept", extra={"namespace": namespace, "error": error.message})
        return Done()

    def _declared(self, namespace: str) -> frozenset[str]:
        return frozenset(
            service_account(one) for one in self._runtimes.store.values() if one.metadata.namespace == namespace
        )

    async def _ensure_account(self, namespace: str) -> None:
        if f"{namespace}/{RUNTIMED_SERVICE_ACCOUNT}" in self._accounts.store:
            return
        body = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": RUNTIMED_SERVICE_ACCOUNT, "namespace": namespace, "labels": MANAGED_BY},
            "automountServiceAccountToken": False,
        }
        try:
            await self._kube.create(paths.serviceaccounts(namespace), body, Object)
        except AlreadyExists:
            log.debug("service account stands", extra={"namespace": namespace})


def _ours(binding: RoleBinding) -> bool:
    return all(binding.metadata.labels.get(name) == value for name, value in MANAGED_BY.items())
