"""Pods of our own image for the length of a test, under Pod security "restricted"."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.release import IMAGE, Cluster
from support import eventually

POD_SECONDS = 60.0


@contextmanager
def running(release: Cluster, command: list[str], *, account: str = "default") -> Iterator[str]:
    """Starts *command* in the namespace `default`; yields the Pod's name. It has /tmp, and the gateway's CA."""
    name = f"{account}-{uuid.uuid4().hex[:6]}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "serviceAccountName": account,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "command": command,
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "ca", "mountPath": "/etc/kruntimes"},
                        {"name": "tmp", "mountPath": "/tmp"},
                    ],
                }
            ],
            "volumes": [{"name": "ca", "configMap": {"name": "kruntimes-ca"}}, {"name": "tmp", "emptyDir": {}}],
        },
    }
    release.kubectl("apply", "-f", "-", text=json.dumps(pod))
    try:
        yield name
    finally:
        release.kubectl("delete", "pod", name, "-n", "default", "--wait=false")


def until_ended(release: Cluster, pod: str) -> str:
    """Waits until the Pod has succeeded; returns what it printed."""

    def ended() -> bool:
        phase = release.json("pod", pod, "-n", "default")["status"]["phase"]
        assert phase != "Failed", release.kubectl("logs", pod, "-n", "default")
        return bool(phase == "Succeeded")

    eventually(f"the end of Pod {pod}", ended, POD_SECONDS)
    return release.kubectl("logs", pod, "-n", "default")


def until_said(release: Cluster, pod: str) -> tuple[str, str]:
    """Waits for the Pod's first line; returns its address and that line."""

    def said() -> str:
        status = release.json("pod", pod, "-n", "default")["status"]
        return release.kubectl("logs", pod, "-n", "default") if status["phase"] == "Running" else ""

    line = eventually(f"a line of Pod {pod}", said, POD_SECONDS).splitlines()[0]
    return release.json("pod", pod, "-n", "default")["status"]["podIP"], line
