"""Services and their addresses, and the EndpointSlices that follow them."""

import pytest
from contract.client import (
    Api,
    Json,
    at,
    eventually,
)
from contract.objects import make, obj, owned

SERVICES: list[tuple[str, Json, int, str]] = [
    ("headless", {"clusterIP": "None"}, 201, "None"),
    ("external-name", {"type": "ExternalName", "externalName": "x.example", "ports": [], "selector": None}, 201, ""),
    ("outside-the-range", {"clusterIP": "192.0.2.1"}, 422, "spec.clusterIPs: Invalid value: "),
    ("not-an-address", {"clusterIP": "x"}, 422, "spec.clusterIPs[0]: Invalid value: "),
    ("no-ports", {"ports": []}, 422, "spec.ports: Required value"),
    ("port-out-of-range", {"ports": [{"port": 70000}]}, 422, "spec.ports[0].port: Invalid value: 70000: must be "),
    ("ports-without-names", {"ports": [{"port": 1}, {"port": 2}]}, 422, "spec.ports[0].name: Required value"),
    ("type", {"type": "Other"}, 422, 'spec.type: Unsupported value: "Other"'),
]


@pytest.mark.parametrize(("spec", "code", "says"), [pytest.param(*row[1:], id=row[0]) for row in SERVICES])
def test_services(api: Api, ns: str, name: str, spec: Json, code: int, says: str) -> None:
    answer = api.create(at("services", ns), obj("services", name, spec=spec))
    if code == 422:
        answer.refused(422, "Invalid", says)
        return
    assert answer.ok(201)["spec"].get("clusterIP", "") == says
    api.delete(at("services", ns, name)).ok(200)


def test_each_service_has_an_address_of_its_own(api: Api, ns: str, name: str) -> None:
    """From 10.96.0.0/16; the address is kept by updates that leave it out, and cannot change."""
    first, second = (make(api, "services", ns, f"{name}-{i}")["spec"]["clusterIP"] for i in range(2))
    assert first != second
    assert first.startswith("10.96.")
    assert second.startswith("10.96.")
    body = api.get(at("services", ns, f"{name}-0")).ok(200)
    assert body["spec"]["clusterIPs"] == [first]
    for field in ("clusterIP", "clusterIPs"):
        del body["spec"][field]
    assert api.replace(at("services", ns, f"{name}-0"), body).ok(200)["spec"]["clusterIP"] == first
    api.patch(at("services", ns, f"{name}-0"), {"spec": {"clusterIP": second}}).refused(
        422, "Invalid", "spec.clusterIPs[0]: Invalid value: ", "may not change once set"
    )
    taken = obj("services", f"{name}-2", spec={"clusterIP": first})
    api.create(at("services", ns), taken).refused(422, "Invalid", "provided IP is already allocated")
    for i in range(2):
        api.delete(at("services", ns, f"{name}-{i}")).ok(200)


def test_defaults_of_a_service(api: Api, ns: str, name: str) -> None:
    spec = make(api, "services", ns, name)["spec"]
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")
    assert spec["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    api.delete(at("services", ns, name)).ok(200)


def test_a_service_gets_an_endpoint_slice(api: Api, ns: str, name: str) -> None:
    """Named after it, owned by it, with the label of its name; empty while no Pod fits."""
    service = make(api, "services", ns, name, spec={"selector": {"app": name}})
    select = f"kubernetes.io/service-name={name}"
    found = eventually("slice", lambda: api.get(at("endpointslices", ns), labelSelector=select).ok(200)["items"])
    [slice] = found
    assert slice["metadata"]["name"].startswith(f"{name}-")
    assert slice["metadata"]["ownerReferences"] == [owned(service, controller=True, blockOwnerDeletion=True)]
    assert slice["addressType"] == "IPv4"
    assert not slice["endpoints"]
    api.delete(at("services", ns, name)).ok(200)
    eventually("slice gone", lambda: not api.get(at("endpointslices", ns), labelSelector=select).ok(200)["items"])
