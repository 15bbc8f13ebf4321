"""The chart with many sets of values: what it makes of them is valid, and what makes no sense is refused in words."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_helm import CHART, NAMESPACE, helm, needs_helm, refused, rendered
from support import Api

pytestmark = needs_helm
Values = dict[str, Any]

DIGEST = "sha256:" + "0123456789abcdef" * 4
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "kruntimes", "effect": "NoSchedule"}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}]
        }
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "kruntimes-gateway"}},
    }
]
GOOD: dict[str, Values] = {
    "defaults": {},
    "node-port": {"gateway.service.type": "NodePort", "gateway.service.nodePort": 30443},
    "load-balancer": {
        "gateway.service.type": "LoadBalancer",
        "gateway.service.loadBalancerClass": "example.com/internal",
        "gateway.service.loadBalancerSourceRanges": ["10.0.0.0/8"],
        "gateway.service.externalTrafficPolicy": "Local",
        "gateway.service.annotations": {"example.com/idle-timeout": "3600"},
    },
    "own-url": {"gateway.url": "https://functions.example.com", "gateway.hostnames": ["10.0.0.1", "other.example.com"]},
    "own-address": {"gateway.url": "https://[2001:db8::1]:8443", "bindAddress": "::"},
    "own-certificate": {"gateway.tls.secretName": "serving", "gateway.tls.caBundle": "-----BEGIN CERTIFICATE-----\n"},
    "one-of-each": {"gateway.replicas": 1},
    "three-of-each": {"gateway.replicas": 3, "router.replicas": 3, "operator.replicas": 3},
    "no-budgets": {"gateway.podDisruptionBudget.enabled": False},
    "budget-in-percent": {"gateway.podDisruptionBudget.maxUnavailable": "50%"},
    "images-by-digest": {"image.digest": DIGEST, "gateway.envoy.image.digest": DIGEST},
    "own-registry": {
        "image.repository": "registry.example.com/kruntimes",
        "image.tag": "1.2.3",
        "image.pullPolicy": "Always",
        "imagePullSecrets": [{"name": "registry"}],
        "runtimes.python.image": {"repository": "registry.example.com/our-python", "tag": "7"},
    },
    "placed": {
        f"{part}.{key}": value
        for part in ("gateway", "router", "operator", "hooks", "runtimes.python")
        for key, value in {
            "nodeSelector": {"pool": "a"},
            "tolerations": [TOLERATION],
            "affinity": AFFINITY,
            "priorityClassName": "system-cluster-critical",
        }.items()
    },
    "spread": {"gateway.topologySpreadConstraints": SPREAD, "runtimes.python.topologySpreadConstraints": SPREAD},
    "labelled": {
        "commonLabels": {"team": "platform"},
        "gateway.podLabels": {"sidecar.example.com/inject": "false"},
        "router.podAnnotations": {"example.com/a": "b"},
        "runtimes.bash.podAnnotations": {"example.com/a": "b"},
    },
    "policies-and-monitors": {
        "networkPolicy.enabled": True,
        "networkPolicy.gatewayFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "networkPolicy.metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "monitors.enabled": True,
        "monitors.labels": {"release": "prometheus"},
    },
    "no-runtimes": {"runtimes.python.enabled": False, "runtimes.bash.enabled": False},
    "more-runtimes": {
        "runtimes.data": {
            "namespace": "default",
            "image": {"repository": "registry.example.com/data", "tag": "1"},
            "capacity": {"runs": 2, "gpus": "1"},
            "env": [{"name": "MODE", "value": "fast"}],
            "serviceAccountName": "data",
            "workspace": {"emptyDir": {"sizeLimit": "1Gi"}},
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
            "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        },
        "runtimes.bare": {},
    },
    "definitions-go": {"crds.keep": False, "crds.upgrade": False},
    "short-calls": {"invocation": {"defaultTimeoutSeconds": 0.5, "maxTimeoutSeconds": 1.5}, "logLevel": "DEBUG"},
    "other-rights": {
        "authorization": {"verb": "create", "group": "kruntimes.io", "resource": "runs", "subresource": "invoke"}
    },
    "other-domains": {"trustDomain": "prod.example.com", "clusterDomain": "k8s.example.com"},
}
BAD: dict[str, tuple[Values, str]] = {
    "unknown-name": ({"gatway.replicas": 2}, "additional properties 'gatway' not allowed"),
    "unknown-name-below": ({"gateway.replica": 2}, "additional properties 'replica' not allowed"),
    "text-for-a-number": ({"gateway.replicas": "two"}, "at '/gateway/replicas': got string, want integer"),
    "no-replica": ({"router.replicas": 0}, "at '/router/replicas': minimum: got 0, want 1"),
    "no-such-service": ({"gateway.service.type": "ExternalName"}, "at '/gateway/service/type'"),
    "no-such-level": ({"logLevel": "verbose"}, "at '/logLevel'"),
    "plain-url": ({"gateway.url": "http://functions.example.com"}, "at '/gateway/url'"),
    "url-with-a-path": ({"gateway.url": "https://functions.example.com/v1"}, "at '/gateway/url'"),
    "not-a-host": ({"gateway.hostnames": ["https://a.example.com"]}, "at '/gateway/hostnames/0'"),
    "short-digest": ({"image.digest": "sha256:abc"}, "at '/image/digest'"),
    "no-time": ({"invocation.maxTimeoutSeconds": 0}, "at '/invocation/maxTimeoutSeconds'"),
    "default-above-maximum": (
        {"invocation": {"defaultTimeoutSeconds": 60, "maxTimeoutSeconds": 30}},
        "invocation.defaultTimeoutSeconds must not lie above invocation.maxTimeoutSeconds",
    ),
    "node-port-without-one": (
        {"gateway.service.nodePort": 30443},
        "gateway.service.nodePort needs gateway.service.type NodePort or LoadBalancer",
    ),
    "policy-without-one": (
        {"gateway.service.externalTrafficPolicy": "Local"},
        "gateway.service.externalTrafficPolicy needs gateway.service.type NodePort or LoadBalancer",
    ),
    "bundle-without-certificate": ({"gateway.tls.caBundle": "PEM"}, "set gateway.tls.secretName too"),
    "runtime-beside-the-keys": (
        {"runtimes.python.namespace": NAMESPACE},
        "runtimes.python.namespace is the release's own namespace",
    ),
    "runtime-with-a-wrong-name": ({"runtimes.My_Runtime": {}}, "My_Runtime"),
    "runtime-without-capacity": ({"runtimes.python.capacity": "8"}, "at '/runtimes/python/capacity'"),
}


@pytest.fixture(scope="module")
def api(control_plane: Path) -> Iterator[Api]:
    """An administrator of an API server that has the definitions and the release's namespace."""
    with Api(control_plane) as client:
        for file in (CHART / "crds").glob("*.yaml"):
            definition = yaml.safe_load(file.read_text())
            _apply(client, definition)
        _apply(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        yield client
        client.http.delete(f"/api/v1/namespaces/{NAMESPACE}")


@pytest.fixture(scope="module")
def checked() -> set[str]:
    """Objects that were accepted before: most are the same in many sets."""
    return set()


def test_lint() -> None:
    done = helm("lint", "--strict", str(CHART), "--namespace", NAMESPACE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout, done.stdout


@pytest.mark.parametrize("name", GOOD)
def test_what_is_rendered_is_valid(api: Api, checked: set[str], name: str) -> None:
    """Each object passes a dry run on the API server, with every unknown field refused."""
    objects = rendered(GOOD[name])
    assert len({(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}) == len(objects)
    for obj in objects:
        text = json.dumps(obj, sort_keys=True)
        if text not in checked:
            _apply(api, obj, dry=True)
            checked.add(text)


@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    values, words = BAD[name]
    assert words in refused(values)


def test_the_namespace_default_is_refused() -> None:
    assert "--namespace kruntimes-system --create-namespace" in refused({}, namespace="default")


def _path(api: Api, obj: dict[str, Any]) -> str | None:
    """Where *obj* lives, by discovery; None for a kind that this server does not have."""
    version, kind, meta = obj["apiVersion"], obj["kind"], obj["metadata"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    found = api.get(root)
    resource = next((r for r in (found or {}).get("resources", []) if r["kind"] == kind and "/" not in r["name"]), None)
    if resource is None:
        return None
    scope = f"/namespaces/{meta['namespace']}" if resource["namespaced"] else ""
    return f"{root}{scope}/{resource['name']}/{meta['name']}"


def _apply(api: Api, obj: dict[str, Any], *, dry: bool = False) -> None:
    path = _path(api, obj)
    if path is None:
        assert obj["apiVersion"] == "monitoring.coreos.com/v1", f"no {obj['kind']} here"
        return  # the Prometheus operator's: where it is not installed there is nobody to ask
    query = "fieldManager=chart-test&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry else "")
    api.call("PATCH", f"{path}?{query}", obj, content_type="application/apply-patch+yaml")
