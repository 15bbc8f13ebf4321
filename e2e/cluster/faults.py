"""What the fault tests do to a cluster: end a container's processes on its node, and stop the control plane's.

Nothing in a container can kill its first process, so a Pod that sees the node's processes does it; it uses no more
than what a kubeconfig gives.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from cluster.release import IMAGE, ROOT, Cluster
from support import eventually

PLACE = "kruntimes-faults"
KILL = """
import os, signal, sys
killed = 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if sys.argv[1] in open(f"/proc/{pid}/cgroup").read():
            os.kill(int(pid), signal.SIGKILL)
            killed += 1
    except (FileNotFoundError, ProcessLookupError):
        pass
print(killed)
"""
KILL_SECONDS = 60.0
"""A container that was killed a moment ago has no process, and its status still names the one before."""
SIGNAL_SECONDS = 60.0


@dataclass(frozen=True)
class Killer:
    """Ends containers of the cluster's only node, or of the first of several."""

    cluster: Cluster

    def kill(self, pod: str, container: str, namespace: str = "default") -> None:
        """Ends every process of a container at once; its kubelet starts it again."""

        def killed() -> bool:
            found = self.cluster.json("pod", pod, "-n", namespace)
            identity = next(one["containerID"] for one in _states(found) if one["name"] == container).partition("://")[
                2
            ]
            said = self.cluster.kubectl("exec", "-n", PLACE, "killer", "--", "python3", "-c", KILL, identity)
            return int(said) > 0

        eventually(f"a process of {pod}/{container} to kill", killed, KILL_SECONDS)


def restarts(pod: dict[str, Any]) -> int:
    """How often one of the Pod's containers was started again, of the one that it was most often."""
    return max((int(one["restartCount"]) for one in _states(pod)), default=0)


def _states(pod: dict[str, Any]) -> list[dict[str, Any]]:
    status = pod["status"]
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


@contextmanager
def killer(cluster: Cluster) -> Iterator[Killer]:
    """The Pod that kills, in a namespace that is gone at the end."""
    security = {"privileged": True, "runAsUser": 0, "runAsNonRoot": False}
    container = {
        "name": "killer", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "securityContext": security,
        "command": ["python3", "-c", "import signal; signal.sigwait([signal.SIGTERM])"],
    }  # fmt: skip
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}},
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "killer", "namespace": PLACE},
            "spec": {"hostPID": True, "terminationGracePeriodSeconds": 1, "containers": [container]},
        },
    ]  # fmt: skip
    try:
        for one in made:
            cluster.kubectl("apply", "-f", "-", text=json.dumps(one))
        cluster.kubectl("wait", "pod/killer", "-n", PLACE, "--for=condition=Ready", "--timeout=60s")
        yield Killer(cluster)
    finally:
        cluster.kubectl("delete", "namespace", PLACE, "--ignore-not-found", "--timeout=60s")


def signal_control_plane(signal: str, program: str) -> None:
    """Sends STOP, CONT or KILL to a program of the control plane by the command in E2E_SIGNAL; skips without one."""
    command = os.environ.get("E2E_SIGNAL")
    if not command:
        pytest.skip("E2E_SIGNAL names no command that takes a signal and a program of the control plane")
    subprocess.run([*shlex.split(command), signal, program], cwd=ROOT, check=True, timeout=SIGNAL_SECONDS)
