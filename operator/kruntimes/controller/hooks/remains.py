"""Removes what the operator has made outside the chart, once it is gone itself (design §13, "uninstall").

The CA's key, its bundle in each namespace, runtimed's ServiceAccounts and bindings, the election's Lease. A namespace
where a Runtime of somebody else stays keeps what its Pods need.
"""

import contextlib
import logging

from kruntimes.common.api.names import CA_NAME, RUNTIMED_ROLE, RUNTIMED_SERVICE_ACCOUNT
from kruntimes.common.api.views import Object
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import Missing
from kruntimes.common.kube.transport import Kube
from kruntimes.controller.main import LEASE
from kruntimes.controller.podtemplate import MANAGED_BY

log = logging.getLogger(__name__)


async def remove_remains(kube: Kube, *, namespace: str) -> None:
    """Deletes them. namespace: the installation's own. Raises what the API server refuses."""
    busy = {one.metadata.namespace for one in await _list(kube, paths.runtimes(None))}
    kinds = (
        (paths.rolebindings, RUNTIMED_ROLE),
        (paths.serviceaccounts, RUNTIMED_SERVICE_ACCOUNT),
        (paths.configmaps, CA_NAME),
    )
    found = [(path, one) for path, name in kinds for one in await _list(kube, path(None), name=name)]
    for path, one in found:
        meta = one.metadata
        ours = all(meta.labels.get(key) == value for key, value in MANAGED_BY.items())
        if ours and meta.namespace not in busy:
            await _delete(kube, path(meta.namespace, meta.name))
    await _delete(kube, paths.secrets(namespace, CA_NAME))
    await _delete(kube, paths.leases(namespace, LEASE))


async def _list(kube: Kube, path: str, *, name: str = "") -> list[Object]:
    """Everywhere; by name where there is one, to which the role is limited. Nothing, where the kind is gone."""
    try:
        found, _ = await kube.list(path, Object, field_selector=f"metadata.name={name}" if name else "")
    except Missing:
        return []
    return found


async def _delete(kube: Kube, path: str) -> None:
    with contextlib.suppress(Missing):
        await kube.delete(path)
        log.info("removed", extra={"path": path})
