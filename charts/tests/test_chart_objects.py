"""What the chart makes of its values, where it matters: settings that parts share, drain, security, roles."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chart_helm import CHART, NAMESPACE, needs_helm, rendered

from kruntimes.common.api.settings import PREFIX, Settings
from kruntimes.local import manifests
from kruntimes.local.manifests import Installation

pytestmark = needs_helm
Object = dict[str, Any]
ONLY_LOCAL = {"KRUNTIMES_GATEWAY_BIND_PORT"}
"""In a Pod of its own the gateway has its own port; `krt dev` takes a free one."""


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    """The chart with its defaults."""
    return rendered({})


def _find(objects: list[Object], kind: str, name: str) -> Object:
    return next(o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))


def _pod_spec(objects: list[Object], name: str) -> Object:
    spec: Object = _find(objects, "Deployment", f"kruntimes-{name}")["spec"]["template"]["spec"]
    return spec


def _containers(spec: Object) -> dict[str, Object]:
    return {c["name"]: c for c in [*spec.get("initContainers", []), *spec["containers"]]}


def _env(container: Object) -> dict[str, str]:
    """Settings of a container; what Kubernetes fills in is its path."""
    return {
        e["name"]: e["value"] if "value" in e else e["valueFrom"]["fieldRef"]["fieldPath"] for e in container["env"]
    }


def _path(variable: Object) -> str:
    field: str = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    return field


def _workloads(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Name and Pod specification of everything that makes Pods."""
    for obj in objects:
        if obj["kind"] in ("Deployment", "Job", "Runtime"):
            yield f"{obj['kind']} {obj['metadata']['name']}", obj["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("service", "container", "needs"),
    [
        ("operator", "operator", ("namespace", "daemon_image", "gateway_url", "gateway_names")),
        ("router", "router", ("namespace", "pod_uid", "ca_file")),
        ("gateway", "authz", ("namespace", "pod_name", "pod_uid", "ca_file", "ads_address", "gateway_names")),
    ],
)
def test_a_service_is_told_what_it_needs(
    objects: list[Object], service: str, container: str, needs: tuple[str, ...]
) -> None:
    """Each variable is a setting, none that it requires is missing, and `krt dev` tells it nothing more."""
    env = _env(_containers(_pod_spec(objects, service))[container])
    Settings.read({name: value for name, value in env.items() if value}).require(*needs)
    installation = Installation(
        address="127.0.0.1", router_address="127.0.0.2", port=1, url="https://a", names=("a",), gateway_dir=Path("/g")
    )
    pod = getattr(manifests, service)(installation)
    told = _env(_containers(pod["spec"])[container])
    assert {name for name in told if name.startswith(PREFIX)} - ONLY_LOCAL <= set(env)


def test_router_authz_and_envoy_share_one_folder(objects: list[Object]) -> None:
    """Routes name files in it by their whole path."""
    gateway = _containers(_pod_spec(objects, "gateway"))
    folder = _env(gateway["authz"])["KRUNTIMES_GATEWAY_DIR"]
    assert _env(_containers(_pod_spec(objects, "router"))["router"])["KRUNTIMES_GATEWAY_DIR"] == folder
    assert f"{folder}/envoy.yaml" in gateway["envoy"]["args"]
    for name in ("authz", "envoy"):
        assert {"name": "gateway", "mountPath": folder} in gateway[name]["volumeMounts"]


def test_operator_and_gateway_agree_on_names_and_identity(objects: list[Object]) -> None:
    operator = _env(_containers(_pod_spec(objects, "operator"))["operator"])
    authz = _env(_containers(_pod_spec(objects, "gateway"))["authz"])
    router = _env(_containers(_pod_spec(objects, "router"))["router"])
    for name in ("GATEWAY_NAMES", "GATEWAY_URL"):
        assert operator[PREFIX + name] == authz[PREFIX + name]
    for name in ("INSTANCE", "TRUST_DOMAIN", "MAX_TIMEOUT", "DEFAULT_TIMEOUT"):
        assert operator[PREFIX + name] == authz[PREFIX + name] == router[PREFIX + name]


def test_the_certificate_names_the_service_first_and_what_is_published() -> None:
    values = {"gateway.url": "https://functions.example.com:8443", "gateway.hostnames": ["10.0.0.1", "b.example.com"]}
    env = _env(_containers(_pod_spec(rendered(values), "gateway"))["authz"])
    assert env["KRUNTIMES_GATEWAY_NAMES"].split(",") == [
        f"kruntimes-gateway.{NAMESPACE}.svc",
        f"kruntimes-gateway.{NAMESPACE}.svc.cluster.local",
        f"kruntimes-gateway.{NAMESPACE}",
        "kruntimes-gateway",
        "functions.example.com",
        "10.0.0.1",
        "b.example.com",
    ]
    address = _env(_containers(_pod_spec(rendered({"gateway.url": "https://[2001:db8::1]"}), "gateway"))["authz"])
    assert address["KRUNTIMES_GATEWAY_NAMES"].endswith(",2001:db8::1")


@pytest.mark.parametrize(
    ("port", "url"),
    [(443, f"https://kruntimes-gateway.{NAMESPACE}.svc"), (8443, f"https://kruntimes-gateway.{NAMESPACE}.svc:8443")],
)
def test_the_published_url_is_the_services(port: int, url: str) -> None:
    objects = rendered({"gateway.service.port": port})
    assert _env(_containers(_pod_spec(objects, "operator"))["operator"])["KRUNTIMES_GATEWAY_URL"] == url


@pytest.mark.parametrize(("longest", "grace"), [(900, 915), (1.5, 17), (30, 45)])
def test_the_gateway_is_given_time_for_the_longest_call(longest: float, grace: int) -> None:
    """3 s for the Service to forget the Pod, the call itself, and time to end (design §6, §8)."""
    objects = rendered({"invocation": {"defaultTimeoutSeconds": 1, "maxTimeoutSeconds": longest}})
    spec = _pod_spec(objects, "gateway")
    assert spec["terminationGracePeriodSeconds"] == grace
    containers = _containers(spec)
    assert containers["authz"]["restartPolicy"] == "Always"
    assert containers["envoy"]["lifecycle"]["preStop"]["httpGet"] == {"path": "/drain", "port": 9090}


def test_everything_satisfies_the_restricted_standard_and_more(objects: list[Object]) -> None:
    workloads = dict(_workloads(objects))
    assert len(workloads) == 8
    for name, spec in workloads.items():
        runtime = name.startswith("Runtime")  # the operator adds the rest
        if not runtime:
            assert spec["securityContext"]["runAsNonRoot"] is True, name
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
            assert spec["enableServiceLinks"] is False, name
        for container in _containers(spec).values():
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name


def test_only_authz_holds_the_gateways_token(objects: list[Object]) -> None:
    spec = _pod_spec(objects, "gateway")
    assert spec["automountServiceAccountToken"] is False
    holders = [n for n, c in _containers(spec).items() if "kruntimes-token" in {m["name"] for m in c["volumeMounts"]}]
    assert holders == ["authz"]


def test_no_role_names_everything(objects: list[Object]) -> None:
    """No wildcard anywhere, and Secrets only by name, but for a create, which no name can limit."""
    for obj in objects:
        for rule in obj.get("rules", []):
            parts = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "*" not in parts, obj["metadata"]["name"]
            if "secrets" in rule["resources"]:
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == ["kruntimes-ca"], obj["metadata"]["name"]
                assert obj["kind"] == "Role" or obj["metadata"]["name"].startswith("kruntimes-hook-")


def test_roles_are_bound_in_the_releases_namespace(objects: list[Object]) -> None:
    for obj in objects:
        if obj["kind"] in ("Role", "RoleBinding", "ServiceAccount"):
            assert obj["metadata"]["namespace"] == NAMESPACE
        for subject in obj.get("subjects", []):
            assert subject.get("namespace", NAMESPACE) == NAMESPACE


@pytest.mark.parametrize(("keep", "all_go"), [(True, False), (False, True)])
def test_definitions_go_only_where_that_was_said(keep: bool, all_go: bool) -> None:
    objects = rendered({"crds.keep": keep})
    leave, remains = (
        _find(objects, "Job", f"kruntimes-hook-{name}")["spec"]["template"]["spec"]["containers"][0]["command"]
        for name in ("leave", "remains")
    )
    assert ("--all" in leave, "--definitions" in remains) == (all_go, all_go)
    rules = _find(objects, "ClusterRole", "kruntimes-hook-remains")["rules"]
    assert any("customresourcedefinitions" in rule["resources"] for rule in rules) == all_go


def test_budgets_are_made_where_one_may_go(objects: list[Object]) -> None:
    """A budget for a single replica would keep its node from ever being drained."""
    assert [o["metadata"]["name"] for o in objects if o["kind"] == "PodDisruptionBudget"] == ["kruntimes-gateway"]
    several = rendered({"operator.replicas": 2, "router.replicas": 2})
    assert len([o for o in several if o["kind"] == "PodDisruptionBudget"]) == 3


def test_the_images_that_are_built_are_those_that_are_asked_for(objects: list[Object]) -> None:
    """`make images` gives them the names under which the chart looks for them."""
    build = runpy.run_path(str(CHART.parent.parent / "images" / "build.py"))
    asked = {container["image"] for _, spec in _workloads(objects) for container in _containers(spec).values()}
    asked.add(_env(_containers(_pod_spec(objects, "operator"))["operator"])["KRUNTIMES_DAEMON_IMAGE"])
    assert asked == set(build["names"]().values())


def test_selectors_never_change_with_values(objects: list[Object]) -> None:
    """A Deployment's selector is immutable: an upgrade that changed it would fail."""
    other = rendered({"commonLabels": {"a": "b"}, "gateway.podLabels": {"c": "d"}, "image.tag": "9.9.9"})
    for name in ("operator", "router", "gateway"):
        selectors = [_find(o, "Deployment", f"kruntimes-{name}")["spec"]["selector"] for o in (objects, other)]
        assert selectors[0] == selectors[1]
