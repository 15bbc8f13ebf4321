"""How long `helm install` takes until a function answers, the images being on the node, and how large those are.

KUBECONFIG names a cluster with a node that has the images (`make images`) and no release. The anchor is a Deployment
of two Pods of the same image that only serve files: what Kubernetes alone needs for something to answer.
"""

import json
import os
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from load import QUICK, Row, report

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "e2e"))

from cluster.release import IMAGE, NAMESPACE, Cluster  # noqa: E402

ROUNDS = 1 if QUICK else 3
AIM_SECONDS = 45.0
LIMIT_SECONDS = 60.0
RUN = """
apiVersion: kruntimes.io/v1alpha1
kind: Run
metadata: {name: first, namespace: default}
spec:
  runtime: python
  source: {inlinePath: f.py, inline: "def handler(event): return event"}
  mode: {function: {handler: f.handler}}
"""
ANCHOR: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "anchor", "namespace": NAMESPACE},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "anchor"}},
        "template": {
            "metadata": {"labels": {"app": "anchor"}},
            "spec": {
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [
                    {
                        "name": "anchor",
                        "image": IMAGE,
                        "command": ["python", "-m", "http.server", "8000"],
                        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    }
                ],
            },
        },
    },
}


def timed(act: Callable[[], object]) -> float:
    """Seconds of *act*."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def anchor(cluster: Cluster) -> None:
    """Two Pods, ready."""
    cluster.kubectl("apply", "-f", "-", text=json.dumps(ANCHOR))
    cluster.kubectl("rollout", "status", "deployment/anchor", "-n", NAMESPACE, "--timeout=120s")


def first_answer(cluster: Cluster) -> None:
    """Installs, declares, and calls until the answer is 200: every step as soon as the one before allows it."""
    cluster.install()
    cluster.kubectl("apply", "-f", "-", text=RUN)
    cluster.kubectl("create", "rolebinding", "first", "-n", "default", "--clusterrole=kruntimes-view",
                    "--serviceaccount=default:default")  # fmt: skip
    cluster.kubectl("wait", "run/first", "-n", "default", "--for=condition=Ready", "--timeout=120s")
    url = cluster.json("run", "first", "-n", "default")["status"]["endpoint"]["url"]
    ca = cluster.json("configmap", "kruntimes-ca", "-n", "default")["data"]["ca.crt"]
    headers = {"authorization": f"Bearer {cluster.token('default')}", "content-type": "application/json"}
    end = time.perf_counter() + LIMIT_SECONDS
    with httpx.Client(verify=ssl.create_default_context(cadata=ca), trust_env=False, timeout=30) as client:
        while (answer := client.post(url, headers=headers, json={})).status_code != 200:
            if answer.status_code not in (403, 503) or time.perf_counter() > end:
                raise SystemExit(f"{answer.status_code} {answer.text[:300]}")
            time.sleep(0.02)


def starts(cluster: Cluster) -> dict[str, float]:
    """Seconds from a Pod's first container to its readiness, the slowest Pod of each kind. Whole seconds, as kubelet's.

    A function is answered before the last Pod is ready, so all are waited for.
    """
    for namespace, selector in ((NAMESPACE, "app.kubernetes.io/name"), ("default", "runtime")):
        wait = ("wait", "pod", "-n", namespace, "-l", selector, "--for=condition=Ready", "--timeout=120s")
        cluster.kubectl(*wait)
    slowest: dict[str, float] = {}
    for pod in cluster.pods("app.kubernetes.io/name") + cluster.pods("runtime", "default"):
        labels, status = pod["metadata"]["labels"], pod["status"]
        ready = next(c for c in status["conditions"] if c["type"] == "Ready" and c["status"] == "True")
        containers = [*status.get("initContainerStatuses", []), *status["containerStatuses"]]
        began = min(stamp(c["state"]["running"]["startedAt"]) for c in containers)
        kind = labels.get("runtime") or labels["app.kubernetes.io/name"]
        slowest[kind] = max(slowest.get(kind, 0.0), stamp(ready["lastTransitionTime"]) - began)
    return slowest


def stamp(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def sizes(cluster: Cluster) -> dict[str, float]:
    """MB of each image of ours, as the node holds it: compressed or not, that is the runtime's choice."""
    held = cluster.json("nodes")["items"][0]["status"]["images"]
    return {n: i["sizeBytes"] / 1e6 for i in held for n in i["names"] if n == IMAGE or "/envoy:" in n}


def main() -> None:
    """Measures in turns and reports the medians."""
    kubeconfig = os.environ.get("KUBECONFIG") or sys.exit("bench: KUBECONFIG names a cluster with a node")
    cluster = Cluster.of(Path(kubeconfig))
    anchors, installs, slowest = [], [], {}
    for _ in range(ROUNDS):
        anchors.append(timed(lambda: anchor(cluster)))
        cluster.kubectl("delete", "deployment", "anchor", "-n", NAMESPACE, "--wait", "--cascade=foreground")
        installs.append(timed(lambda: first_answer(cluster)))
        slowest = starts(cluster)
        cluster.kubectl("delete", "rolebinding", "first", "-n", "default")
        cluster.uninstall()
    base, took = statistics.median(anchors), statistics.median(installs)
    rows = [
        Row(what="Deployment of two Pods, ready (the anchor)", value=base, unit="s"),
        Row(what="helm install to the first 200", value=took, unit="s", anchor="the anchor", ratio=took / base,
            aim=f"<= {AIM_SECONDS:g} s", holds=took <= AIM_SECONDS),
        *(Row(what=f"start of a Pod: {name}", value=seconds, unit="s") for name, seconds in sorted(slowest.items())),
        *(Row(what=f"image {name}", value=size, unit="MB") for name, size in sorted(sizes(cluster).items())),
    ]  # fmt: skip
    report("install", rows)


if __name__ == "__main__":
    main()
