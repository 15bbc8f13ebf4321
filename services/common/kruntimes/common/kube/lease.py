"""Leases: election of one leader, and a runtimed's heartbeat (design §5)."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from kruntimes.common import clock
from kruntimes.common.api.views import Lease, LeaseSpec
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.backoff import draw
from kruntimes.common.kube.election import Seen, Timing, may_take, observe
from kruntimes.common.kube.transport import Kube

log = logging.getLogger(__name__)

TRY_SECONDS = 4.0
"""One request for a Lease; several fit into a leader's deadline."""
LEAST_SECONDS = 0.05
"""A renewal that has less time than this left is not worth sending."""
RELEASE_SECONDS = 2.0
"""Giving a Lease back is a courtesy to the next leader, and must not delay our end."""
_DELETED = LeaseSpec(holder_identity="nobody knows")
HEARTBEAT_SECONDS = 10.0
HEARTBEAT_RETRY_SECONDS = 1.0
HEARTBEAT_DURATION_SECONDS = 30
"""Design §5: renewed every 10 s, a failed renewal repeated every second, stale after 30 s."""


def _stop_process() -> None:
    """The last resort against two leaders: work that does not stop when cancelled ends with its process."""
    log.critical("the leader's work did not stop in time, the process ends")
    os._exit(1)


class Elector:
    """Runs work while holding the Lease *name*, of which there is one holder at a time.

    identity: unique to this process (a Pod's UID). The work is cancelled when the Lease could not be renewed, early
    enough to have stopped before another may take it; if it does not stop, *on_stuck* ends the process.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        timing: Timing | None = None,
        on_stuck: Callable[[], None] = _stop_process,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._timing = timing or Timing()
        self._on_stuck = on_stuck
        self._lease: Lease | None = None
        self._seen: Seen | None = None
        self._deadline = float("-inf")

    def leading(self) -> bool:
        """Whether the Lease is ours and was renewed recently enough."""
        return self._lease is not None and clock.monotonic() < self._deadline

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits for the Lease, runs *lead*, and waits again when it was lost; returns when *lead* returns."""
        try:
            while True:
                await self._acquire()
                log.info("leading", extra={"lease": self._name})
                if await self._hold(lead):
                    return
                log.warning("leadership lost", extra={"lease": self._name})
                self._lease = None
        finally:
            await self._release()

    async def _acquire(self) -> None:
        """Waits until the Lease is ours."""
        while True:
            try:
                if await self._try_to_take():
                    return
            except errors.ApiError as error:
                log.debug("lease not reached", extra={"lease": self._name, "error": str(error)})
            await asyncio.sleep(self._timing.retry * (0.8 + 0.4 * draw()))

    async def _try_to_take(self) -> bool:
        """One look at the Lease, and the attempt to take it where it is free."""
        lease: Lease | None = None
        try:
            lease = await self._kube.get(paths.leases(self._namespace, self._name), Lease, timeout=TRY_SECONDS)
        except errors.Missing:
            if self._seen is None:
                await self._write(None)
                return True
        # A Lease that was there and is gone was deleted under its holder, who may not know yet: his time runs on.
        record = _DELETED if lease is None else lease.spec
        now = clock.monotonic()
        self._seen = observe(self._seen, record, now=now)
        if not may_take(self._seen, identity=self._identity, now=now, timing=self._timing):
            return False
        await self._write(lease)
        return True

    async def _write(self, known: Lease | None) -> None:
        """Takes or renews the Lease; *known* as it was read is the precondition. Raises Conflict and the rest."""
        started, stamp = clock.monotonic(), clock.rfc3339_micro(clock.utcnow())
        spec: dict[str, object] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._timing.duration),
            "renewTime": stamp,
        }
        if known is None:
            body = {"metadata": {"name": self._name}, "spec": spec | {"acquireTime": stamp, "leaseTransitions": 0}}
            written = await self._kube.create(paths.leases(self._namespace), _lease(body), Lease, timeout=TRY_SECONDS)
        else:
            if known.spec.holder_identity != self._identity:
                spec |= {"acquireTime": stamp, "leaseTransitions": known.spec.lease_transitions + 1}
            body = {"metadata": {"resourceVersion": known.metadata.resource_version}, "spec": spec}
            written = await self._kube.patch_merge(
                paths.leases(self._namespace, self._name), body, Lease, timeout=TRY_SECONDS
            )
        self._lease = written
        self._seen = Seen(written.spec, started)
        self._deadline = started + self._timing.renew_deadline

    async def _hold(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Runs *lead* while renewing; True when it returned by itself, False when the Lease was lost."""

        async def leader() -> None:
            await lead()

        async with asyncio.TaskGroup() as group:
            work, renewal = group.create_task(leader()), group.create_task(self._renew())
            try:
                await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
                returned = work.done()
                await self._stop(work, renewal)
            except asyncio.CancelledError:
                await self._stop(work, renewal)
                raise
            return returned

    async def _stop(self, work: asyncio.Task[None], renewal: asyncio.Task[None]) -> None:
        """Cancels the work and sees it end. While the Lease is being renewed it may take its time to clean up."""
        work.cancel()
        await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await asyncio.wait({work}, timeout=self._timing.stop_grace)
            if not work.done():
                self._on_stuck()
        renewal.cancel()

    async def _renew(self) -> None:
        """Renews until the Lease is lost or the deadline has passed."""
        while True:
            left = self._deadline - clock.monotonic()
            await asyncio.sleep(max(0.0, min(self._timing.retry, left)))
            left = self._deadline - clock.monotonic()
            if left < LEAST_SECONDS:
                return
            try:
                async with asyncio.timeout(left):
                    await self._write(self._lease)
            except errors.Conflict:
                if not await self._still_ours(self._deadline - clock.monotonic()):
                    return
            except (errors.ApiError, TimeoutError) as error:
                text = str(error) or "no time is left"
                log.warning("lease not renewed", extra={"lease": self._name, "error": text})
                if isinstance(error, errors.Missing):
                    return

    async def _still_ours(self, left: float) -> bool:
        """After a conflict: whether the write that was in the way was an earlier one of our own."""
        try:
            async with asyncio.timeout(max(0.0, left)):
                lease = await self._kube.get(paths.leases(self._namespace, self._name), Lease, timeout=TRY_SECONDS)
        except (errors.ApiError, TimeoutError):
            return True
        if lease.spec.holder_identity != self._identity:
            return False
        self._lease = lease
        return True

    async def _release(self) -> None:
        if self._lease is None:
            return
        body = {
            "metadata": {"resourceVersion": self._lease.metadata.resource_version},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
        }
        self._lease = None
        try:
            await self._kube.patch_merge(
                paths.leases(self._namespace, self._name), body, Lease, timeout=RELEASE_SECONDS
            )
        except errors.ApiError as error:
            log.info("lease not given back", extra={"lease": self._name, "error": str(error)})


class Heartbeat:
    """A Lease that says: this Pod's runtimed is alive and can write.

    name: the Pod's name. identity: the Pod's UID, so that a Pod of the same name cannot speak for another.
    owner_pod: name and UID of the Pod that the Lease goes with.
    """

    def __init__(self, kube: Kube, namespace: str, name: str, identity: str, owner_pod: tuple[str, str]) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._owner = owner_pod
        self._renewed = float("-inf")

    def last_renewed(self) -> float:
        """The monotonic time at which the last renewal that succeeded was *sent*; minus infinity before the first."""
        return self._renewed

    async def run(self) -> None:
        """Renews until cancelled."""
        told = ""
        while True:
            started, wait, text = clock.monotonic(), HEARTBEAT_SECONDS, ""
            try:
                await self._beat()
                self._renewed = started
            except errors.ApiError as error:
                wait, text = HEARTBEAT_RETRY_SECONDS, str(error)
            if text != told:
                log.warning("heartbeat fails" if text else "heartbeat goes on", extra={"error": text})
                told = text
            await asyncio.sleep(max(0.0, started + wait - clock.monotonic()))

    async def _beat(self) -> None:
        name, uid = self._owner
        stamp = clock.rfc3339_micro(clock.utcnow())
        body = {
            "metadata": {
                "name": self._name,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}],
            },
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": HEARTBEAT_DURATION_SECONDS,
                "renewTime": stamp,
            },
        }
        try:
            await self._kube.patch_merge(paths.leases(self._namespace, self._name), body, Lease, timeout=TRY_SECONDS)
        except errors.Missing:
            await self._kube.create(paths.leases(self._namespace), _lease(body), Lease, timeout=TRY_SECONDS)


def _lease(body: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"} | body
