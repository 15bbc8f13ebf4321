"""From a Runtime to the objects that run it: one ReplicaSet for each template hash, and one Service.

Pure: equal input gives an equal hash, and so the same ReplicaSet. The template is the user's; what is added is
the sidecar, its volumes and environment, and defaults where the template is silent.

Source: design §4 (Runtime), §7 and §13 (sockets, environment, ports); a native sidecar, an init
container with restartPolicy Always starts before `runtime` and stops after it.
"""

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kruntimes.common.api.names import (
    API_VERSION,
    CA_BUNDLE_KEY,
    CA_NAME,
    CAPACITY_ANNOTATION,
    GATEWAY_BUNDLE_KEY,
    INVOKE_PORT,
    METRICS_PORT,
    PEER_PORT,
    READINESS_GATE,
    RUNTIME_LABEL,
    RUNTIMED_SERVICE_ACCOUNT,
    TEMPLATE_HASH_LABEL,
)
from kruntimes.common.api.views import Runtime

MANAGED_BY = {"app.kubernetes.io/managed-by": "kruntimes-operator"}
"""On everything that the operator makes; its watches select it."""
SIDECAR = "runtimed"
CONTAINER = "runtime"

WITHDRAWAL_SECONDS = 5
"""Time for routes to leave every gateway before the last call is waited for."""
DRAIN_SECONDS = 8
"""The manager's own drain after that (second source document, "Shutdown behavior")."""
UNREACHABLE_SECONDS = 30
"""How long a Pod stays bound to a node that cannot be reached, unless the template says otherwise."""
TOKEN_SECONDS = 3607
"""The lifetime that Kubernetes gives its own projected tokens; kubelet renews them at four fifths."""
USER_ID = 65532
"""The nonroot user of the common base images; the same in both containers, for they share the workspace."""

SOCKETS_DIR = "/run/kruntimes"
WORKSPACE_DIR = "/workspace"
CA_DIR = "/etc/kruntimes/ca"
TOKEN_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (a folder)
SCRATCH_DIR, SCRATCH_NAME = "/var/lib/kruntimes", "kruntimes-scratch"
"""Where runtimed fetches repositories: git reads configuration from its folder, so user code must not share it."""
SCRATCH_SIZE = "512Mi"
"""Several fetches at a time, each below 128 MiB."""
MAX_NAME_CHARS = 253
"""What the API server takes as the name of a ServiceAccount, a DNS subdomain."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDefaults:
    """The installation's settings that reach the Pods. default_timeout, max_timeout: seconds of an invocation.

    own_gateway_ca: callers of the gateway trust a bundle of their own (ConfigMap `kruntimes-ca`, `gateway.crt`).
    """

    gateway_url: str
    trust_domain: str
    daemon_image: str
    default_timeout: float
    max_timeout: float
    log_level: str
    own_gateway_ca: bool = False


def service_account(runtime: Runtime) -> str:
    """The ServiceAccount of its Pods: what the template names, else the one that is made for each namespace.

    That one also where the template names what can be no ServiceAccount: no Pod is ever made of such a template.
    """
    named = _named_account(runtime.spec.template.get("spec") or {})
    valid = isinstance(named, str) and len(named) <= MAX_NAME_CHARS and _NAME.fullmatch(named) is not None
    return named if valid else RUNTIMED_SERVICE_ACCOUNT


def _named_account(spec: Mapping[str, Any]) -> Any:
    """As the template has it, whatever it is; the older name of the field counts where the newer is absent."""
    return spec.get("serviceAccountName") or spec.get("serviceAccount") or RUNTIMED_SERVICE_ACCOUNT


def owner_reference(runtime: Runtime) -> dict[str, Any]:
    """What makes an object go with its Runtime."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Runtime",
        "name": runtime.metadata.name,
        "uid": runtime.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_template(runtime: Runtime, defaults: PodDefaults) -> dict[str, Any]:
    """The whole Pod template of a Runtime, the template hash aside.

    A field of the wrong type is left as it is, for the API server to refuse in its own words; never does it raise.
    """
    template = copy.deepcopy(runtime.spec.template)
    metadata: dict[str, Any] = dict(template.get("metadata") or {})
    spec: dict[str, Any] = template.get("spec") or {}
    main = next(one for one in spec["containers"] if one["name"] == CONTAINER)
    metadata["labels"] = {**(metadata.get("labels") or {}), **MANAGED_BY, RUNTIME_LABEL: runtime.metadata.name}
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        **{CAPACITY_ANNOTATION + name: str(count) for name, count in runtime.spec.offers.items()},
    }
    spec["restartPolicy"] = "Always"
    spec["serviceAccountName"] = _named_account(spec)
    spec.pop("serviceAccount", None)
    spec["automountServiceAccountToken"] = False
    spec["enableServiceLinks"] = False
    spec["readinessGates"] = _named(spec.get("readinessGates"), "conditionType", {"conditionType": READINESS_GATE})
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    grace = spec.get("terminationGracePeriodSeconds") or 0
    spec["terminationGracePeriodSeconds"] = max(grace_seconds(defaults), grace) if type(grace) is int else grace
    spec["securityContext"] = _over(_POD_SECURITY, spec.get("securityContext"))
    spec["volumes"] = _named(spec.get("volumes"), "name", *_volumes(runtime))
    spec["initContainers"] = _first(spec.get("initContainers"), _sidecar(runtime, defaults))
    _extend(main, defaults)
    return {"metadata": metadata, "spec": spec}


def grace_seconds(defaults: PodDefaults) -> int:
    """What a Pod needs to end well: routes withdrawn, the longest call finished, the manager drained."""
    return WITHDRAWAL_SECONDS + -int(-defaults.max_timeout // 1) + DRAIN_SECONDS


def template_hash(template: Mapping[str, Any]) -> str:
    """Ten hexadecimal digits of the template's content; what is equal as JSON has the same."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def replica_set(runtime: Runtime, template: Mapping[str, Any], *, replicas: int) -> dict[str, Any]:
    """The ReplicaSet RUNTIME-HASH of a Runtime's *template*."""
    digest = template_hash(template)
    labels = {RUNTIME_LABEL: runtime.metadata.name, TEMPLATE_HASH_LABEL: digest}
    metadata = dict(template["metadata"])
    metadata["labels"] = {**metadata["labels"], TEMPLATE_HASH_LABEL: digest}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{runtime.metadata.name}-{digest}",
            "namespace": runtime.metadata.namespace,
            "labels": {**labels, **MANAGED_BY},
            "ownerReferences": [owner_reference(runtime)],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": template["spec"]},
        },
    }


def service(runtime: Runtime) -> dict[str, Any]:
    """The Service of a Runtime: headless, since every caller pins the certificate of the Pod that it wants."""
    ports = {"invoke": INVOKE_PORT, "peer": PEER_PORT, "metrics": METRICS_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": runtime.metadata.name,
            "namespace": runtime.metadata.namespace,
            "labels": {RUNTIME_LABEL: runtime.metadata.name, **MANAGED_BY},
            "ownerReferences": [owner_reference(runtime)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {RUNTIME_LABEL: runtime.metadata.name, **MANAGED_BY},
            "ports": [
                {"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in ports.items()
            ],
        },
    }


_POD_SECURITY: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER_SECURITY: Mapping[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""What Kubernetes' restricted Pod security standard asks for."""

_MOUNTS = (
    {"name": "sockets", "mountPath": SOCKETS_DIR},
    {"name": "workspace", "mountPath": WORKSPACE_DIR},
)


def _volumes(runtime: Runtime) -> tuple[dict[str, Any], ...]:
    token = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": _field("metadata.namespace")}]}},
    ]
    return (
        {"name": "sockets", "emptyDir": {}},
        {"name": "workspace", **(runtime.spec.workspace or {"emptyDir": {}})},
        {"name": "kruntimes-token", "projected": {"sources": token}},
        {"name": CA_NAME, "configMap": {"name": CA_NAME}},
        {"name": SCRATCH_NAME, "emptyDir": {"sizeLimit": SCRATCH_SIZE}},
    )


def _sidecar(runtime: Runtime, defaults: PodDefaults) -> dict[str, Any]:
    env = [
        _from_field("KRUNTIMES_NAMESPACE", "metadata.namespace"),
        _from_field("KRUNTIMES_POD_NAME", "metadata.name"),
        _from_field("KRUNTIMES_POD_UID", "metadata.uid"),
        _from_field("KRUNTIMES_POD_IP", "status.podIP"),
        _from_field("KRUNTIMES_BIND_ADDRESS", "status.podIP"),
        *_literal(
            KRUNTIMES_RUNTIME=runtime.metadata.name,
            KRUNTIMES_TRUST_DOMAIN=defaults.trust_domain,
            KRUNTIMES_GATEWAY_URL=defaults.gateway_url,
            KRUNTIMES_CA_FILE=f"{CA_DIR}/{CA_BUNDLE_KEY}",
            **({"KRUNTIMES_GATEWAY_CA_FILE": f"{CA_DIR}/{GATEWAY_BUNDLE_KEY}"} if defaults.own_gateway_ca else {}),
            KRUNTIMES_EXECUTOR_SOCKET=f"{SOCKETS_DIR}/executor.sock",
            KRUNTIMES_FUNCTIONS_SOCKET=f"{SOCKETS_DIR}/functions.sock",
            KRUNTIMES_WORKSPACE=WORKSPACE_DIR,
            TMPDIR=SCRATCH_DIR,
            KRUNTIMES_DEFAULT_TIMEOUT=f"{defaults.default_timeout:g}",
            KRUNTIMES_MAX_TIMEOUT=f"{defaults.max_timeout:g}",
            KRUNTIMES_LOG_LEVEL=defaults.log_level,
        ),
    ]
    health = {"httpGet": {"path": "/healthz", "port": METRICS_PORT}}
    return {
        "name": SIDECAR,
        "image": runtime.spec.daemon_image or defaults.daemon_image,
        "command": ["python", "-m", "kruntimes.runtimed"],
        "restartPolicy": "Always",
        "env": env,
        "ports": [
            {"name": "invoke", "containerPort": INVOKE_PORT, "protocol": "TCP"},
            {"name": "peer", "containerPort": PEER_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "startupProbe": {**health, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {**health, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
        "securityContext": {**_CONTAINER_SECURITY, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            *_MOUNTS,
            {"name": "kruntimes-token", "mountPath": TOKEN_DIR, "readOnly": True},
            {"name": CA_NAME, "mountPath": CA_DIR, "readOnly": True},
            {"name": SCRATCH_NAME, "mountPath": SCRATCH_DIR},
        ],
    }


def _extend(main: dict[str, Any], defaults: PodDefaults) -> None:
    """Gives the user's `runtime` container its sockets, workspace and drain; never a token."""
    env = [
        _from_field("KRUNTIMES_BIND_ADDRESS", "status.podIP"),
        *_literal(
            KRUNTIMES_EXECUTOR_SOCKET=f"{SOCKETS_DIR}/executor.sock",
            KRUNTIMES_FUNCTIONS_SOCKET=f"{SOCKETS_DIR}/functions.sock",
            KRUNTIMES_WORKSPACE=WORKSPACE_DIR,
            KRUNTIMES_STATE_DIR=SOCKETS_DIR,
            KRUNTIMES_LOG_LEVEL=defaults.log_level,
        ),
    ]
    main["env"] = _named(main.get("env"), "name", *env)
    main["volumeMounts"] = _named(main.get("volumeMounts"), "mountPath", *_MOUNTS)
    lifecycle = _over({}, main.get("lifecycle"))
    drain = {"preStop": {"httpGet": {"path": "/drain", "port": METRICS_PORT}}}
    main["lifecycle"] = {**lifecycle, **drain} if isinstance(lifecycle, dict) else lifecycle
    main["securityContext"] = _over(_CONTAINER_SECURITY, main.get("securityContext"))


def _over(ours: Mapping[str, Any], given: Any) -> Any:
    """The user's fields over our defaults."""
    return {**ours, **(given or {})} if not given or isinstance(given, dict) else given


def _are_objects(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(one, dict) for one in given)


def _tolerations(given: Any) -> Any:
    """Adds ours for every taint that the template says nothing about; an empty key speaks about all of them."""
    if not _are_objects(given):
        return given
    spoken = [
        one.get("key", "") for one in given if one.get("effect", "") in ("", "NoExecute") or not one.get("effect")
    ]
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": UNREACHABLE_SECONDS}
        for key in TOLERATED
        if key not in spoken and "" not in spoken
    ]
    return [*given, *added]


def _named(given: Any, key: str, *ours: dict[str, Any]) -> Any:
    """The user's list with ours after it; an item of the user's with the same *key* gives way."""
    if given and not _are_objects(given):
        return given
    taken = [one[key] for one in ours]
    return [*(one for one in given or [] if one.get(key) not in taken), *ours]


def _first(given: list[dict[str, Any]] | None, ours: dict[str, Any]) -> list[dict[str, Any]]:
    return [ours, *(one for one in given or [] if one.get("name") != ours["name"])]


def _field(path: str) -> dict[str, str]:
    return {"apiVersion": "v1", "fieldPath": path}


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": _field(path)}}


def _literal(**values: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]
