"""What we read of Kubernetes objects: frozen msgspec views, one for each use (design §3).

A field that is not named here is not decoded, so a view says exactly what its reader depends on.
Decode with `msgspec.json.decode(data, type=View)`; unknown fields are ignored, missing ones have the
API's defaults. Times stay strings (`clock.parse` reads them where they are needed).
"""

from typing import Any

import msgspec
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import RUNTIME_LABEL
from kruntimes.common.api.phases import PhaseClass, classify


class View(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of every view: immutable, camelCase on the wire."""


class OwnerReference(View):
    """metadata.ownerReferences[]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(View):
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


class Object(View):
    """Any object of which only the metadata matters (`PartialObjectMetadata`)."""

    metadata: Meta = Meta()


class Condition(View):
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


class Source(View):
    """Run.spec.source."""

    inline: str | None = None
    inline_path: str | None = None
    repo_url: str | None = msgspec.field(default=None, name="repoURL")
    commit_sha: str | None = msgspec.field(default=None, name="commitSHA")


class TaskMode(View):
    """Run.spec.mode.task."""

    entrypoint: str = ""
    args: tuple[str, ...] = ()


class FunctionMode(View):
    """Run.spec.mode.function."""

    handler: str = ""
    idle_timeout_seconds: int | None = None
    isolation: str = "Worker"


class Mode(View):
    """Run.spec.mode: exactly one of the two."""

    task: TaskMode | None = None
    function: FunctionMode | None = None


class EnvVar(View):
    """Run.spec.env[]; `valueFrom` is refused by the schema."""

    name: str = ""
    value: str = ""


class RetryPolicy(View):
    """Run.spec.retryPolicy."""

    max_attempts: int = 1
    backoff: str = "0s"
    retryable_reasons: tuple[str, ...] = ()


class Resources(View):
    """Run.spec.resources and Runtime.spec.capacity: logical resources, whole numbers (`runs` first of all)."""

    requests: dict[str, str | int] = {}


class RunSpec(View):
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


class Endpoint(View):
    """Run.status.endpoint; ca_bundle is base64 of PEM, as it stands in JSON."""

    protocol: str = "HTTPS"
    url: str = ""
    ca_bundle: str | None = None


class RunStatus(View):
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


class Run(View):
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
        if not self.status.assigned_pod_uid or self.status.attempt < 1:
            return None
        return Epoch(self.metadata.uid, self.status.attempt, self.status.assigned_pod_uid)

    @property
    def ready(self) -> bool:
        """Phase Ready and condition Ready=True and not being deleted: it may be invoked."""
        held = condition(self.status.conditions, "Ready")
        return (
            self.status.phase == "Ready" and held is not None and held.status == "True" and not self.metadata.deleting
        )


class RouteSpec(View):
    """The part of Run.spec that routing needs: not the source, of up to 256 KiB."""

    runtime: str = ""


class RouteStatus(View):
    """The part of Run.status that routing needs."""

    phase: str = ""
    assigned_pod: str = ""
    assigned_pod_uid: str = msgspec.field(default="", name="assignedPodUID")
    attempt: int = 0
    conditions: tuple[Condition, ...] = ()


class RouteRun(View):
    """A Run as the router and the ownership cache of runtimed see it."""

    metadata: Meta = Meta()
    spec: RouteSpec = RouteSpec()
    status: RouteStatus = RouteStatus()

    @property
    def epoch(self) -> Epoch | None:
        """As `Run.epoch`."""
        if not self.status.assigned_pod_uid or self.status.attempt < 1:
            return None
        return Epoch(self.metadata.uid, self.status.attempt, self.status.assigned_pod_uid)

    @property
    def ready(self) -> bool:
        """As `Run.ready`."""
        held = condition(self.status.conditions, "Ready")
        return (
            self.status.phase == "Ready" and held is not None and held.status == "True" and not self.metadata.deleting
        )


# ---------------------------------------------------------------- Runtime


class Capacity(View):
    """Runtime.spec.capacity."""

    resources: dict[str, str | int] = msgspec.field(default_factory=lambda: {"runs": "2"})


class RuntimeSpec(View):
    """Runtime.spec; template and workspace stay plain JSON, since they are passed on and not read."""

    template: dict[str, Any] = {}
    port: int = 9091
    replicas: int = 1
    daemon_image: str = ""
    capacity: Capacity = Capacity()
    workspace: dict[str, Any] | None = None


class RuntimeStatus(View):
    """Runtime.status."""

    ready_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Runtime(View):
    """A Runtime, whole."""

    metadata: Meta = Meta()
    spec: RuntimeSpec = RuntimeSpec()
    status: RuntimeStatus = RuntimeStatus()


# ---------------------------------------------------------------- Kubernetes' own


class PodSpec(View):
    """The part of Pod.spec that is read outside the node."""

    node_name: str = ""
    service_account_name: str = ""


class PodStatus(View):
    """Pod.status."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()


class Pod(View):
    """A Pod as scheduler, router and signer see it."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def runtime(self) -> str:
        """The Runtime that it belongs to, or the empty string."""
        return self.metadata.labels.get(RUNTIME_LABEL, "")

    @property
    def ready(self) -> bool:
        """Condition Ready=True and not being deleted."""
        held = condition(self.status.conditions, "Ready")
        return held is not None and held.status == "True" and not self.metadata.deleting


class LeaseSpec(View):
    """Lease.spec."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    renew_time: str = ""
    acquire_time: str = ""
    lease_transitions: int = 0


class Lease(View):
    """A coordination.k8s.io Lease: a runtimed's heartbeat or the operator's election."""

    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


class CSRSpec(View):
    """CertificateSigningRequest.spec; request is base64 of PEM."""

    request: str = ""
    signer_name: str = ""
    username: str = ""
    extra: dict[str, tuple[str, ...]] = {}
    usages: tuple[str, ...] = ()
    expiration_seconds: int | None = None


class CSRStatus(View):
    """CertificateSigningRequest.status; certificate is base64 of PEM."""

    certificate: str = ""
    conditions: tuple[Condition, ...] = ()


class CSR(View):
    """A certificates.k8s.io CertificateSigningRequest."""

    metadata: Meta = Meta()
    spec: CSRSpec = CSRSpec()
    status: CSRStatus = CSRStatus()
