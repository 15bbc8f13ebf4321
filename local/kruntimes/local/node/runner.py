"""Runs one Pod: observes, asks `plan`, carries out what it says, and tells the API server (design §10).

The shell around `plan`, `environment`, `volumes` and `status`. One `Runner` lives as long as its Pod's processes.
"""

import asyncio
import logging
import shutil
from collections.abc import Mapping
from typing import Any

from kruntimes.common import clock
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import ApiError, Conflict, Missing
from kruntimes.local.node import plan, tokens, volumes
from kruntimes.local.node.containers import Containers
from kruntimes.local.node.context import HOST_IP, Context
from kruntimes.local.node.environment import CannotRun, Facts
from kruntimes.local.node.launch import RUNTIME, RUNTIMED
from kruntimes.local.node.plan import Ending, Kind, Part, Restart
from kruntimes.local.node.pods import NodePod, TokenSource
from kruntimes.local.node.status import Report, document, settled
from kruntimes.local.node.volumes import NotThere, Secret

log = logging.getLogger(__name__)

LOST_GRACE_SECONDS = 5.0
"""What a Pod whose other process was killed gets to end; nobody drains it any more."""
CONFLICT_SECONDS = 0.05
"""Until the watch has brought the version that was written in between."""
RETRY_SECONDS = 1.0
"""Between tries of what an outside thing holds up: a ConfigMap that is not there yet, an API server that is away."""


def parts(pod: NodePod) -> tuple[Part, ...]:
    """The containers of *pod* as the plan sees them."""
    policy = Restart(pod.spec.restart_policy)
    mains = {c.name for c in pod.spec.containers}
    found = []
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            known = container.name == RUNTIMED and RUNTIME in mains
            found.append(Part(name=container.name, kind=Kind.SIDECAR, restart=Restart.ALWAYS, known_by_pid=known))
        else:
            retried = Restart.NEVER if policy is Restart.NEVER else Restart.ON_FAILURE
            found.append(Part(name=container.name, kind=Kind.INIT, restart=retried))
    return (*found, *(Part(name=c.name, kind=Kind.MAIN, restart=policy) for c in pod.spec.containers))


class Runner:
    """One Pod on this node.

    grace_cap: the longest grace that a stop may give, in seconds; the node lowers it when it ends. gone: the object
    does not exist any more, so nothing is left to wait for. finished: set by the node when `run` has ended.
    """

    def __init__(self, context: Context, pod: NodePod) -> None:
        self.pod = pod
        self.ip = context.addresses.allocate()
        self.grace_cap = float("inf")
        self.gone = False
        self.finished = asyncio.Event()
        self.ending: Ending | None = None
        self._context = context
        self._folder = context.folder / "p" / pod.metadata.uid[:8]
        self._logs = context.logs / f"{pod.metadata.namespace}_{pod.metadata.name}"
        self._parts = parts(pod)
        self._changed = asyncio.Event()
        self._unreported = asyncio.Event()
        self._prepared = False
        self._trouble = ""
        self._began = clock.rfc3339(clock.utcnow())
        self._background: list[asyncio.Task[None]] = []
        self._tokens: dict[TokenSource, str] = {}
        self._secrets: dict[str, Secret] = {}
        self._containers = Containers(
            context,
            specs={c.name: c for c in (*pod.spec.init_containers, *pod.spec.containers)},
            folder=self._folder,
            logs=self._logs,
            changed=self.wake,
        )

    @property
    def facts(self) -> Facts:
        """What fieldRefs can say of the Pod."""
        return Facts(pod=self.pod, pod_ip=self.ip, host_ip=HOST_IP)

    def update(self, pod: NodePod) -> None:
        """Takes a newer state of the object."""
        self.pod = pod
        self.wake()

    def wake(self) -> None:
        """Something changed: plan again."""
        self._changed.set()

    async def run(self) -> Ending:
        """Runs the Pod until nothing of it is left and its object is deleted; returns why it ended."""
        for folder in (self._folder.parent, self._folder, self._logs):
            folder.mkdir(mode=0o700, exist_ok=True)
        try:
            async with asyncio.TaskGroup() as group:
                self._background.append(group.create_task(self._tell()))
                ending = await self._loop(group)
                for task in self._background:
                    task.cancel()
        finally:
            await self._containers.close()
            self._context.addresses.release(self.ip)
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        return ending

    async def _loop(self, group: asyncio.TaskGroup) -> Ending:
        while True:
            self._changed.clear()
            now = clock.monotonic()
            observed = self._observe()
            self.ending = plan.ending(observed)
            step = plan.decide(observed, now=now)
            wake = step.wake
            for action in step.actions:
                match action:
                    case plan.Prepare():
                        if not await self._prepare(group):
                            wake = now + RETRY_SECONDS
                    case plan.Start(name):
                        runtimed = self._containers.pid(RUNTIMED) if name == RUNTIME else 0
                        await self._containers.start(
                            name, group, facts=self.facts, secrets=self._secrets, runtimed=runtimed
                        )
                    case plan.Stop(name, grace):
                        self._containers.stop(name, group, facts=self.facts, grace=grace)
                    case plan.Kill(name):
                        self._containers.kill(name)
                        wake = now + RETRY_SECONDS
                    case plan.Remove(ending):
                        if await self._delete():
                            return ending
                        wake = now + RETRY_SECONDS
            self._unreported.set()
            try:
                async with asyncio.timeout(None if wake is None else max(0.0, wake - clock.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _observe(self) -> plan.Observed:
        meta = self.pod.metadata
        given = meta.deletion_grace_period_seconds
        grace = float(self.pod.spec.termination_grace_period_seconds if given is None else given)
        if self.ending is Ending.LOST:
            grace = min(grace, LOST_GRACE_SECONDS)
        return plan.Observed(
            parts=self._parts,
            lives=self._containers.lives,
            deleting=meta.deleting or self.gone,
            controlled=self.pod.controlled,
            prepared=self._prepared,
            grace=0.0 if self.gone else min(grace, self.grace_cap),
        )

    async def _prepare(self, group: asyncio.TaskGroup) -> bool:
        """Makes the volumes; False where something they need is not there yet, which the status then says."""
        try:
            await self._fetch(group)
            self._write()
        except (NotThere, CannotRun, ApiError) as error:
            self._trouble = str(error)
            return False
        self._prepared, self._trouble = True, ""
        self.wake()
        return True

    async def _fetch(self, group: asyncio.TaskGroup) -> None:
        """Gets the tokens and Secrets that the Pod names and that are not here yet."""
        namespace, account = self.pod.metadata.namespace, self.pod.spec.service_account_name
        for volume in self.pod.spec.volumes:
            for part in volume.projected.sources if volume.projected is not None else ():
                source = part.service_account_token
                if source is None or source in self._tokens:
                    continue
                first = await tokens.request(
                    self._context.kube, namespace=namespace, account=account, source=source, pod=self.pod
                )
                self._tokens[source] = first.text
                self._background.append(group.create_task(self._rotate(first, source)))
        for name in secret_names(self.pod):
            try:
                self._secrets[f"{namespace}/{name}"] = await self._context.kube.get(
                    paths.secrets(namespace, name), Secret
                )
            except Missing:
                self._secrets.pop(f"{namespace}/{name}", None)

    async def _rotate(self, first: tokens.Token, source: TokenSource) -> None:
        def replaced(text: str) -> None:
            self._tokens[source] = text
            self._write()

        await tokens.keep(
            self._context.kube,
            first,
            namespace=self.pod.metadata.namespace,
            account=self.pod.spec.service_account_name,
            source=source,
            replaced=replaced,
            pod=self.pod,
        )

    def _write(self) -> None:
        for volume in self.pod.spec.volumes:
            files = volumes.contents(
                volume,
                facts=self.facts,
                config_maps=self._context.config_maps,
                secrets=self._secrets,
                tokens=self._tokens,
            )
            folder = self._folder / "v" / volume.name
            if volume.empty_dir is not None:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            else:
                volumes.write(folder, files)

    def refresh(self) -> None:
        """A ConfigMap changed: what stands in the volumes follows; a source that has gone leaves them as they are."""
        if not self._prepared:
            self.wake()
            return
        try:
            self._write()
        except (NotThere, CannotRun) as error:
            log.warning("volume not refreshed", extra={"pod": self.pod.metadata.key, "error": str(error)})

    async def _delete(self) -> bool:
        """Deletes the object for good; False where the API server must be asked again."""
        if self.gone:
            return True
        meta = self.pod.metadata
        try:
            await self._context.kube.delete(paths.pods(meta.namespace, meta.name), uid=meta.uid, grace_seconds=0)
        except (Missing, Conflict):
            return True
        except ApiError as error:
            log.warning("pod not deleted", extra={"pod": meta.key, "error": str(error)})
            return False
        return True

    async def _tell(self) -> None:
        """Writes the status whenever it differs from what the API server shows."""
        written: dict[str, Any] | None = None
        while True:
            await self._unreported.wait()
            self._unreported.clear()
            if self.gone:
                continue
            meta, fresh = self.pod.metadata, self._document()
            if written is not None and _same(written, fresh) and settled(self.pod, written):
                continue
            body = {"metadata": {"resourceVersion": meta.resource_version}, "status": fresh}
            try:
                answer = await self._context.kube.patch_merge(
                    paths.pods(meta.namespace, meta.name, "status"), body, NodePod
                )
            except Missing:
                continue
            except Conflict:
                await asyncio.sleep(CONFLICT_SECONDS)
                self._unreported.set()
            except ApiError as error:
                log.warning("status not written", extra={"pod": meta.key, "error": str(error)})
                await asyncio.sleep(RETRY_SECONDS)
                self._unreported.set()
            else:
                written = fresh
                if self.pod.metadata.resource_version == meta.resource_version:
                    self.pod = answer

    def _document(self) -> dict[str, Any]:
        return document(
            Report(
                pod=self.pod,
                parts=self._parts,
                lives=self._containers.lives,
                moments=self._containers.moments,
                troubles=self._containers.troubles,
                pod_ip=self.ip,
                host_ip=HOST_IP,
                began=self._began,
                now=clock.rfc3339(clock.utcnow()),
                prepared=self._prepared,
                over=self.ending,
                trouble=self._trouble,
            )
        )


def secret_names(pod: NodePod) -> set[str]:
    """The Secrets that *pod* reads, in volumes or in environment variables."""
    found = set()
    for volume in pod.spec.volumes:
        if volume.secret is not None:
            found.add(volume.secret.secret_name or volume.secret.name)
        for part in volume.projected.sources if volume.projected is not None else ():
            if part.secret is not None:
                found.add(part.secret.name)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for variable in container.env:
            if variable.value_from is not None and variable.value_from.secret_key_ref is not None:
                found.add(variable.value_from.secret_key_ref.name)
    return found


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two statuses say the same, whenever they say it began."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: bare(v) for k, v in value.items() if k != "lastTransitionTime"}
        return [bare(item) for item in value] if isinstance(value, list) else value

    return bool(bare(one) == bare(other))
