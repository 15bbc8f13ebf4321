"""Installs kruntimes on a control plane: what a chart would, for one machine (design §10)."""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Any

from kruntimes.common.api import manifests as common
from kruntimes.common.api.manifests import SYSTEM_NAMESPACE
from kruntimes.common.api.views import Object
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import AlreadyExists, ApiError, Missing
from kruntimes.common.kube.transport import Kube
from kruntimes.local import manifests
from kruntimes.local.apply import Applier
from kruntimes.local.manifests import Installation

POLL_SECONDS = 0.05
OPERATOR_LEASE = "kruntimes-operator"
OPERATORS_LABEL = "app.kubernetes.io/managed-by=kruntimes-operator"


async def clear(kube: Kube) -> None:
    """Removes what an instance before this one has left though all of its processes are gone.

    ReplicaSets, so that none of their Pods starts again: the operator makes those that are wanted, for the addresses
    of this instance. And the Lease of the operator that was, for which the new one would wait.
    """
    with contextlib.suppress(Missing):
        await kube.delete(paths.leases(SYSTEM_NAMESPACE, OPERATOR_LEASE))
    sets, _ = await kube.list(paths.replicasets(None), dict, label_selector=OPERATORS_LABEL)
    for found in sets:
        meta = found["metadata"]
        try:
            await kube.delete(paths.replicasets(meta["namespace"], meta["name"]), propagation="Background")
        except Missing:
            continue
    left, _ = await kube.list(paths.pods(None), dict, label_selector=OPERATORS_LABEL)
    for found in left:
        meta = found["metadata"]
        try:
            await kube.delete(paths.pods(meta["namespace"], meta["name"]), uid=meta["uid"], grace_seconds=0)
        except (Missing, ApiError):
            continue


async def install(kube: Kube, applier: Applier, given: Installation, *, say: Callable[[str], None]) -> None:
    """Applies definitions, roles and accounts, starts the services, and declares the Runtimes. Waits for no Pod."""
    say("definitions and roles")
    await applier.apply(manifests.namespace())
    async with asyncio.TaskGroup() as group:
        group.create_task(applier.establish(common.crds()))
        for obj in [*common.rbac(), *manifests.user()]:
            group.create_task(applier.apply(obj))
        group.create_task(_start(kube, applier, given))
    async with asyncio.TaskGroup() as group:
        for obj in manifests.runtimes():
            group.create_task(applier.apply(obj))


async def _start(kube: Kube, applier: Applier, given: Installation) -> None:
    """Starts the services; each waits for what it needs by itself."""
    path = paths.pods(SYSTEM_NAMESPACE)
    async with asyncio.TaskGroup() as group:
        for pod in manifests.services(given):
            group.create_task(_create(kube, applier, pod, path))


async def restore(kube: Kube, given: Installation, *, present: Collection[str]) -> list[str]:
    """Starts the services whose Pods are not *present* anew; returns their names. Raises ApiError.

    A Pod that is there but not seen yet is left alone.
    """
    made = []
    for pod in manifests.services(given):
        name = pod["metadata"]["name"]
        if name in present:
            continue
        with contextlib.suppress(AlreadyExists):
            await kube.create(paths.pods(SYSTEM_NAMESPACE), pod, Object)
            made.append(name)
    return made


async def _create(kube: Kube, applier: Applier, pod: dict[str, Any], path: str) -> None:
    """Creates a Pod as soon as its ServiceAccount is there: admission wants it first."""
    account = paths.serviceaccounts(SYSTEM_NAMESPACE, pod["spec"]["serviceAccountName"])
    while True:
        try:
            await kube.get(account, dict)
        except Missing:
            await asyncio.sleep(POLL_SECONDS)
            continue
        await applier.recreate(pod, path)
        return
