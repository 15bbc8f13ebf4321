"""What the ownership decision reads: Runs of our Runtime by UID, and its Pods by name. Fed by two watches."""

import asyncio
from collections.abc import Callable

from kruntimes.common.api.names import RUNTIME_LABEL
from kruntimes.common.api.views import Pod, RouteRun
from kruntimes.common.kube import paths
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube

UNSEEN_SECONDS = 0.25
"""A Run that the gateway knows and we do not is waited for this long, once (design §6)."""


class Ownership:
    """Runs and Pods of one Runtime in one namespace, without the sources.

    on_own_pod: called when our own Pod has changed.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        namespace: str,
        runtime: str,
        pod_name: str,
        pod_uid: str,
        on_own_pod: Callable[[], None] = lambda: None,
    ) -> None:
        self._namespace, self._pod_name, self._pod_uid = namespace, pod_name, pod_uid
        self._on_own_pod = on_own_pod
        self._by_uid: dict[str, RouteRun] = {}
        self._uids: dict[str, str] = {}
        self._waiting: dict[str, asyncio.Event] = {}
        self.runs = Reflector(
            kube, paths.runs(namespace), RouteRun, field_selector=f"spec.runtime={runtime}", on_change=self._run_changed
        )
        self.pods = Reflector(
            kube, paths.pods(namespace), Pod, label_selector=f"{RUNTIME_LABEL}={runtime}", on_change=self._pod_changed
        )

    @property
    def synced(self) -> bool:
        """Whether both caches have been filled."""
        return self.runs.synced.is_set() and self.pods.synced.is_set()

    @property
    def draining(self) -> bool:
        """Whether our own Pod is being deleted, as far as the watch has told."""
        pod = self.pods.store.get(f"{self._namespace}/{self._pod_name}")
        return pod is not None and pod.metadata.uid == self._pod_uid and pod.metadata.deleting

    def run(self, uid: str) -> RouteRun | None:
        """The Run of that UID, or None."""
        return self._by_uid.get(uid)

    def owner(self, run: RouteRun | None) -> Pod | None:
        """The Pod that *run* is assigned to, or None."""
        if run is None or not run.status.assigned_pod:
            return None
        return self.pods.store.get(f"{self._namespace}/{run.status.assigned_pod}")

    async def seen(self, uid: str, seconds: float = UNSEEN_SECONDS) -> RouteRun | None:
        """The Run of that UID, waited for at most *seconds* where the cache has not seen it yet."""
        if (run := self._by_uid.get(uid)) is not None:
            return run
        event = self._waiting.setdefault(uid, asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            self._waiting.pop(uid, None)
        return self._by_uid.get(uid)

    def _run_changed(self, key: str) -> None:
        run, known = self.runs.store.get(key), self._uids.get(key)
        if known is not None and (run is None or run.metadata.uid != known):
            del self._uids[key]
            self._by_uid.pop(known, None)
        if run is not None:
            uid = run.metadata.uid
            self._uids[key] = uid
            self._by_uid[uid] = run
            if event := self._waiting.pop(uid, None):
                event.set()

    def _pod_changed(self, key: str) -> None:
        if key == f"{self._namespace}/{self._pod_name}":
            self._on_own_pod()

    async def watch(self) -> None:
        """Keeps both caches current until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.runs.run())
            group.create_task(self.pods.run())
