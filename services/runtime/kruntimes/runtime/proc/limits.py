"""What one function's or task's processes may use together, and how that is measured without privileges.

RLIMIT_NPROC is not among it: it counts every process of the user on the whole node. Source: design §7; notes on host
processes in a restricted Pod.
"""

import os
import resource
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_UNLIMITED_BYTES = 1 << 50
"""What cgroup v1 says where there is no limit is beyond this."""
SHARE = 0.8
"""Of the container's memory, for one function: over its limit the kernel may end the whole container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """Each 0 for no limit. memory: bytes that are resident and not of files, over all processes of one host.

    address_space: bytes, open_files: number, for each process. processes: number, over all of one host.
    """

    memory: int = 0
    processes: int = 0
    open_files: int = 0
    address_space: int = 0

    def encode(self) -> dict[str, int]:
        """As what JSON has."""
        return asdict(self)

    @property
    def watched(self) -> bool:
        """Whether somebody has to look."""
        return bool(self.memory or self.processes)

    def exceeded(self, *, memory: int, processes: int) -> str:
        """Which limit is passed, in words that follow `it`; empty for none."""
        if self.memory and memory > self.memory:
            return f"used {memory >> 20} MiB of memory, at most {self.memory >> 20} MiB are allowed"
        if self.processes and processes > self.processes:
            return f"had {processes} processes, at most {self.processes} are allowed"
        return ""


def memory_of(pids: Iterable[int]) -> int:
    """Bytes that these processes hold, without files and shared memory; pages that a fork shares count in each."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                _, resident, shared, *_ = map(int, file.read().split())
        except (OSError, ValueError):
            continue  # it has ended
        total += (resident - shared) * _PAGE
    return total


def apply(limits: HostLimits) -> None:
    """Sets what the kernel keeps for each process, in this one and all that it will start; never above a hard limit."""
    for number, value in ((resource.RLIMIT_NOFILE, limits.open_files), (resource.RLIMIT_AS, limits.address_space)):
        if value:
            _, hard = resource.getrlimit(number)
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def container_share() -> int:
    """SHARE of the memory limit of our container, in bytes; 0 where it has none."""
    for path in _CGROUP_LIMITS:
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):
            continue
        if limit < _UNLIMITED_BYTES:
            return int(limit * SHARE)
    return 0
