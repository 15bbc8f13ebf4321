"""What the node reads of a Pod: frozen views of the parts of `core/v1` that it acts on.

Ports, resources, security contexts, affinity and tolerations are not here: a process on this machine has none.
"""

from typing import Any

import msgspec

from kruntimes.common.api.views import Meta, View


class FieldRef(View, frozen=True):
    """valueFrom.fieldRef and downwardAPI items[].fieldRef."""

    field_path: str = ""


class KeyRef(View, frozen=True):
    """valueFrom.configMapKeyRef and secretKeyRef."""

    name: str = ""
    key: str = ""
    optional: bool = False


class ValueFrom(View, frozen=True):
    """env[].valueFrom: at most one of them is set."""

    field_ref: FieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(View, frozen=True):
    """env[]."""

    name: str = ""
    value: str = ""
    value_from: ValueFrom | None = None


class Mount(View, frozen=True):
    """volumeMounts[]."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class HttpGet(View, frozen=True):
    """An httpGet action; port is a number or the name of a container port."""

    port: int | str = 0
    path: str = "/"
    scheme: str = "HTTP"
    host: str = ""


class TcpSocket(View, frozen=True):
    """A tcpSocket action."""

    port: int | str = 0
    host: str = ""


class Exec(View, frozen=True):
    """An exec action."""

    command: tuple[str, ...] = ()


class Probe(View, frozen=True):
    """startupProbe, readinessProbe or livenessProbe; seconds."""

    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    exec: Exec | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class Handler(View, frozen=True):
    """lifecycle.preStop."""

    http_get: HttpGet | None = None
    exec: Exec | None = None


class Lifecycle(View, frozen=True):
    """lifecycle."""

    pre_stop: Handler | None = None


class Port(View, frozen=True):
    """ports[]."""

    name: str = ""
    container_port: int = 0


class Container(View, frozen=True):
    """containers[] and initContainers[]."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    ports: tuple[Port, ...] = ()
    volume_mounts: tuple[Mount, ...] = ()
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    restart_policy: str = ""


class KeyToPath(View, frozen=True):
    """items[] of a ConfigMap or Secret."""

    key: str = ""
    path: str = ""


class FromObject(View, frozen=True):
    """A ConfigMap or a Secret as a source of files; `secretName` is how a Secret volume spells the name."""

    name: str = ""
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool = False


class DownwardItem(View, frozen=True):
    """downwardAPI.items[]."""

    path: str = ""
    field_ref: FieldRef | None = None


class Downward(View, frozen=True):
    """downwardAPI."""

    items: tuple[DownwardItem, ...] = ()


class TokenSource(View, frozen=True):
    """projected.sources[].serviceAccountToken."""

    path: str = "token"
    audience: str = ""
    expiration_seconds: int = 3600


class ProjectedSource(View, frozen=True):
    """projected.sources[]: exactly one of them is set."""

    service_account_token: TokenSource | None = None
    config_map: FromObject | None = None
    secret: FromObject | None = None
    downward_api: Downward | None = msgspec.field(default=None, name="downwardAPI")


class Projected(View, frozen=True):
    """projected."""

    sources: tuple[ProjectedSource, ...] = ()


class Volume(View, frozen=True):
    """volumes[]: exactly one source is set; one that the node cannot make stays None in all of them."""

    name: str = ""
    empty_dir: dict[str, Any] | None = None
    projected: Projected | None = None
    config_map: FromObject | None = None
    secret: FromObject | None = None
    downward_api: Downward | None = msgspec.field(default=None, name="downwardAPI")


class Gate(View, frozen=True):
    """readinessGates[]."""

    condition_type: str = ""


class NodePodSpec(View, frozen=True):
    """Pod.spec, as the node reads it."""

    node_name: str = ""
    service_account_name: str = "default"
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    readiness_gates: tuple[Gate, ...] = ()


class NodePodStatus(View, frozen=True):
    """Pod.status, as the node reads it back: conditions hold those that others write (readiness gates)."""

    phase: str = ""
    conditions: tuple[dict[str, Any], ...] = ()
    init_container_statuses: tuple[dict[str, Any], ...] = ()
    container_statuses: tuple[dict[str, Any], ...] = ()


class NodePodMeta(Meta, frozen=True):
    """metadata with the grace that a deletion gives."""

    deletion_grace_period_seconds: int | None = None


class NodePod(View, frozen=True):
    """A Pod that is bound, or to be bound, to this node."""

    metadata: NodePodMeta = NodePodMeta()
    spec: NodePodSpec = NodePodSpec()
    status: NodePodStatus = NodePodStatus()

    @property
    def controlled(self) -> bool:
        """Whether a controller (a ReplicaSet) will put another in its place."""
        return any(owner.controller for owner in self.metadata.owner_references)

    def gate_open(self, kind: str) -> bool:
        """Whether the condition that a readiness gate names is True."""
        return any(c.get("type") == kind and c.get("status") == "True" for c in self.status.conditions)
