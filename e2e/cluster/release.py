"""The chart on a cluster, as a platform team installs it: helm and kubectl, and nothing of the product's own code."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "charts" / "kruntimes"
NAME, NAMESPACE = "kruntimes", "kruntimes-system"
IMAGE = "localhost/kruntimes:0.1.0"
NODE_PORT = 30443
WAIT = "180s"
COMMAND_SECONDS = 300.0
"""Above every limit that a command is given itself."""
DEFINITIONS = {
    "CustomResourceDefinition <none> runs.kruntimes.io",
    "CustomResourceDefinition <none> runtimes.kruntimes.io",
}
"""What an uninstalled release leaves, unless told otherwise."""
PASSING = {
    "apiservices.apiregistration.k8s.io",
    "certificatesigningrequests.certificates.k8s.io",
    "componentstatuses",
    "events",
    "events.events.k8s.io",
    "nodes.metrics.k8s.io",
    "pods.metrics.k8s.io",
}
"""Kinds that Kubernetes itself makes, or removes after their time."""
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@dataclass(frozen=True)
class Cluster:
    """A cluster with a node, by its kubeconfig. address: where its node ports are reached from here.

    before: what it held before anything was installed, the definitions of a former release aside.
    """

    kubeconfig: Path
    address: str
    before: frozenset[str] = frozenset()

    @classmethod
    def of(cls, kubeconfig: Path) -> "Cluster":
        """The node's own address, unless E2E_ADDRESS names another (a port that is mapped to this machine)."""
        address = os.environ.get("E2E_ADDRESS")
        if not address:
            nodes = json.loads(Cluster(kubeconfig, "").kubectl("get", "nodes", "-o", "json"))["items"]
            assert nodes, "the cluster has no node"
            address = next(a["address"] for a in nodes[0]["status"]["addresses"] if a["type"] == "InternalIP")
        cluster = cls(kubeconfig, address)
        assert not cluster.installed(), f"the release {NAME} stands on this cluster: uninstall it first"
        cluster.prepare()
        return cls(kubeconfig, address, frozenset(cluster.everything() - DEFINITIONS))

    def run(self, *command: str, text: str | None = None, fails: bool = False) -> str:
        """A command with this cluster's KUBECONFIG; returns what it printed."""
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            input=text,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr if fails else done.stdout

    def paste(self, script: str) -> str:
        """What a script printed that was pasted into a shell; what it left in the background is ended."""
        ending = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"
        return self.run("bash", "-euo", "pipefail", "-c", f"{ending}\n{script}")

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """One kubectl command."""
        return self.run("kubectl", *arguments, text=text)

    def json(self, *arguments: str) -> Any:
        """`kubectl get … -o json`, read."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    # ------------------------------------------------------------ the release

    def installed(self) -> bool:
        """Whether the release stands, in whatever state."""
        releases = json.loads(self.run("helm", "list", "-n", NAMESPACE, "-o", "json"))
        return any(one["name"] == NAME for one in releases)

    def prepare(self) -> None:
        """Makes the release's namespace, and lets in only Pods of the standard "restricted"."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(namespace))
        self.kubectl("label", "namespace", NAMESPACE, "default", RESTRICTED, "--overwrite")

    def install(self, **values: Any) -> None:
        """Installs the release, reachable at a node port, unless it stands."""
        self.prepare()
        given = {
            "gateway.service.type": "NodePort",
            "gateway.service.nodePort": NODE_PORT,
            "gateway.url": f"https://{self.address}:{NODE_PORT}",
            **values,
        }
        if not self.installed():
            self.run(*self._helm("install", given))

    def upgrade(self, **values: Any) -> None:
        """Changes values of the release."""
        self.run(*self._helm("upgrade", values), "--reuse-values")

    def rollback(self, revision: int) -> None:
        """Goes back to a revision."""
        self.run("helm", "rollback", NAME, str(revision), "-n", NAMESPACE, "--wait", "--timeout", WAIT)

    def revision(self) -> int:
        """The revision that is in force."""
        history = json.loads(self.run("helm", "history", NAME, "-n", NAMESPACE, "-o", "json"))
        return int(next(one["revision"] for one in history if one["status"] == "deployed"))

    def uninstall(self) -> None:
        """Removes the release if it stands."""
        if self.installed():
            self.run("helm", "uninstall", NAME, "-n", NAMESPACE, "--wait", "--timeout", WAIT)

    def _helm(self, verb: str, values: Mapping[str, Any]) -> list[str]:
        sets = [part for key, value in values.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]
        return ["helm", verb, NAME, str(CHART), "-n", NAMESPACE, "--wait", "--timeout", WAIT, *sets]

    # ------------------------------------------------------------ what is there

    def everything(self) -> set[str]:
        """Every object of the cluster but those that Kubernetes itself makes and removes as it works."""
        kinds = set(self.kubectl("api-resources", "--verbs=list", "-o", "name").split()) - PASSING
        columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"
        lines = self.kubectl("get", ",".join(sorted(kinds)), "-A", "--no-headers", "-o", columns).splitlines()
        return {" ".join(line.split()) for line in lines}

    def token(self, account: str, namespace: str = "default") -> str:
        """A token of a ServiceAccount."""
        return self.kubectl("create", "token", account, "-n", namespace, "--duration", "30m").strip()

    @contextmanager
    def forwarded(self, target: str, port: int, namespace: str = NAMESPACE) -> Iterator[int]:
        """`kubectl port-forward` for the length of the block; yields the local port."""
        process = subprocess.Popen(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), "-n", namespace, "port-forward", target, f":{port}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert " -> " in line, f"port-forward said {line!r}"
            yield int(line.split(" -> ")[0].rpartition(":")[2])
        finally:
            process.terminate()
            process.communicate(timeout=10)

    def pods(self, selector: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        """The Pods of a selector that are not on their way out."""
        found = self.json("pods", "-n", namespace, "-l", selector)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def gateways_settled(self) -> None:
        """Waits until the gateways before an upgrade are gone: a node may send a connection to one that drains."""

        def settled() -> bool:
            pods = self.json("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=kruntimes-gateway")["items"]
            return not any("deletionTimestamp" in pod["metadata"] for pod in pods)

        eventually("no gateway drains", settled, 120)

    def runtime_ready(self, name: str, replicas: int, namespace: str = "default") -> None:
        """Waits until a Runtime has that many ready Pods of its current template, and no other Pods that are free."""

        def ready() -> bool:
            found = self.json("runtime", name, "-n", namespace)
            return bool(found.get("status", {}).get("readyReplicas", 0) >= replicas)

        eventually(f"Runtime {name} with {replicas} ready Pods", ready, 120)

    def runtime_renewed(self, name: str, namespace: str = "default") -> None:
        """Waits until a Pod of a Runtime's newest template is ready; those of older ones stay while they are busy."""

        def renewed() -> bool:
            sets = self.json("replicasets", "-n", namespace, "-l", f"runtime={name}")["items"]
            newest = max(sets, key=lambda one: one["metadata"]["creationTimestamp"])
            return bool(newest["status"].get("readyReplicas"))

        eventually(f"a Pod of the newest template of Runtime {name}", renewed, 120)
