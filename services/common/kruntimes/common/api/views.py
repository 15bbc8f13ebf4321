"""What we read of Kubernetes objects: frozen msgspec views, one for each use (design §3).

A field that is not named here is not decoded, so a view says exactly what its reader depends on.
Decode with `msgspec.json.decode(data, type=View)`; unknown fields are ignored, missing ones have the
API's defaults. Times stay strings (`clock.parse` reads them where they are needed).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kruntimes.common.api import durations, quantities
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import CAPACITY_ANNOTATION, RUNTIME_LABEL
from kruntimes.common.api.phases import Phase, PhaseClass, classify
from kruntimes.common.api.reasons import RunCondition


class View(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of every view: immutable, camelCase on the wire."""


class OwnerReference(View, frozen=True):
    """metadata.ownerReferences[]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(View, frozen=True):
    """metadata, as far as anyone here reads it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def deleting(self) -> bool:
        """Whether deletion has been asked for and only finalizers or grace hold the object."""
        return self.deletion_timestamp is not None


class Object(View, frozen=True):
    """Any object of which only the metadata matters (`PartialObjectMetadata`)."""

    metadata: Meta = Meta()


class Condition(View, frozen=True):
    """status.conditions[] in the form of metav1.Condition."""

    type: str = ""
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of type *kind*, or None."""
    return next((c for c in conditions if c.type == kind), None)


# ---------------------------------------------------------------- Run


class Source(View, frozen=True):
    """Run.spec.source."""

    inline: str | None = None
    inline_path: str | None = None
    repo_url: str | None = msgspec.field(default=None, name="repoURL")
    commit_sha: str | None = msgspec.field(default=None, name="commitSHA")


class TaskMode(View, frozen=True):
    """Run.spec.mode.task."""

    entrypoint: str = ""
    args: tuple[str, ...] = ()


class FunctionMode(View, frozen=True):
    """Run.spec.mode.function."""

    handler: str = ""
    idle_timeout_seconds: int | None = None
    isolation: str = "Worker"


class Mode(View, frozen=True):
    """Run.spec.mode: exactly one of the two."""

    task: TaskMode | None = None
    function: FunctionMode | None = None


class EnvVar(View, frozen=True):
    """Run.spec.env[]; `valueFrom` is refused by the schema."""

    name: str = ""
    value: str = ""


class RetryPolicy(View, frozen=True):
    """Run.spec.retryPolicy."""

    max_attempts: int = 1
    backoff: str = "0s"
    retryable_reasons: tuple[str, ...] = ()

    @property
    def backoff_seconds(self) -> float:
        """The base of the back-off, in seconds."""
        return durations.seconds(self.backoff)


class Resources(View, frozen=True):
    """Run.spec.resources as written; `RunSpec.requests` gives the numbers."""

    requests: dict[str, str | int] = {}


class RunSpec(View, frozen=True):
    """Run.spec, whole."""

    runtime: str = ""
    source: Source | None = None
    mode: Mode = Mode()
    env: tuple[EnvVar, ...] = ()
    timeout: str | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    cancel_requested: bool = False
    ttl_seconds_after_finished: int | None = None
    resources: Resources = Resources()

    @property
    def requests(self) -> Mapping[str, int]:
        """What the Run takes of its Pod's capacity; always at least one of `runs`."""
        return quantities.requests(self.resources.requests)

    @property
    def timeout_seconds(self) -> float | None:
        """The longest life from startTime on, in seconds; None where there is no bound."""
        return None if self.timeout is None else durations.seconds(self.timeout)


class Endpoint(View, frozen=True):
    """Run.status.endpoint; ca_bundle is base64 of PEM, as it stands in JSON."""

    protocol: str = "HTTPS"
    url: str = ""
    ca_bundle: str | None = None


class RunStatus(View, frozen=True):
    """Run.status, whole."""

    phase: str = ""
    assigned_pod: str = ""
    assigned_pod_uid: str = msgspec.field(default="", name="assignedPodUID")
    endpoint: Endpoint | None = None
    message: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    outputs: dict[str, str] = {}
    attempt: int = 0
    conditions: tuple[Condition, ...] = ()


class Run(View, frozen=True):
    """A Run, whole: for lifecycle decisions."""

    metadata: Meta = Meta()
    spec: RunSpec = RunSpec()
    status: RunStatus = RunStatus()

    @property
    def phase_class(self) -> PhaseClass:
        """What its phase implies."""
        return classify(self.status.phase)

    @property
    def epoch(self) -> Epoch | None:
        """The epoch of its registration; None where it is not assigned or was never claimed."""
        return _epoch(self.metadata, self.status)

    @property
    def ready(self) -> bool:
        """Phase Ready and condition Ready=True and not being deleted: it may be invoked."""
        return _ready(self.metadata, self.status)


class RouteSpec(View, frozen=True):
    """The part of Run.spec that routing needs: not the source, of up to 256 KiB."""

    runtime: str = ""


class RouteStatus(View, frozen=True):
    """The part of Run.status that routing needs."""

    phase: str = ""
    assigned_pod: str = ""
    assigned_pod_uid: str = msgspec.field(default="", name="assignedPodUID")
    attempt: int = 0
    conditions: tuple[Condition, ...] = ()


class RouteRun(View, frozen=True):
    """A Run as the router and the ownership cache of runtimed see it."""

    metadata: Meta = Meta()
    spec: RouteSpec = RouteSpec()
    status: RouteStatus = RouteStatus()

    @property
    def epoch(self) -> Epoch | None:
        """As `Run.epoch`."""
        return _epoch(self.metadata, self.status)

    @property
    def ready(self) -> bool:
        """As `Run.ready`."""
        return _ready(self.metadata, self.status)


def _epoch(metadata: Meta, status: RunStatus | RouteStatus) -> Epoch | None:
    if not status.assigned_pod_uid or status.attempt < 1:
        return None
    return Epoch(metadata.uid, status.attempt, status.assigned_pod_uid)


def _ready(metadata: Meta, status: RunStatus | RouteStatus) -> bool:
    held = condition(status.conditions, RunCondition.READY)
    return status.phase == Phase.READY and held is not None and held.status == "True" and not metadata.deleting


# ---------------------------------------------------------------- Runtime


class Capacity(View, frozen=True):
    """Runtime.spec.capacity."""

    resources: dict[str, str | int] = msgspec.field(default_factory=lambda: {"runs": "2"})


class RuntimeSpec(View, frozen=True):
    """Runtime.spec; template and workspace stay plain JSON, since they are passed on and not read."""

    template: dict[str, Any] = {}
    port: int = 9091
    replicas: int = 1
    daemon_image: str = ""
    capacity: Capacity = Capacity()
    workspace: dict[str, Any] | None = None

    @property
    def offers(self) -> Mapping[str, int]:
        """What one of its Pods offers to Runs; two of `runs` unless the Runtime says otherwise."""
        return quantities.capacity(self.capacity.resources)


class RuntimeStatus(View, frozen=True):
    """Runtime.status."""

    ready_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Runtime(View, frozen=True):
    """A Runtime, whole."""

    metadata: Meta = Meta()
    spec: RuntimeSpec = RuntimeSpec()
    status: RuntimeStatus = RuntimeStatus()


# ---------------------------------------------------------------- Kubernetes' own


class PodSpec(View, frozen=True):
    """The part of Pod.spec that is read outside the node."""

    node_name: str = ""
    service_account_name: str = ""


class PodStatus(View, frozen=True):
    """Pod.status."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()


class Pod(View, frozen=True):
    """A Pod as scheduler, router and signer see it."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def runtime(self) -> str:
        """The Runtime that it belongs to, or the empty string."""
        return self.metadata.labels.get(RUNTIME_LABEL, "")

    @property
    def capacity(self) -> Mapping[str, int]:
        """What it offers to Runs, from its annotations; raises ValueError where one is not a whole number."""
        return {
            name.removeprefix(CAPACITY_ANNOTATION): quantities.parse(value)
            for name, value in self.metadata.annotations.items()
            if name.startswith(CAPACITY_ANNOTATION)
        }

    @property
    def ended(self) -> bool:
        """Whether all of its containers have stopped for good, as its node says; the object may stay."""
        return self.status.phase in ("Failed", "Succeeded")

    @property
    def ready(self) -> bool:
        """Condition Ready=True, neither being deleted nor ended."""
        held = condition(self.status.conditions, "Ready")
        return held is not None and held.status == "True" and not (self.metadata.deleting or self.ended)


class LeaseSpec(View, frozen=True):
    """Lease.spec."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    renew_time: str = ""
    acquire_time: str = ""
    lease_transitions: int = 0


class Lease(View, frozen=True):
    """A coordination.k8s.io Lease: a runtimed's heartbeat or the operator's election."""

    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


class CSRSpec(View, frozen=True):
    """CertificateSigningRequest.spec; request is base64 of PEM."""

    request: str = ""
    signer_name: str = ""
    username: str = ""
    extra: dict[str, tuple[str, ...]] = {}
    usages: tuple[str, ...] = ()
    expiration_seconds: int | None = None


class CSRStatus(View, frozen=True):
    """CertificateSigningRequest.status; certificate is base64 of PEM."""

    certificate: str = ""
    conditions: tuple[Condition, ...] = ()


class CSR(View, frozen=True):
    """A certificates.k8s.io CertificateSigningRequest."""

    metadata: Meta = Meta()
    spec: CSRSpec = CSRSpec()
    status: CSRStatus = CSRStatus()
