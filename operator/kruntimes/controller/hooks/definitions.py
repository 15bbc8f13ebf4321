"""The CustomResourceDefinitions of an installation: applied at an upgrade, removed only on request (design §13)."""

import contextlib
import logging

from kruntimes.common import clock
from kruntimes.common.api import manifests
from kruntimes.common.errors import NotReady
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import Missing
from kruntimes.common.kube.transport import Kube
from kruntimes.controller.hooks.waiting import until

log = logging.getLogger(__name__)

MANAGER = "kruntimes"
ESTABLISH_SECONDS = 30.0
"""A definition is served within a second of being applied."""
REMOVE_SECONDS = 60.0
"""Deleting a definition deletes every object of its kind first; finalizers are gone by then."""


async def apply_definitions(kube: Kube) -> None:
    """Applies each definition and waits until it is served. Raises NotReady, and what the API server refuses."""
    for definition in manifests.crds():
        name = definition["metadata"]["name"]
        await kube.apply(paths.crds(name), definition, dict, manager=MANAGER)

        async def established(name: str = name) -> bool:
            held = await kube.get(paths.crds(name), dict)
            conditions = held.get("status", {}).get("conditions") or []
            return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

        if not await until(established, end=clock.monotonic() + ESTABLISH_SECONDS):
            raise NotReady(f"CustomResourceDefinition {name} is not served after {ESTABLISH_SECONDS:g} s")
        log.info("definition applied", extra={"definition": name})


async def remove_definitions(kube: Kube) -> None:
    """Deletes each definition, and with it every object of its kind, and waits until it is gone. Raises NotReady."""
    names = [definition["metadata"]["name"] for definition in manifests.crds()]
    for name in names:
        with contextlib.suppress(Missing):
            await kube.delete(paths.crds(name))
    for name in names:

        async def gone(name: str = name) -> bool:
            try:
                await kube.get(paths.crds(name), dict)
            except Missing:
                return True
            return False

        if not await until(gone, end=clock.monotonic() + REMOVE_SECONDS):
            raise NotReady(f"CustomResourceDefinition {name} does not go: somebody's finalizer keeps an object of it")
        log.info("definition removed", extra={"definition": name})
