"""Where a request for a Run belongs: here, at one peer, or nowhere yet (design §6, "Routing").

Decided from watch-backed caches alone; nothing is read from the API. A cache may be behind the router's or the
gateway's: what we registered ourselves counts before what a watch says of it, and a doubt is `NotReady`, which the
caller may repeat, never an answer from the wrong epoch.
"""

from dataclasses import dataclass

import msgspec

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import FINALIZER, PEER_PORT, InvokePath
from kruntimes.common.api.phases import TERMINAL
from kruntimes.common.api.views import Pod, RouteRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Who we are."""

    namespace: str
    runtime: str
    pod_uid: str

    @property
    def key(self) -> str:
        """NAMESPACE/NAME of our Runtime."""
        return f"{self.namespace}/{self.runtime}"


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """Our own registration of the Run. serving: it is registered, not closed, and we are not fenced."""

    epoch: Epoch
    serving: bool


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request. expected: the epoch it carries, None on the fallback. hop: it came from a peer."""

    path: InvokePath
    expected: Epoch | None
    hop: bool


class Here(msgspec.Struct, frozen=True):
    """Invoke our own registration of this epoch."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Peer:
    """Proxy once to the owner at *address* (`IP:PORT`), which must show a certificate of epoch.pod_uid."""

    address: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class NotFound:
    """No Run of that UID in that namespace and Runtime, as far as our cache has come."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The Run will never be invoked again, though its object may stay for as long as somebody wants."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotReady:
    """The Run exists and cannot be invoked now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The request expects another Pod, Run or attempt than ours."""

    reason: str


Route = Here | Peer | NotFound | Ended | NotReady | Mismatch


def route(asked: Asked, *, own: Own, run: RouteRun | None, registered: Registered | None, owner: Pod | None) -> Route:
    """Returns where the request goes. owner: the Pod that run.status names, from the Pod cache, if it is there."""
    path, expected = asked.path, asked.expected
    if (path.namespace, path.runtime) != (own.namespace, own.runtime):
        return NotFound()
    if asked.hop and expected is None:
        return Mismatch("a peer's request carries no epoch")
    if expected is not None:
        if expected.run_uid != path.uid:
            return Mismatch("the epoch names another Run")
        if expected.pod_uid != own.pod_uid:
            return Mismatch("the epoch names another Pod")
    if run is None:
        return NotFound()
    if run.status.phase in TERMINAL:
        return Ended(f"the Run has ended: {run.status.phase}")
    if run.metadata.deleting:
        # While we clean up it is "terminating" (503), as the table has it; what others still hold it for is not ours.
        held = FINALIZER in run.metadata.finalizers
        return NotReady("the Run is being deleted") if held else Ended("the Run has been deleted")
    if registered is not None and _superseded(registered.epoch, run):
        return NotReady("the Run has been assigned anew")
    if expected is not None:
        return _expected(expected, registered)
    if registered is not None and (registered.serving or run.status.assigned_pod_uid == own.pod_uid):
        return Here(registered.epoch) if registered.serving else NotReady("the function is not being served")
    return _elsewhere(own, run, owner)


def _superseded(ours: Epoch, run: RouteRun) -> bool:
    """Whether the cache shows that our registration is void. A cache that lags behind our own claim does not."""
    if run.status.attempt > ours.attempt:
        return True
    return run.status.attempt == ours.attempt and run.status.assigned_pod_uid not in ("", ours.pod_uid)


def _expected(expected: Epoch, registered: Registered | None) -> Route:
    if registered is None or registered.epoch.attempt < expected.attempt:
        return NotReady("the function is not registered here yet")
    if registered.epoch != expected:
        return Mismatch("the epoch is over")
    return Here(expected) if registered.serving else NotReady("the function is not being served")


def _elsewhere(own: Own, run: RouteRun, owner: Pod | None) -> Route:
    epoch = run.epoch
    if not run.ready or epoch is None:
        return NotReady("the function is not ready")
    if epoch.pod_uid == own.pod_uid:
        return NotReady("the function is being registered again")
    if owner is None or owner.metadata.uid != epoch.pod_uid or not owner.status.pod_ip:
        return NotReady("the owner's address is not known")
    if owner.metadata.deleting:
        return NotReady("the owner is draining")
    return Peer(f"{owner.status.pod_ip}:{PEER_PORT}", epoch)
