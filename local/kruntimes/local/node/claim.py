"""Who is the node: its Lease, held by one instance at a time (design §10).

The Lease `krt-dev` in `kube-node-lease` is both the node's heartbeat, as kubelet keeps one, and the claim of one
instance on the name. A holder on this machine is asked by its PID, so that a killed instance is replaced at once.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kruntimes.common import clock
from kruntimes.common.api.views import Lease
from kruntimes.common.errors import Busy
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import AlreadyExists, ApiError, Conflict, Missing
from kruntimes.common.kube.transport import Kube

NAMESPACE = "kube-node-lease"
RENEW_SECONDS = 5.0
STALE_SECONDS = 20.0
"""Four missed renewals: the holder, on another machine, is taken for gone. Node Leases are judged in the same way."""
TRIES = 5
"""Losing a race for the Lease is answered by reading it again; whoever wins is then seen to hold it."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process of some machine, such that it is known again: boot id, PID, and the ticks at which it started."""

    boot: str
    pid: int
    ticks: str

    @classmethod
    def me(cls) -> "Holder":
        """This process."""
        return cls(boot_id(), os.getpid(), start_ticks(os.getpid()))

    @classmethod
    def read(cls, text: str) -> "Holder | None":
        """Reads what `str` wrote; None for anything else."""
        words = text.split("/")
        return cls(words[0], int(words[1]), words[2]) if len(words) == 3 and words[1].isdigit() else None

    def __str__(self) -> str:
        return f"{self.boot}/{self.pid}/{self.ticks}"


def boot_id() -> str:
    """What tells this start of this machine from every other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_ticks(pid: int) -> str:
    """When *pid* started, in ticks since the boot; empty where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


def held(lease: Lease, *, me: Holder, age: float, started: Callable[[int], str]) -> bool:
    """Whether somebody else holds *lease*. age: seconds since its renewal; started: `start_ticks`."""
    holder = Holder.read(lease.spec.holder_identity)
    if holder is None or holder == me:
        return False
    if holder.boot == me.boot:
        return started(holder.pid) == holder.ticks
    return age < STALE_SECONDS


async def claim(kube: Kube, *, name: str) -> None:
    """Makes this process the holder; raises Busy with a sentence where another instance lives."""
    me = Holder.me()
    for _ in range(TRIES):
        body = _lease(name, me)
        try:
            found = await kube.get(paths.leases(NAMESPACE, name), Lease)
        except Missing:
            try:
                await kube.create(paths.leases(NAMESPACE), body, Lease)
            except (AlreadyExists, Conflict):
                continue
            return
        renewed = clock.parse(found.spec.renew_time).timestamp() if found.spec.renew_time else 0.0
        if held(found, me=me, age=clock.wall() - renewed, started=start_ticks):
            holder = Holder.read(found.spec.holder_identity)
            where = f"process {holder.pid}" if holder and holder.boot == me.boot else "on another machine"
            raise Busy(f"another krt dev ({where}) runs on this control plane; end it first, or use another one")
        body["metadata"]["resourceVersion"] = found.metadata.resource_version  # type: ignore[index]
        try:
            await kube.replace(paths.leases(NAMESPACE, name), body, Lease)
        except (Conflict, Missing):
            continue
        return
    raise Busy("another krt dev claims this control plane at the same time; try again")


async def renew(kube: Kube, *, name: str) -> None:
    """Renews the claim for ever. A failed renewal is repeated: the node is only as alive as this Lease says."""
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        body = {"spec": {"renewTime": clock.rfc3339_micro(clock.utcnow())}}
        try:
            await kube.patch_merge(paths.leases(NAMESPACE, name), body, Lease)
        except ApiError:
            continue


async def release(kube: Kube, *, name: str) -> None:
    """Gives the claim up; what cannot be told now is found out by whoever comes next."""
    try:
        await kube.delete(paths.leases(NAMESPACE, name))
    except ApiError:
        return


def _lease(name: str, me: Holder) -> dict[str, object]:
    now = clock.rfc3339_micro(clock.utcnow())
    spec = {"holderIdentity": str(me), "leaseDurationSeconds": 40, "acquireTime": now, "renewTime": now}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
