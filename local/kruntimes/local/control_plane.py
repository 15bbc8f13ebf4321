"""The control plane that `krt dev` stands on: for now, a real kube-apiserver named by a kubeconfig (design §10).

A control plane is what `open` yields: a kubeconfig for people and a way for Pods to reach it. Another kind, one that
runs inside `krt dev`, is another way to make one, and nothing else here knows the difference.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from kruntimes.common.api.views import Object
from kruntimes.common.errors import Terminal
from kruntimes.common.kube import paths
from kruntimes.common.kube.transport import Kube
from kruntimes.local.node.context import Access
from kruntimes.local.node.node import LOCAL_LABEL
from kruntimes.sdk import kubeconfig
from kruntimes.sdk.errors import ConfigError


class Unsuitable(Terminal):
    """`krt dev` cannot stand on this control plane; the message says why in a sentence."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """kubeconfig: an administrator's; access: what Pods get."""

    kubeconfig: Path
    access: Access


def existing(path: Path, *, folder: Path) -> ControlPlane:
    """The control plane that *path* names; its CA is written below *folder*. Raises Unsuitable."""
    try:
        found = kubeconfig.load(path)
    except ConfigError as error:
        raise Unsuitable(str(error)) from None
    if found.ca_pem is None:
        raise Unsuitable(f"kubeconfig {path}: it names no CA, and Pods must know whom to trust")
    ca_file = folder / "cluster-ca.crt"
    with open(os.open(ca_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(found.ca_pem)
    return ControlPlane(kubeconfig=path.resolve(), access=Access(server=found.server, ca_file=ca_file))


async def check(kube: Kube) -> None:
    """Raises Unsuitable where the control plane has nodes of its own: its Pods would be taken from them."""
    nodes, _ = await kube.list(paths.nodes(), Object)
    others = sorted(n.metadata.name for n in nodes if LOCAL_LABEL not in n.metadata.labels)
    if others:
        raise Unsuitable(
            f"this control plane has nodes of its own ({', '.join(others[:3])}); "
            "krt dev is the only node of the one it stands on"
        )
