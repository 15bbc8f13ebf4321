"""The control plane that `krt dev` stands on: its own, or a real kube-apiserver named by a kubeconfig (design §10).

Either is a kubeconfig for people and a way for Pods to reach it, and nothing else here knows the difference.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from kruntimes.common.api.views import Object
from kruntimes.common.errors import Terminal
from kruntimes.common.kube import paths
from kruntimes.common.kube.transport import Kube
from kruntimes.local.node.context import Access
from kruntimes.local.node.node import LOCAL_LABEL
from kruntimes.local.node.process import Process
from kruntimes.sdk import kubeconfig
from kruntimes.sdk.errors import ConfigError


class Unsuitable(Terminal):
    """`krt dev` cannot stand on this control plane; the message says why in a sentence."""


PORT = 6443
FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys of a kubeconfig whose values are files: one of a cluster, the others of a user."""
START_SECONDS = 30.0
"""It serves half a second of CPU after its start; a machine that is busy starting a dozen processes takes longer."""
POLL_SECONDS = 0.02
STOP_SECONDS = 3.0
LAST_WORDS = 2000
"""Characters of its log that a failed start quotes."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """kubeconfig: an administrator's; access: what Pods get; process: our own server, None where it is another's."""

    kubeconfig: Path
    access: Access
    process: Process | None = field(default=None)

    async def ended(self) -> None:
        """Raises Terminal when our own server ends: what it held is gone, so nothing can go on."""
        if self.process is None:
            await asyncio.Event().wait()
        else:
            end = await self.process.wait()
            raise Terminal(f"the control plane ended with {end.code}, and what it held is gone")

    async def close(self) -> None:
        """Ends our own server."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()


async def embedded(address: str, *, folder: Path, logs: Path, hold: int, env: Mapping[str, str]) -> ControlPlane:
    """Starts our own control plane on *address*; it keeps its keys below *folder* and is gone with it.

    hold: as for `Process.start`. Raises Terminal where it does not serve in time.
    """
    log = logs / "control-plane.log"
    process = await Process.start(
        command=[
            sys.executable, "-m", "kruntimes.local.apiserver", "--listen", f"{address}:{PORT}", "--state", str(folder)
        ],
        env=env, cwd=folder, log=log, hold=hold,
    )  # fmt: skip
    kubeconfig_file = folder / "admin.kubeconfig"
    ending = asyncio.ensure_future(process.wait())
    try:
        async with asyncio.timeout(START_SECONDS):
            while not kubeconfig_file.exists():
                await asyncio.wait({ending}, timeout=POLL_SECONDS)
                if ending.done():
                    said = log.read_text(errors="replace")[-LAST_WORDS:].strip()
                    raise Terminal(f"the control plane ended with {ending.result().code}: {said}")
    except TimeoutError:
        process.kill()
        raise Terminal(f"the control plane does not serve after {START_SECONDS:.0f} s") from None
    except asyncio.CancelledError:
        process.kill()
        raise
    finally:
        ending.cancel()
    access = Access(server=f"https://{address}:{PORT}", ca_file=folder / "ca.crt")
    return ControlPlane(kubeconfig=kubeconfig_file, access=access, process=process)


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


def offer(source: Path, target: Path, *, token_file: Path) -> None:
    """Writes *target*, the kubeconfig *source* for people: functions are called with the token in *token_file*.

    Files that it names relative to its place are named by their whole path.
    """
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    for entry, keys in (("cluster", FILES[:1]), ("user", FILES[1:])):
        for named in document.get(f"{entry}s") or []:
            values = named.get(entry) or {}
            for key in keys:
                if values.get(key):
                    values[key] = str(source.parent / values[key])
    for named in document.get("contexts") or []:
        if named.get("name") == document.get("current-context"):
            extension = {"name": kubeconfig.CALLS, "extension": {"tokenFile": str(token_file)}}
            named["context"]["extensions"] = [*(named["context"].get("extensions") or []), extension]
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        yaml.safe_dump(document, file, sort_keys=False)


async def check(kube: Kube) -> None:
    """Raises Unsuitable where the control plane has nodes of its own: its Pods would be taken from them."""
    nodes, _ = await kube.list(paths.nodes(), Object)
    others = sorted(n.metadata.name for n in nodes if LOCAL_LABEL not in n.metadata.labels)
    if others:
        raise Unsuitable(
            f"this control plane has nodes of its own ({', '.join(others[:3])}); "
            "krt dev is the only node of the one it stands on"
        )
