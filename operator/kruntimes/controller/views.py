"""What the operator reads of objects, beyond the shared views: only what its decisions need.

A Run carries a source of up to 256 KiB and, after a client-side apply, an annotation with a copy of it.
Neither is decoded here, so that a cache of many Runs stays small (design §4).
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from kruntimes.common.api import quantities, times
from kruntimes.common.api.durations import seconds
from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.phases import PhaseClass, classify
from kruntimes.common.api.views import Condition, Meta, Resources, RetryPolicy, View, condition


def instant(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; raises ValueError."""
    return times.parse(text).timestamp()


def timestamp(moment: float) -> str:
    """Kubernetes' metav1.Time for *moment*, in seconds since the epoch."""
    return times.rfc3339(datetime.fromtimestamp(moment, UTC))


class RunMeta(View, frozen=True):
    """Run.metadata without labels and annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def deleting(self) -> bool:
        """Whether deletion has been asked for and finalizers hold the object."""
        return self.deletion_timestamp is not None


class FunctionMark(View, frozen=True):
    """Run.spec.mode.function, of which it only matters that it is there."""


class ControlledMode(View, frozen=True):
    """Run.spec.mode: a task where there is no function."""

    function: FunctionMark | None = None


class ControlledSpec(View, frozen=True):
    """The part of Run.spec that scheduling and recovery depend on."""

    runtime: str = ""
    mode: ControlledMode = ControlledMode()
    timeout: str | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    cancel_requested: bool = False
    ttl_seconds_after_finished: int | None = None
    resources: Resources = Resources()


class ControlledStatus(View, frozen=True):
    """The part of Run.status that scheduling and recovery depend on."""

    phase: str = ""
    assigned_pod: str = ""
    assigned_pod_uid: str = msgspec.field(default="", name="assignedPodUID")
    start_time: str | None = None
    completion_time: str | None = None
    attempt: int = 0
    conditions: tuple[Condition, ...] = ()


class ControlledRun(View, frozen=True):
    """A Run as scheduler and recovery see it. status is None while nobody has written one."""

    metadata: RunMeta = RunMeta()
    spec: ControlledSpec = ControlledSpec()
    status: ControlledStatus | None = None

    @property
    def state(self) -> ControlledStatus:
        """Its status, empty where there is none."""
        return self.status if self.status is not None else ControlledStatus()

    @property
    def phase_class(self) -> PhaseClass:
        """What its phase implies."""
        return classify(self.state.phase)

    @property
    def runtime_key(self) -> str:
        """`namespace/name` of its Runtime."""
        return f"{self.metadata.namespace}/{self.spec.runtime}"

    @property
    def holds_finalizer(self) -> bool:
        """Whether a registration may have to be cleaned up before it can go."""
        return FINALIZER in self.metadata.finalizers

    @property
    def occupies(self) -> str:
        """The UID of the Pod whose capacity it takes, or the empty string.

        A Run that is being deleted takes it until its clean-up has removed the finalizer and it is gone.
        """
        return "" if self.phase_class.terminal else self.state.assigned_pod_uid

    @property
    def lifetime_ends(self) -> float | None:
        """Seconds since the epoch at which `spec.timeout`, counted from startTime, is over; None for never."""
        if self.spec.timeout is None or self.state.start_time is None:
            return None
        length = duration(self.spec.timeout)
        return instant(self.state.start_time) + length if length > 0 else None

    @property
    def ends_with_its_pod(self) -> bool:
        """Whether it is a function that is not registered again when its Pod is lost."""
        return self.spec.mode.function is not None and self.spec.retry_policy.max_attempts <= 1

    @property
    def retention_ends(self) -> float | None:
        """Seconds since the epoch at which a Run that has ended is to be deleted; None for one that is kept."""
        ttl, ended = self.spec.ttl_seconds_after_finished, self.state.completion_time
        if not ttl or not ended or not self.phase_class.terminal:
            return None
        return instant(ended) + ttl

    def condition(self, kind: str) -> Condition | None:
        """Its condition of type *kind*, or None."""
        return condition(self.state.conditions, kind)


def duration(text: str) -> float:
    """Seconds that *text* means; 0 for what is no duration, which the schema refuses anyhow."""
    try:
        return seconds(text)
    except ValueError:
        return 0.0


def requests(run: ControlledRun) -> Mapping[str, int]:
    """What a Run takes of its Pod's capacity; one of `runs` where the schema was not there to refuse the rest."""
    try:
        return quantities.requests(run.spec.resources.requests)
    except ValueError:
        return quantities.requests({})


class EndpointConditions(View, frozen=True):
    """EndpointSlice.endpoints[].conditions; an absent `serving` means that it serves."""

    serving: bool | None = None


class TargetRef(View, frozen=True):
    """EndpointSlice.endpoints[].targetRef."""

    kind: str = ""
    uid: str = ""


class SliceEndpoint(View, frozen=True):
    """EndpointSlice.endpoints[]."""

    conditions: EndpointConditions = EndpointConditions()
    target_ref: TargetRef | None = None


class EndpointSlice(View, frozen=True):
    """A discovery.k8s.io EndpointSlice: which Pods a Service still sends traffic to."""

    metadata: Meta = Meta()
    endpoints: tuple[SliceEndpoint, ...] = ()


class ReplicaSetSpec(View, frozen=True):
    """ReplicaSet.spec."""

    replicas: int = 1


class ReplicaSetStatus(View, frozen=True):
    """ReplicaSet.status, of which it matters what stops its controller."""

    conditions: tuple[Condition, ...] = ()


class ReplicaSet(View, frozen=True):
    """A ReplicaSet of one template hash of a Runtime."""

    metadata: Meta = Meta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()

    @property
    def failure(self) -> Condition | None:
        """Why its controller can make (or delete) no Pods at the moment, None while nothing stops it."""
        held = condition(self.status.conditions, "ReplicaFailure")
        return held if held is not None and held.status == "True" else None


class RoleRef(View, frozen=True):
    """RoleBinding.roleRef."""

    kind: str = ""
    name: str = ""


class Subject(View, frozen=True):
    """RoleBinding.subjects[]."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleBinding(View, frozen=True):
    """Who has a role in a namespace."""

    metadata: Meta = Meta()
    role_ref: RoleRef = RoleRef()
    subjects: tuple[Subject, ...] = ()
