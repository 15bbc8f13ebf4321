"""What the chart starts: how far each container is locked in, and what it tells Prometheus."""

from typing import Any

import pytest
from cluster.release import NAMESPACE, Cluster
from support import Api

RUNTIME_PODS = "runtime,app.kubernetes.io/managed-by=kruntimes-operator"
FIGURES = {
    "operator": [(9090, "metrics", "kruntimes_operator_")],
    "router": [(9090, "metrics", "kruntimes_router_")],
    "gateway": [(9090, "metrics", "kruntimes_authz_"), (9901, "stats/prometheus", "envoy_http_downstream_")],
    "runtime": [(9090, "metrics", "kruntimes_runtimed_"), (9092, "metrics", "kruntimes_runtime_")],
}
"""Port, path, and the beginning of a figure that must be there."""


def _pods(release: Cluster) -> list[dict[str, Any]]:
    return [*release.pods("app.kubernetes.io/part-of=kruntimes"), *release.pods(RUNTIME_PODS, "default")]


def test_every_container_is_locked_in(stack: Any, release: Cluster) -> None:
    """Beyond what the standard "restricted" enforces in both namespaces: a read-only root everywhere, no token for
    user code and Envoy, no links to Services in the environment."""
    pods = [p for name in ("operator", "router", "gateway") for p in _component(release, name)]
    pods += release.pods(RUNTIME_PODS, "default")
    assert len(pods) >= 7
    for pod in pods:
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["enableServiceLinks"] is False
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            where = f"{pod['metadata']['name']}/{container['name']}"
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True, where
            assert security["allowPrivilegeEscalation"] is False, where
            assert security["capabilities"] == {"drop": ["ALL"]}, where
            assert container["resources"]["requests"], where
            mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
            token = "/var/run/secrets/kubernetes.io/serviceaccount" in mounts
            assert token == (container["name"] not in ("envoy", "runtime")), where


@pytest.mark.parametrize("component", FIGURES)
def test_every_metrics_endpoint_is_scraped(stack: Any, release: Cluster, api: Api, component: str) -> None:
    pods = release.pods(RUNTIME_PODS, "default") if component == "runtime" else _component(release, component)
    assert pods
    for pod in pods:
        meta = pod["metadata"]
        for port, path, figure in FIGURES[component]:
            answer = api.http.get(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{port}/proxy/{path}")
            assert answer.status_code == 200, f"{meta['name']}:{port}: {answer.text[:300]}"
            assert any(line.startswith(figure) for line in answer.text.splitlines()), f"{meta['name']}:{port} {figure}"


def test_the_admin_interface_of_envoy_is_not_reachable(stack: Any, release: Cluster, api: Api) -> None:
    for pod in _component(release, "gateway"):
        base = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:9901/proxy"
        for path in ("config_dump", "quitquitquit", "stats", "certs"):
            assert api.http.post(f"{base}/{path}").status_code == 404
            assert api.http.get(f"{base}/{path}").status_code == 404


def test_a_drain_is_refused_while_the_pod_is_wanted(stack: Any, release: Cluster, api: Api) -> None:
    for pod in [*_component(release, "gateway"), *release.pods(RUNTIME_PODS, "default")]:
        meta = pod["metadata"]
        answer = api.http.get(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:9090/proxy/drain")
        assert answer.status_code == 409, f"{meta['name']}: {answer.status_code} {answer.text[:200]}"


def _component(release: Cluster, name: str) -> list[dict[str, Any]]:
    return release.pods(f"app.kubernetes.io/name=kruntimes-{name}")
