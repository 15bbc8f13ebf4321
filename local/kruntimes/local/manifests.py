"""The Pods and Runtimes that `krt dev` starts, as manifests (design §10). Pure: settings in, objects out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kruntimes.common.api.manifests import SYSTEM_NAMESPACE
from kruntimes.common.api.names import (
    ADS_PORT,
    API_VERSION,
    CA_BUNDLE_KEY,
    CA_NAME,
    ENVOY_STATS_PORT,
    METRICS_PORT,
)

USER = "krt-dev"
"""The ServiceAccount whose token the ready screen offers: it may do everything with Runs of namespace `default`."""
USER_NAMESPACE = "default"
IMAGE = "kruntimes"
"""No image is ever pulled; the API wants a name, and `kubectl describe` shows it."""
CA_DIR = "/etc/kruntimes/ca"
TOKEN_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (a folder)
TOKEN_SECONDS = 3607


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What the services are told. gateway_dir: a folder that authz and Envoy share, and whose path the router tells.

    address: where Envoy, its statistics and authz listen; port: the public one. router_address: where the router
    listens. names: of the serving certificate.
    """

    address: str
    port: int
    router_address: str
    url: str
    names: tuple[str, ...]
    gateway_dir: Path
    log_level: str = "INFO"


def operator(given: Installation) -> dict[str, Any]:
    """The operator's Pod."""
    env = _env(
        given,
        KRUNTIMES_GATEWAY_URL=given.url,
        KRUNTIMES_GATEWAY_NAMES=",".join(given.names),
        KRUNTIMES_DAEMON_IMAGE=IMAGE,
    )
    return _pod("operator", "kruntimes-operator", containers=[_python("operator", "kruntimes.controller", env)])


def router(given: Installation) -> dict[str, Any]:
    """The router's Pod."""
    address = given.router_address
    env = _env(
        given,
        bind=address,
        KRUNTIMES_CA_FILE=f"{CA_DIR}/{CA_BUNDLE_KEY}",
        KRUNTIMES_GATEWAY_DIR=str(given.gateway_dir),
    )
    container = _python("router", "kruntimes.router", env, mounts=[_CA_MOUNT], host=address)
    return _pod("router", "kruntimes-router", containers=[container], volumes=[_CA])


def gateway(given: Installation) -> dict[str, Any]:
    """The gateway's Pod: authz as a native sidecar that makes what Envoy starts with, and Envoy."""
    env = _env(
        given,
        bind=given.address,
        KRUNTIMES_CA_FILE=f"{CA_DIR}/{CA_BUNDLE_KEY}",
        KRUNTIMES_GATEWAY_DIR=str(given.gateway_dir),
        KRUNTIMES_GATEWAY_BIND_PORT=str(given.port),
        KRUNTIMES_GATEWAY_URL=given.url,
        KRUNTIMES_GATEWAY_NAMES=",".join(given.names),
        KRUNTIMES_ADS_ADDRESS=f"{given.router_address}:{ADS_PORT}",
    )
    authz = _python("authz", "kruntimes.authz", env, mounts=[_CA_MOUNT, _TOKEN_MOUNT], host=given.address)
    authz |= {"restartPolicy": "Always", "startupProbe": _probe("/healthz", METRICS_PORT, given.address)}
    envoy = {
        "name": "envoy",
        "image": "envoy",
        "command": ["envoy", "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning",
                    "--file-flush-interval-msec", "1000"],
        "args": ["-c", f"{given.gateway_dir}/envoy.yaml", "--service-node", "$(POD_UID)",
                 "--service-cluster", "kruntimes-gateway"],
        "env": [_field("POD_UID", "metadata.uid")],
        "readinessProbe": _probe("/ready", ENVOY_STATS_PORT, given.address),
    }  # fmt: skip
    pod = _pod("gateway", "kruntimes-gateway", containers=[envoy], volumes=[_CA, _TOKEN])
    pod["spec"] |= {"initContainers": [authz], "automountServiceAccountToken": False}
    return pod


def services(given: Installation) -> list[dict[str, Any]]:
    """The Pods of kruntimes itself; nothing but the node's `krt dev` starts them anew when they are deleted."""
    return [operator(given), router(given), gateway(given)]


def runtimes() -> list[dict[str, Any]]:
    """The Runtimes that every `krt dev` has."""
    return [_runtime("python", replicas=2), _runtime("bash", replicas=1)]


def user() -> list[dict[str, Any]]:
    """The ServiceAccount whose token is offered, and what it may do."""
    meta = {"name": USER, "namespace": USER_NAMESPACE}
    subject = {"kind": "ServiceAccount", **meta}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    bindings = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{USER}-{role}", "namespace": USER_NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"kruntimes-{role}"},
            "subjects": [subject],
        }
        for role in ("view", "edit")
    ]
    return [account, *bindings]


def namespace() -> dict[str, Any]:
    """The namespace of the services."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}


_CA = {"name": CA_NAME, "configMap": {"name": CA_NAME, "optional": True}}
"""Optional, so that the services start beside the operator that makes it: each waits for the file by itself."""
_CA_MOUNT = {"name": CA_NAME, "mountPath": CA_DIR, "readOnly": True}
_TOKEN = {
    "name": "kruntimes-token",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]
    },
}
_TOKEN_MOUNT = {"name": "kruntimes-token", "mountPath": TOKEN_DIR, "readOnly": True}


def _runtime(name: str, *, replicas: int) -> dict[str, Any]:
    container = {"name": "runtime", "image": IMAGE, "command": ["python", "-m", "kruntimes.runtime", "--host", name]}
    return {
        "apiVersion": API_VERSION,
        "kind": "Runtime",
        "metadata": {"name": name, "namespace": USER_NAMESPACE},
        "spec": {
            "replicas": replicas,
            "capacity": {"resources": {"runs": "8"}},
            "template": {"spec": {"containers": [container]}},
        },
    }


def _pod(name: str, account: str, *, containers: list[Any], volumes: list[Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": {"app.kubernetes.io/name": name}},
        "spec": {
            "serviceAccountName": account,
            "enableServiceLinks": False,
            "containers": containers,
            "volumes": volumes or [],
        },
    }


def _python(
    name: str, module: str, env: list[dict[str, Any]], *, mounts: list[dict[str, Any]] | None = None, host: str = ""
) -> dict[str, Any]:
    return {
        "name": name,
        "image": IMAGE,
        "command": ["python", "-m", module],
        "env": env,
        "volumeMounts": mounts or [],
        "readinessProbe": _probe("/readyz", METRICS_PORT, host),
    }


def _probe(path: str, port: int, host: str) -> dict[str, Any]:
    get: dict[str, Any] = {"path": path, "port": port}
    if host:
        get["host"] = host
    return {"httpGet": get, "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 30}


def _env(given: Installation, *, bind: str = "", **values: str) -> list[dict[str, Any]]:
    """What every service is told, and *values*. bind: the listening address where it is not the Pod's own."""
    address = {"name": "KRUNTIMES_BIND_ADDRESS", "value": bind} if bind else _field("KRUNTIMES_BIND_ADDRESS", _POD_IP)
    return [
        _field("KRUNTIMES_NAMESPACE", "metadata.namespace"),
        _field("KRUNTIMES_POD_NAME", "metadata.name"),
        _field("KRUNTIMES_POD_UID", "metadata.uid"),
        _field("KRUNTIMES_POD_IP", _POD_IP),
        address,
        {"name": "KRUNTIMES_LOG_LEVEL", "value": given.log_level},
        *({"name": name, "value": value} for name, value in values.items()),
    ]


_POD_IP = "status.podIP"


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
