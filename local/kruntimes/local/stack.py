"""From an empty control plane to a function that can be called: starts everything, and knows when it is ready."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kruntimes.common import clock
from kruntimes.common.api.manifests import SYSTEM_NAMESPACE
from kruntimes.common.api.names import CA_BUNDLE_KEY, CA_NAME
from kruntimes.common.api.phases import TERMINAL
from kruntimes.common.api.views import Run, Runtime
from kruntimes.common.errors import Terminal
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import ApiError
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.local import control_plane, install, losses
from kruntimes.local.apply import Applier
from kruntimes.local.control_plane import ControlPlane
from kruntimes.local.instance import Instance
from kruntimes.local.manifests import USER, USER_NAMESPACE, Installation
from kruntimes.local.node import tokens
from kruntimes.local.node.node import Node
from kruntimes.local.node.pods import NodePod, TokenSource
from kruntimes.local.pools import serving
from kruntimes.local.project import Project
from kruntimes.local.reload import Reloader
from kruntimes.local.screen import Facts, Function, curl, ready

SERVICES = ("operator", "router", "gateway")
PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
POLL_SECONDS = 0.1
LOSSES_SECONDS = 0.5
RESTORE_SECONDS = 30.0
"""How long the API server may refuse a service's Pod that was deleted, until `krt dev` gives up."""
TOKEN_SECONDS = 3600
LOG_TAIL_BYTES = 2000


@dataclass(kw_only=True)
class Stack:
    """One installation on one node. `start` it, then ask it for its screen or its environment."""

    kube: Kube
    node: Node
    instance: Instance
    plane: ControlPlane
    project: Project
    installation: Installation
    say: Callable[[str], None]
    began: float
    _runs: dict[str, Run] = field(default_factory=dict)
    _runtimes: list[Runtime] = field(default_factory=list)
    _token: tokens.Token | None = None
    _told: set[str] = field(default_factory=set)

    @property
    def ca_file(self) -> Path:
        """Whom to trust when calling the gateway."""
        return self.instance.folder / "ca.crt"

    @property
    def token_file(self) -> Path:
        """A token of the ServiceAccount `krt-dev`, kept current."""
        return self.instance.folder / "token"

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and krt in a person's shell."""
        return self.instance.folder / "kubeconfig"

    async def follow(self) -> None:
        """Follows Runs and their files for ever: new Runs take the place of old ones, and what ends is told."""
        runs = Reflector(self.kube, paths.runs(None), Run)
        files = {source.key for source in self.project.sources}
        reloader = Reloader(
            kube=self.kube, runs=runs.store, say=self.say, replaced=self._replaced, sources=self.project.sources,
            others=sorted(set(self._runs) - files),
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            group.create_task(runs.run())
            group.create_task(reloader.run())

    async def start(self) -> bool:
        """Starts everything and returns True when what was asked for can be called. Raises Terminal."""
        applier = Applier(self.kube)
        control_plane.offer(self.plane.kubeconfig, self.kubeconfig, token_file=self.token_file)
        await self.node.clear()
        await install.clear(self.kube)
        await install.install(self.kube, applier, self.installation, say=self.say)
        for obj in self.project.others:
            await applier.apply(obj)
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(applier.replace_run(obj)) for obj in self.project.runs]
            group.create_task(self._obtain_token())
            group.create_task(self._services())
            group.create_task(self._obtain_ca())
            group.create_task(self._pools())
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(self._run(task.result())) for task in runs]
        self._runs = {run.metadata.key: run for run in (task.result() for task in waiting)}
        return True

    async def keep_token(self) -> None:
        """Keeps the offered token current for ever."""
        assert self._token is not None
        await tokens.keep(
            self.kube, self._token, namespace=USER_NAMESPACE, account=USER,
            source=TokenSource(expiration_seconds=TOKEN_SECONDS), replaced=lambda text: write(self.token_file, text),
        )  # fmt: skip

    async def tell_losses(self) -> None:
        """Says for ever what has died, so that a person does not look for the reason elsewhere."""
        before = losses.seen(self.node.pods)
        while True:
            await asyncio.sleep(LOSSES_SECONDS)
            now = losses.seen(self.node.pods)
            for text in losses.sentences(before, now):
                self.say(f"{text}; its logs are in {self.instance.logs}")
            before = now

    async def keep_services(self) -> None:
        """Starts services whose Pods were deleted anew, for ever. Raises Terminal where that cannot be done."""
        since: float | None = None
        while True:
            await asyncio.sleep(LOSSES_SECONDS)
            pods = [pod for pod in self.node.pods.values() if pod.metadata.namespace == SYSTEM_NAMESPACE]
            present = {pod.metadata.name for pod in pods}
            if present.issuperset(SERVICES):
                since = None
                continue
            try:
                for name in await install.restore(self.kube, self.installation, present=present):
                    self.say(f"Pod {name} was deleted, and is started again")
                since = None
            except ApiError as error:
                since = since if since is not None else clock.monotonic()
                if clock.monotonic() - since > RESTORE_SECONDS:
                    gone = ", ".join(sorted(set(SERVICES) - present))
                    raise Terminal(f"Pod {gone} was deleted and cannot be started again: {error.message}") from None

    def screen(self) -> str:
        """The ready screen."""
        return ready(self._facts())

    def _facts(self) -> Facts:
        files = {source.key: _shown(source.file) for source in self.project.sources}
        return Facts(
            seconds=clock.monotonic() - self.began,
            gateway=self.installation.url,
            api=self.plane.access.server,
            runtimes=[(r.metadata.name, serving(r, self.node.pods.values()), r.spec.replicas) for r in self._runtimes],
            functions=[
                function(run, key=key, file=files.get(key, ""))
                for key, run in self._runs.items()
                if run.status.endpoint is not None
            ],
            ca_file=self.ca_file,
            token_file=self.token_file,
            logs=self.instance.logs,
            kubeconfig=self.kubeconfig,
            proxied=any(os.environ.get(name) for name in PROXIES),
        )

    def _replaced(self, key: str, run: Run) -> None:
        """Tells where the Run that has taken another's place is called."""
        self._runs[key] = run
        self.say(f"call it:\n\n{curl(self._facts(), function(run, key=key))}\n")

    def environment(self) -> dict[str, str]:
        """What COMMAND of `krt dev -- COMMAND` is told (design §10)."""
        assert self._token is not None
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "KRT_GATEWAY": self.installation.url,
            "KRT_TOKEN": self._token.text,
            "KRT_CACERT": str(self.ca_file),
        }

    def diagnosis(self) -> str:
        """A sentence on what is not ready, with the end of its log."""
        waiting = [pod for pod in self.node.pods.values() if not pod.gate_open("Ready")]
        if not waiting:
            return f"every Pod is ready; logs are in {self.instance.logs}"
        names = ", ".join(sorted(pod.metadata.name for pod in waiting))
        return f"not ready: {names}\n{self._tail(waiting[0])}"

    async def _services(self) -> None:
        """Waits until the services are ready; each container that ends meanwhile is told once."""
        waiting = set(SERVICES)
        while waiting:
            for name in sorted(waiting):
                pod = self.node.pods.get(f"{SYSTEM_NAMESPACE}/{name}")
                if pod is not None and pod.gate_open("Ready"):
                    waiting.discard(name)
                    self._tell(f"{name} is ready")
            self._complain()
            await asyncio.sleep(POLL_SECONDS)

    async def _pools(self) -> None:
        """Waits until every Runtime has a ready Pod."""
        while True:
            found, _ = await self.kube.list(paths.runtimes(USER_NAMESPACE), Runtime)
            self._runtimes = found
            waiting = False
            for runtime in found:
                if serving(runtime, self.node.pods.values()) < 1:
                    waiting = True
                else:
                    self._tell(f"Runtime {runtime.metadata.name} is ready")
            if found and not waiting:
                return
            self._complain()
            await asyncio.sleep(POLL_SECONDS)

    async def _run(self, run: Run) -> Run:
        """Waits until a Run is Ready. Raises Terminal where it ends instead."""
        meta = run.metadata
        while True:
            found = await self.kube.get(paths.runs(meta.namespace, meta.name), Run)
            if found.ready:
                self._tell(f"Run {meta.name} is Ready")
                return found
            if found.status.phase in TERMINAL:
                raise Terminal(f"Run {meta.name} ended as {found.status.phase}: {found.status.message}")
            await asyncio.sleep(POLL_SECONDS)

    async def _obtain_token(self) -> None:
        source = TokenSource(expiration_seconds=TOKEN_SECONDS)
        self._token = await tokens.request(self.kube, namespace=USER_NAMESPACE, account=USER, source=source)
        write(self.token_file, self._token.text)

    async def _obtain_ca(self) -> None:
        while True:
            held = self.node.config_map(f"{SYSTEM_NAMESPACE}/{CA_NAME}")
            if held is not None and CA_BUNDLE_KEY in held.data:
                write(self.ca_file, held.data[CA_BUNDLE_KEY])
                return
            await asyncio.sleep(POLL_SECONDS)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.say(f"{text} ({clock.monotonic() - self.began:.1f} s)")

    def _complain(self) -> None:
        """Tells once of each container that has ended though it should run."""
        for pod in self.node.pods.values():
            for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
                ended: Mapping[str, Any] | None = (status.get("state") or {}).get("terminated")
                name = f"{pod.metadata.name}/{status.get('name')}"
                if ended is None or ended.get("exitCode") == 0 or name in self._told:
                    continue
                self._told.add(name)
                self.say(f"{name} ended with {ended.get('exitCode')}: {ended.get('message') or self._tail(pod)}")

    def _tail(self, pod: NodePod) -> str:
        """The last lines of the Pod's logs."""
        folder = self.instance.logs / f"{pod.metadata.namespace}_{pod.metadata.name}"
        lines: list[str] = []
        for file in sorted(folder.glob("*.log")):
            text = file.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
            if text:
                lines += [f"{file}:", *text.splitlines()[-3:]]
        return "\n".join(lines) or f"its logs in {folder} are empty"


def function(run: Run, *, key: str, file: str = "") -> Function:
    """A Ready Run as the screen shows it. key: `namespace/name` of the first one; file: what is followed."""
    assert run.status.endpoint is not None
    return Function(key.partition("/")[2], run.metadata.namespace, run.spec.runtime, run.status.endpoint.url, file)


def _shown(file: Path) -> str:
    """*file* as a person in this folder would write it."""
    path = file.absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def write(path: Path, text: str) -> None:
    """Replaces a file at once, readable by its owner alone."""
    fresh = path.with_name(f".{path.name}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(text)
    fresh.replace(path)
