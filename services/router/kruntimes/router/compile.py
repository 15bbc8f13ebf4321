"""From Runs, Runtimes and Pods to what Envoy is sent (design §6, "Routing").

`compile` says what a world means, all at once. `Routes` keeps the same result current change by change: the
work for a changed Run is its own entry and the re-assembly of its shard, whatever the number of Runs. Both use
`target_of` and `fallback_of`, where the rules are.

A Run is routed directly if it is ready, and the Pod of its assignment is known by UID, of the same namespace and
Runtime, alive and addressed. Everything else reaches the fallback, whose runtimed knows how to refuse it. All strings
are checked here: Envoy refuses a whole shard for one bad entry.
"""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from kruntimes.common.api.names import INVOKE_PORT, Role, invoke_path, parse_path, pod_dns
from kruntimes.common.api.views import Pod, RouteRun, Runtime
from kruntimes.router.cluster import Secrets, cluster, cluster_name
from kruntimes.router.encode import (
    CLUSTERS,
    OTHER,
    ROUTES,
    SCOPES,
    configuration_name,
    entry,
    runs_cluster,
    scope,
    shard,
    shard_names,
    shard_of,
)
from kruntimes.router.other import other
from kruntimes.router.snapshot import Key, Snapshot

TIMEOUT_MARGIN_SECONDS = 5.0
"""Envoy's route time-out lies this much above the longest deadline, which is runtimed's to keep."""
DEFAULT_CAPACITY = 2
_GONE = frozenset({"Succeeded", "Failed"})
_POD_UID = re.compile(r"[0-9a-z](?:[0-9a-z-]{0,61}[0-9a-z])?")
_ANY_UID = "00000000-0000-4000-8000-000000000000"


class Unrouted(StrEnum):
    """Why a Run has no route of its own."""

    NOT_READY = "not_ready"
    POD_UNKNOWN = "pod_unknown"
    POD_FOREIGN = "pod_foreign"
    POD_GONE = "pod_gone"
    POD_UNADDRESSED = "pod_unaddressed"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class Options:
    """What an installation sets: the longest deadline in seconds, and where each Envoy finds its secrets."""

    max_timeout: float
    secrets: Secrets

    @property
    def route_timeout(self) -> float:
        """Seconds after which Envoy gives a call up by itself."""
        return self.max_timeout + TIMEOUT_MARGIN_SECONDS


@dataclass(frozen=True, slots=True)
class Target:
    """Where a Run's calls go: path as published, cluster, `IP:PORT`, the DNS name to be proven, the epoch demanded."""

    path: str
    cluster: str
    address: str
    sni: str
    epoch: str


def target_of(run: RouteRun, pod: Pod | None) -> Target | Unrouted:
    """The direct route of *run*; *pod* is the one whose UID is in its assignment, if it is known."""
    epoch = run.epoch
    if not run.ready or epoch is None:
        return Unrouted.NOT_READY
    if pod is None or pod.metadata.uid != epoch.pod_uid:
        return Unrouted.POD_UNKNOWN
    if pod.metadata.namespace != run.metadata.namespace or pod.runtime != run.spec.runtime:
        return Unrouted.POD_FOREIGN
    if pod.metadata.deleting or pod.status.phase in _GONE:
        return Unrouted.POD_GONE
    address = address_of(pod.status.pod_ip)
    if address is None:
        return Unrouted.POD_UNADDRESSED
    path = invoke_path(namespace=run.metadata.namespace, runtime=run.spec.runtime, uid=epoch.run_uid)
    if parse_path(path) is None or not _POD_UID.fullmatch(epoch.pod_uid):
        return Unrouted.MALFORMED
    host = f"[{address}]" if ":" in address else address
    sni = pod_dns(pod_uid=epoch.pod_uid, role=Role.RUNTIMED)
    return Target(path, runs_cluster(pod_capacity(pod)), f"{host}:{INVOKE_PORT}", sni, str(epoch))


def pod_capacity(pod: Pod) -> int | None:
    """How many Runs *pod* holds; None where its annotations do not say, or not in a whole number."""
    try:
        return pod.capacity.get("runs")
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def address_of(text: str) -> str | None:
    """The canonical spelling of an IP address that a Pod can have, or None."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if address.is_unspecified or address.is_multicast or "%" in text:
        return None
    return str(address)


def capacity_of(runtime: Runtime) -> int:
    """How many Runs one Pod of *runtime* holds; the API's default where its `runs` is no positive number."""
    text = str(runtime.spec.capacity.resources.get("runs", ""))
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else DEFAULT_CAPACITY


def fallback_of(runtime: Runtime, pods: Iterable[Pod], options: Options) -> bytes | None:
    """The cluster of *runtime* with its ready ones among *pods*; None where no path can carry its name."""
    namespace, name = runtime.metadata.namespace, runtime.metadata.name
    if parse_path(invoke_path(namespace=namespace, runtime=name, uid=_ANY_UID)) is None:
        return None
    found = {address_of(pod.status.pod_ip) for pod in pods if _serves(pod, runtime)}
    addresses = sorted(address for address in found if address is not None)
    return cluster(
        namespace=namespace,
        runtime=name,
        addresses=addresses,
        capacity=capacity_of(runtime),
        secrets=options.secrets,
    )


def compile(runs: Iterable[RouteRun], runtimes: Iterable[Runtime], pods: Iterable[Pod], options: Options) -> Snapshot:
    """Everything that is published for this world; the order of what is given does not matter."""
    all_pods = list(pods)
    by_uid = {pod.metadata.uid: pod for pod in all_pods}
    shards: dict[str, dict[str, bytes]] = defaultdict(dict)
    for run in runs:
        target = target_of(run, by_uid.get(run.status.assigned_pod_uid))
        if isinstance(target, Target):
            shards[shard_of(run.metadata.uid)][run.metadata.uid] = _entry(target, options)
    bodies = dict(_shard(name, entries, options) for name, entries in shards.items())
    for runtime in runtimes:
        body = fallback_of(runtime, all_pods, options)
        if body is not None:
            bodies[_cluster_key(runtime.metadata.namespace, runtime.metadata.name)] = body
    return _empty(options).with_changes(bodies)


@dataclass(slots=True)
class _Placed:
    """A Run as it was last seen: its view, and its entry or the reason why it has none."""

    run: RouteRun
    outcome: bytes | Unrouted


class Routes:
    """The same as `compile`, kept current: after any sequence of changes `snapshot` equals it, byte for byte."""

    def __init__(self, options: Options) -> None:
        self.snapshot = _empty(options)
        self.counts: dict[str, int] = dict.fromkeys(("routed", *Unrouted), 0)
        self._options = options
        self._runs: dict[str, _Placed] = {}
        self._runtimes: dict[str, Runtime] = {}
        self._pods: dict[str, Pod] = {}
        self._pods_by_uid: dict[str, Pod] = {}
        self._runs_by_pod: dict[str, set[str]] = defaultdict(set)
        self._pods_by_runtime: dict[str, set[str]] = defaultdict(set)
        self._shards: dict[str, dict[str, bytes]] = defaultdict(dict)

    def apply(
        self,
        *,
        runs: Mapping[str, RouteRun | None] | None = None,
        runtimes: Mapping[str, Runtime | None] | None = None,
        pods: Mapping[str, Pod | None] | None = None,
    ) -> frozenset[Key]:
        """Takes changed objects by `namespace/name` (None: gone) and returns the keys of what is published anew.

        Objects given as they were change nothing. Time: that of the Runs given and of those on the Pods given, and of
        their shards.
        """
        stale_runs: set[str] = set()
        stale_clusters: set[str] = set()
        for key, pod in (pods or {}).items():
            for each in filter(None, (self._pods.get(key), pod)):
                stale_runs |= self._runs_by_pod.get(each.metadata.uid, set())
                stale_clusters.add(_runtime_key(each))
            self._put_pod(key, pod)
        for key, runtime in (runtimes or {}).items():
            stale_clusters.add(key)
            if runtime is None:
                self._runtimes.pop(key, None)
            else:
                self._runtimes[key] = runtime
        stale_shards: set[str] = set()
        for key, run in (runs or {}).items():
            stale_runs.discard(key)
            stale_shards |= self._put_run(key, run)
        for key in stale_runs:
            stale_shards |= self._put_run(key, self._runs[key].run)

        bodies: dict[Key, bytes | None] = {}
        bodies.update(_shard(name, self._shards.get(name, {}), self._options) for name in stale_shards)
        for key in stale_clusters:
            namespace, _, name = key.partition("/")
            bodies[_cluster_key(namespace, name)] = self._fallback(key)
        changed = self.snapshot.differences(bodies)
        if changed:
            self.snapshot = self.snapshot.with_changes(changed)
        return frozenset(changed)

    def _put_pod(self, key: str, pod: Pod | None) -> None:
        old = self._pods.pop(key, None)
        if old is not None:
            self._pods_by_uid.pop(old.metadata.uid, None)
            _discard(self._pods_by_runtime, _runtime_key(old), key)
        if pod is not None:
            self._pods[key] = pod
            self._pods_by_uid[pod.metadata.uid] = pod
            self._pods_by_runtime[_runtime_key(pod)].add(key)

    def _put_run(self, key: str, run: RouteRun | None) -> set[str]:
        """Replaces what is known of one Run; returns the shards whose entries are other than before."""
        old = self._runs.pop(key, None)
        outcome: bytes | Unrouted | None = None
        if run is not None:
            target = target_of(run, self._pods_by_uid.get(run.status.assigned_pod_uid))
            outcome = _entry(target, self._options) if isinstance(target, Target) else target
        if old is not None:
            _discard(self._runs_by_pod, old.run.status.assigned_pod_uid, key)
            self.counts[_label(old.outcome)] -= 1
        if run is not None and outcome is not None:
            self._runs[key] = _Placed(run, outcome)
            self._runs_by_pod[run.status.assigned_pod_uid].add(key)
            self.counts[_label(outcome)] += 1
        stale: set[str] = set()
        if old is not None and isinstance(old.outcome, bytes):
            stale.add(_drop(self._shards, old.run.metadata.uid))
        if run is not None and isinstance(outcome, bytes):
            name = shard_of(run.metadata.uid)
            self._shards[name][run.metadata.uid] = outcome
            stale.add(name)
        return stale

    def _fallback(self, key: str) -> bytes | None:
        runtime = self._runtimes.get(key)
        if runtime is None:
            return None
        return fallback_of(runtime, (self._pods[pod] for pod in self._pods_by_runtime.get(key, ())), self._options)


def _serves(pod: Pod, runtime: Runtime) -> bool:
    return pod.ready and pod.metadata.namespace == runtime.metadata.namespace and pod.runtime == runtime.metadata.name


def _entry(target: Target, options: Options) -> bytes:
    return entry(
        path=target.path,
        cluster=target.cluster,
        address=target.address,
        sni=target.sni,
        epoch=target.epoch,
        timeout=options.route_timeout,
    )


def _shard(name: str, entries: Mapping[str, bytes], options: Options) -> tuple[Key, bytes]:
    configuration = configuration_name(name)
    ordered = (entries[uid] for uid in sorted(entries))
    return Key(ROUTES, configuration), shard(name=configuration, entries=ordered, timeout=options.route_timeout)


@lru_cache(maxsize=4)
def _empty(options: Options) -> Snapshot:
    """What an empty world publishes: every scope with an empty shard, and the paths outside of them."""
    bodies = {Key(SCOPES, OTHER): scope(key=OTHER, configuration=OTHER)}
    bodies[Key(ROUTES, OTHER)] = other(timeout=options.route_timeout)
    for name in shard_names():
        bodies[Key(SCOPES, name)] = scope(key=name, configuration=configuration_name(name))
        bodies.update((_shard(name, {}, options),))
    return Snapshot.of(bodies)


def _cluster_key(namespace: str, runtime: str) -> Key:
    return Key(CLUSTERS, cluster_name(namespace=namespace, runtime=runtime))


def _runtime_key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.runtime}"


def _label(outcome: bytes | Unrouted) -> str:
    return outcome.value if isinstance(outcome, Unrouted) else "routed"


def _discard(index: dict[str, set[str]], key: str, member: str) -> None:
    """Takes *member* out of *index*, and an empty set with it."""
    held = index.get(key)
    if held is not None:
        held.discard(member)
        if not held:
            del index[key]


def _drop(shards: dict[str, dict[str, bytes]], uid: str) -> str:
    """Takes a Run's entry out of its shard, whose name it returns."""
    name = shard_of(uid)
    entries = shards.get(name, {})
    entries.pop(uid, None)
    if not entries:
        shards.pop(name, None)
    return name
