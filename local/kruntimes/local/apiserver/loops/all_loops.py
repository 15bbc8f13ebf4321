"""Every loop that the control plane owes. Wire."""

from collections.abc import Callable
from typing import Protocol

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.loops import cluster_roles, collector, expiry, namespaces, nodes, replicasets, services
from kruntimes.local.apiserver.parts import Loop


class Runs(Protocol):
    """What a loop is, once it has its core."""

    async def run(self) -> None:
        """Until it is cancelled."""


def loops(*, ca: str) -> list[Loop]:
    """To be started with the core. ca: PEM of the CA that signs the server's certificate."""
    makers: list[Callable[[Api], Runs]] = [
        replicasets.ReplicaSets,
        collector.Collector,
        lambda api: namespaces.Furnisher(api, ca=ca),
        namespaces.Emptier,
        nodes.Nodes,
        services.Services,
        cluster_roles.Aggregation,
        expiry.Events,
        expiry.Requests,
    ]
    return [lambda api, make=make: make(api).run() for make in makers]  # type: ignore[misc]
