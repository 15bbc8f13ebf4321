"""The Runtime controller's shell: one ReplicaSet for each template hash, one Service, and what its Pods need.

Source: design §4 and §8.
"""

import logging
from typing import Any

import msgspec

from kruntimes.common import clock
from kruntimes.common.api.names import POD_DELETION_COST, TEMPLATE_HASH_LABEL
from kruntimes.common.api.reasons import RuntimeCondition
from kruntimes.common.api.views import Object, Pod, Runtime, condition
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, Missing, ServerError
from kruntimes.common.kube.events import runtime_ref
from kruntimes.common.kube.queue import After, Done, WorkQueue, work
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube
from kruntimes.controller import rollout
from kruntimes.controller.announce import Announcer
from kruntimes.controller.book import Book
from kruntimes.controller.grants import Grants
from kruntimes.controller.pods import MANAGER
from kruntimes.controller.podtemplate import PodDefaults, pod_template, replica_set, service, template_hash
from kruntimes.controller.refusals import REFUSED_SECONDS, Refusals, Refused, explained
from kruntimes.controller.signer import Bundles
from kruntimes.controller.views import ReplicaSet, timestamp

log = logging.getLogger(__name__)

WORKERS = 4
SETTLE_SECONDS = 0.05
"""Pods and Runs change in bursts; what follows from them for a Runtime is looked at once for each burst."""
IN_THE_WAY_SECONDS = 2.0
"""An object of an earlier Runtime of the same name is about to be collected, or a foreign one is in the way, which no
watch of ours shows; look again after this."""


class Runtimes:
    """Makes of every Runtime what runs it, and tells in its status how that goes."""

    def __init__(
        self,
        kube: Kube,
        book: Book,
        defaults: PodDefaults,
        *,
        runtimes: Reflector[Runtime],
        replica_sets: Reflector[ReplicaSet],
        services: Reflector[Object],
        bundles: Bundles,
        grants: Grants,
        announcer: Announcer,
    ) -> None:
        self._kube = kube
        self._book = book
        self._defaults = defaults
        self._runtimes = runtimes
        self._replica_sets = replica_sets
        self._services = services
        self._bundles = bundles
        self._grants = grants
        self._announcer = announcer
        self._templates: dict[str, tuple[str, int, dict[str, Any], str]] = {}
        self._refusals = Refusals()
        self._queue = WorkQueue()

    def runtime_changed(self, key: str) -> None:
        """A Runtime appeared, changed or went."""
        if key not in self._runtimes.store:
            self._templates.pop(key, None)
            self._refusals.forget(key)
            return
        self._queue.add(key)

    def owned_changed(self, key: str) -> None:
        """A ReplicaSet or Service of the Runtime *key* changed."""
        if key in self._runtimes.store:
            self._queue.add(key)

    def settle(self, key: str) -> None:
        """Pods of the Runtime *key*, or the Runs on them, changed."""
        if key in self._runtimes.store:
            self._queue.add_after(key, SETTLE_SECONDS)

    def retiring(self, pod: Pod) -> bool:
        """Whether the Pod's template is not its Runtime's current one."""
        known = self._templates.get(f"{pod.metadata.namespace}/{pod.runtime}")
        return known is not None and pod.metadata.labels.get(TEMPLATE_HASH_LABEL) != known[3]

    async def run(self) -> None:
        """Reconciles until cancelled."""
        await work(self._queue, self._reconcile, workers=WORKERS)

    async def _reconcile(self, key: str) -> Done | After:
        runtime = self._runtimes.store.get(key)
        if runtime is None or runtime.metadata.deleting:
            return Done()
        namespace = runtime.metadata.namespace
        await self._bundles.ensure(namespace)
        template, digest = self._template(runtime)
        name = f"{runtime.metadata.name}-{digest}"
        current, old = self._generations(runtime, name)
        try:
            await self._grants.ensure(namespace)
        except Invalid as error:
            # A foreign RoleBinding of that name: what it gives to whom is not ours to change, nor can it be.
            await self._report(runtime, current, old, rollout.Trouble("RoleBindingExists", error.message))
            return After(IN_THE_WAY_SECONDS)
        if not await self._ensure_service(runtime):
            message = f"a Service {runtime.metadata.name} that is not this Runtime's is in the way"
            await self._report(runtime, current, old, rollout.Trouble("ServiceExists", message))
            return After(IN_THE_WAY_SECONDS)
        standing = self._replica_sets.store.get(f"{namespace}/{name}")
        if current is None and standing is not None:
            await self._report(runtime, current, old, _in_the_way(name))
            return After(IN_THE_WAY_SECONDS)
        try:
            return await self._follow(runtime, template, digest, current, old)
        except ServerError as error:
            # A sick API server, or an admission webhook that does not answer: no word against the template.
            await self._report(runtime, current, old, rollout.Trouble("ApiServerError", error.message))
            raise

    async def _follow(
        self,
        runtime: Runtime,
        template: dict[str, Any],
        digest: str,
        current: rollout.Generation | None,
        old: list[rollout.Generation],
    ) -> Done | After:
        """Takes the steps of the rollout, and says in the status how it goes.

        While the ReplicaSet of the template is refused, the Pods that there are still follow the number wanted; it is
        tried again now and then, since what admission refuses may be mended elsewhere.
        """
        key, wanted = runtime.metadata.key, runtime.spec.replicas
        refusal = self._refusals.of(key, digest, now=clock.monotonic()) if current is None else None
        if refusal is not None:
            await self._take(runtime, template, rollout.plan(wanted=wanted, current=None, old=old, refused=True))
            await self._write_status(runtime, current, old, trouble=refusal.trouble)
            return After(refusal.until - clock.monotonic())
        try:
            await self._take(runtime, template, rollout.plan(wanted=wanted, current=current, old=old))
        except Refused as refused:
            if self._refusals.note(key, digest, refused.trouble, now=clock.monotonic()):
                extra = {"runtime": key, "reason": refused.trouble.reason, "error": refused.trouble.message}
                log.warning("replica set refused", extra=extra)
            await self._take(runtime, template, rollout.plan(wanted=wanted, current=None, old=old, refused=True))
            await self._report(runtime, current, old, refused.trouble)
            return After(REFUSED_SECONDS)
        self._refusals.forget(key)
        trouble = rollout.hindrance(wanted=wanted, current=current, old=old)
        if trouble is None or _told(runtime, trouble):
            await self._write_status(runtime, current, old, trouble=trouble)
        else:
            await self._report(runtime, current, old, trouble)
        return Done()

    async def _report(
        self,
        runtime: Runtime,
        current: rollout.Generation | None,
        old: list[rollout.Generation],
        trouble: rollout.Trouble,
    ) -> None:
        """Says what is in the way, in the status and as an event."""
        await self._write_status(runtime, current, old, trouble=trouble)
        self._announcer.say(runtime_ref(runtime.metadata), reason=trouble.reason, message=trouble.message, warning=True)

    def _template(self, runtime: Runtime) -> tuple[dict[str, Any], str]:
        """The Pod template and its hash, made once for each generation."""
        meta = runtime.metadata
        known = self._templates.get(meta.key)
        if known is None or known[:2] != (meta.uid, meta.generation):
            template = pod_template(runtime, self._defaults)
            known = self._templates[meta.key] = (meta.uid, meta.generation, template, template_hash(template))
        return known[2], known[3]

    async def _ensure_service(self, runtime: Runtime) -> bool:
        """Makes the Service unless it stands; False while one that is not this Runtime's has the name.

        A foreign Service is never taken over: somebody's traffic goes through it.
        """
        namespace, name = runtime.metadata.namespace, runtime.metadata.name
        held = self._services.store.get(runtime.metadata.key)
        if held is None:
            try:
                held = await self._kube.create(paths.services(namespace), service(runtime), Object)
            except AlreadyExists:
                held = await self._kube.get(paths.services(namespace, name), Object)
        return _owned(held.metadata.owner_references, runtime)

    def _generations(self, runtime: Runtime, name: str) -> tuple[rollout.Generation | None, list[rollout.Generation]]:
        pods: dict[str, list[rollout.PodFact]] = {}
        for pod in self._book.pods(runtime.metadata.key):
            if not (pod.metadata.deleting or pod.ended):
                pods.setdefault(pod.metadata.labels.get(TEMPLATE_HASH_LABEL, ""), []).append(self._fact(pod))
        current: rollout.Generation | None = None
        old: list[rollout.Generation] = []
        for found in self._replica_sets.store.values():
            meta = found.metadata
            if meta.namespace != runtime.metadata.namespace or not _owned(meta.owner_references, runtime):
                continue
            members = tuple(pods.get(meta.labels.get(TEMPLATE_HASH_LABEL, ""), ()))
            generation = rollout.Generation(
                name=meta.name,
                uid=meta.uid,
                replicas=found.spec.replicas,
                pods=members,
                created=meta.creation_timestamp,
                failure=_failure(found),
            )
            if meta.name == name:
                current = generation
            elif not meta.deleting:
                old.append(generation)
        return current, sorted(old, key=lambda one: one.name)

    def _fact(self, pod: Pod) -> rollout.PodFact:
        return rollout.PodFact(
            key=pod.metadata.key,
            uid=pod.metadata.uid,
            ready=pod.ready,
            busy=bool(self._book.used(pod.metadata.uid)),
            cost=pod.metadata.annotations.get(POD_DELETION_COST),
        )

    async def _take(self, runtime: Runtime, template: dict[str, Any], steps: list[rollout.Step]) -> None:
        for step in steps:
            await self._step(runtime, template, step)

    async def _step(self, runtime: Runtime, template: dict[str, Any], step: rollout.Step) -> None:
        namespace = runtime.metadata.namespace
        extra = {"runtime": runtime.metadata.key}
        if isinstance(step, rollout.Create):
            body = replica_set(runtime, template, replicas=step.replicas)
            await self._create(runtime, body)
            log.info("replica set made", extra=extra | {"replica_set": body["metadata"]["name"]})
            self._announcer.say(
                runtime_ref(runtime.metadata),
                reason="ReplicaSetCreated",
                message=f"Created ReplicaSet {body['metadata']['name']} of {step.replicas}",
            )
        elif isinstance(step, rollout.Scale):
            scale = {"metadata": {"uid": step.uid}, "spec": {"replicas": step.replicas}}
            await self._kube.patch_merge(paths.replicasets(namespace, step.name), scale, Object)
            log.info("replica set scaled", extra=extra | {"replica_set": step.name, "replicas": step.replicas})
        elif isinstance(step, rollout.Protect):
            cost = {"metadata": {"uid": step.uid, "annotations": {POD_DELETION_COST: step.cost}}}
            await self._kube.patch_merge(paths.pods(namespace, step.pod.partition("/")[2]), cost, Object)
        else:
            try:
                await self._kube.delete(paths.replicasets(namespace, step.name), uid=step.uid, propagation="Background")
            except Missing:
                return
            log.info("replica set removed", extra=extra | {"replica_set": step.name})

    async def _create(self, runtime: Runtime, body: dict[str, Any]) -> None:
        """Makes a ReplicaSet; raises Refused with what there is against it.

        A create that is strict about fields, and not an apply: that answers a wrong type with a 500 which only its
        text tells from a sick server's, and whose text quotes what stands in the field.
        """
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            await self._kube.create(paths.replicasets(namespace), body, Object, manager=MANAGER, strict=True)
        except (Invalid, BadRequest) as error:
            raise Refused(rollout.Trouble("TemplateRefused", explained(error.message, body))) from None
        except Forbidden as error:
            raise Refused(rollout.Trouble("ReplicaSetRefused", error.message)) from None
        except AlreadyExists:
            held = await self._kube.get(paths.replicasets(namespace, name), Object)
            if not _owned(held.metadata.owner_references, runtime):
                raise Refused(_in_the_way(name)) from None

    async def _write_status(
        self,
        runtime: Runtime,
        current: rollout.Generation | None,
        old: list[rollout.Generation],
        *,
        trouble: rollout.Trouble | None,
    ) -> None:
        ready = sum(pod.ready for pod in self._book.pods(runtime.metadata.key))
        conditions = rollout.conditions(
            runtime.status.conditions,
            ready=ready,
            wanted=runtime.spec.replicas,
            done=rollout.complete(wanted=runtime.spec.replicas, current=current, old=old),
            trouble=trouble,
            generation=runtime.metadata.generation,
            now=timestamp(clock.wall()),
        )
        if ready == runtime.status.ready_replicas and conditions == runtime.status.conditions:
            return
        body = {
            "metadata": {"resourceVersion": runtime.metadata.resource_version},
            "status": {"readyReplicas": ready, "conditions": [msgspec.to_builtins(one) for one in conditions]},
        }
        path = paths.runtimes(runtime.metadata.namespace, runtime.metadata.name, "status")
        try:
            await self._kube.patch_merge(path, body, Object)
        except Missing:
            log.debug("runtime went before its status was written", extra={"runtime": runtime.metadata.key})


def _in_the_way(name: str) -> rollout.Trouble:
    return rollout.Trouble("ReplicaSetExists", f"a ReplicaSet {name} that is not this Runtime's is in the way")


def _failure(found: ReplicaSet) -> rollout.Trouble | None:
    held = found.failure
    return None if held is None else rollout.Trouble(held.reason or held.type, held.message)


def _told(runtime: Runtime, trouble: rollout.Trouble) -> bool:
    """Whether the status says so already."""
    held = condition(runtime.status.conditions, RuntimeCondition.PROGRESSING)
    return held is not None and (held.reason, held.message) == (trouble.reason, trouble.message)


def _owned(owners: tuple[Any, ...], runtime: Runtime) -> bool:
    return any(one.uid == runtime.metadata.uid for one in owners)
