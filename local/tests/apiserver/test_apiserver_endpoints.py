"""EndpointSlices of Services with a selector."""

from typing import Any

import pytest
from tests.apiserver.plane import Json, Loops, Plane

from kruntimes.local.apiserver.loops import endpoints
from kruntimes.local.apiserver.loops.collector import Collector
from kruntimes.local.apiserver.loops.services import Services


def pod(name: str, *, address: str = "10.0.0.1", ready: bool = True, **more: Any) -> Json:
    """A running Pod with a port named http."""
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status: Json = {"phase": "Running", "podIP": address, "conditions": conditions}
    port = {"name": "http", "containerPort": 8080}
    spec: Json = {"nodeName": "n", "containers": [{"name": "c", "ports": [port]}]}
    meta: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": "a"}}
    return {"metadata": {**meta, **more.pop("metadata", {})}, "spec": spec, "status": {**status, **more}}


def service(*ports: Json, **spec: Any) -> Json:
    """A Service of Pods labelled app: a."""
    return {"metadata": {"name": "s"}, "spec": {"selector": {"app": "a"}, "ports": list(ports), **spec}}


HTTP: Json = {"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"}


def test_a_slice_holds_addresses_ports_and_what_the_pods_are() -> None:
    ((ports, found),) = endpoints.wanted(service(HTTP), [pod("p")])
    assert ports == [{"name": "web", "port": 8080, "protocol": "TCP"}]
    assert found == [
        {
            "addresses": ["10.0.0.1"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "uid-p"},
            "nodeName": "n",
        }
    ]


DELETING: Any = {"metadata": {"deletionTimestamp": "2026-03-01T12:00:30Z"}}


@pytest.mark.parametrize(
    ("one", "spec", "conditions"),
    [
        pytest.param(pod("p", ready=False), {}, (False, False, False), id="not-ready"),
        pytest.param(pod("p", ready=False), {"publishNotReadyAddresses": True}, (True, False, False), id="published"),
        pytest.param(pod("p", **DELETING), {}, (False, True, True), id="deleting-still-serves"),
        pytest.param(pod("p", ready=False, **DELETING), {}, (False, False, True), id="deleting"),
        pytest.param(pod("p", address=""), {}, None, id="no-address"),
        pytest.param(pod("p", address="127.77.0.3"), {}, None, id="loopback"),
        pytest.param(pod("p", address="169.254.0.3"), {}, None, id="link-local"),
        pytest.param(pod("p", phase="Failed"), {}, None, id="failed"),
    ],
)
def test_conditions(one: Json, spec: Json, conditions: tuple[bool, bool, bool] | None) -> None:
    ((_, found),) = endpoints.wanted(service(HTTP, **spec), [one])
    said = [tuple(e["conditions"][k] for k in ("ready", "serving", "terminating")) for e in found]
    assert said == ([] if conditions is None else [conditions])


def test_pods_with_other_ports_are_in_another_slice_and_large_ones_are_split() -> None:
    other = pod("x")
    other["spec"]["containers"][0]["ports"][0]["containerPort"] = 9090
    many = [pod(f"p{i:03}") for i in range(endpoints.MAX_ENDPOINTS + 1)]
    found = endpoints.wanted(service(HTTP), [*many, other])
    assert [(ports[0]["port"], len(held)) for ports, held in found] == [(8080, 100), (8080, 1), (9090, 1)]


def test_a_port_that_a_pod_does_not_have_is_left_out() -> None:
    missing = {"name": "m", "port": 1, "targetPort": "none"}
    ((ports, _),) = endpoints.wanted(service(missing, HTTP), [pod("p")])
    assert [port["name"] for port in ports] == ["web"]


def test_the_loop_follows_service_and_pods() -> None:
    plane = Plane()
    loops = Loops(plane, Services(plane.api), Collector(plane.api))
    plane.make("serviceaccounts", "default")
    plane.make("services", "s", spec={"selector": {"app": "a"}, "ports": [{"port": 80}]})
    loops.settle()

    def slices() -> list[Json]:
        return plane.all("endpointslices", "default")

    (empty,) = slices()
    assert empty["metadata"]["name"].startswith("s-")
    assert empty["metadata"]["labels"][endpoints.SERVICE_NAME] == "s"
    assert (empty["endpoints"], empty["addressType"]) == ([], "IPv4")
    made = pod("p")
    plane.make(
        "pods",
        "p",
        metadata={"labels": {"app": "a"}},
        spec=made["spec"] | {"containers": [{"name": "c", "image": "i"}]},
    )

    def report(obj: Json) -> Json:
        obj["status"] = made["status"]
        return obj

    plane.api.change(plane.of("pods"), "default", "p", report, subresource="status")
    loops.settle()
    (full,) = slices()
    assert [e["targetRef"]["name"] for e in full["endpoints"]] == ["p"]
    plane.remove("endpointslices", full["metadata"]["name"])
    loops.settle()
    assert len(slices()[0]["endpoints"]) == 1
    plane.api.store.remove(plane.of("pods"), "default", "p")
    loops.settle()
    assert slices()[0]["endpoints"] == []
    plane.remove("services", "s")
    loops.settle()
    assert slices() == []
