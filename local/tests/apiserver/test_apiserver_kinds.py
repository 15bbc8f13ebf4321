"""The rules of the built-in kinds: what is filled in, what may not be, what may not change."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from tests.apiserver.plane import POD, Json, Plane

from kruntimes.local.apiserver import scale
from kruntimes.local.apiserver.api import private
from kruntimes.local.apiserver.kinds import services
from kruntimes.local.apiserver.kinds.pods import qos_class
from kruntimes.local.apiserver.status import StatusError

CONTAINER = POD["containers"][0]


@pytest.fixture
def plane() -> Plane:
    """With a ServiceAccount for Pods."""
    made = Plane()
    made.make("serviceaccounts", "default")
    return made


def causes(act: Callable[[], object]) -> list[tuple[str, str]]:
    """Fields and messages of a 422."""
    with pytest.raises(StatusError) as refused:
        act()
    assert refused.value.code == 422, refused.value.message
    return [(cause.field, cause.message) for cause in refused.value.causes]


def change(plane: Plane, plural: str, name: str, edit: Callable[[Json], object]) -> Json:
    """Edits an object in place."""

    def edited(obj: Json) -> Json:
        edit(obj)
        return obj

    resource = plane.of(plural)
    return plane.api.change(resource, "default" if resource.namespaced else "", name, edited)


# ---------------------------------------------------------------- Pods


def test_defaults_of_a_pod(plane: Plane) -> None:
    spec = {
        "containers": [
            {
                "name": "main",
                "image": "registry:5000/x",
                "ports": [{"containerPort": 1}],
                "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "readinessProbe": {"httpGet": {"port": 1}},
                "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
                "resources": {"limits": {"cpu": "1"}},
            }
        ],
        "initContainers": [{"name": "first", "image": "x:1"}],
        "volumes": [
            {"name": "nothing"},
            {"name": "map", "configMap": {"name": "m"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ],
        "automountServiceAccountToken": False,
    }
    found = plane.make("pods", "p", spec=spec)["spec"]
    main, first = found["containers"][0], found["initContainers"][0]
    assert (main["imagePullPolicy"], first["imagePullPolicy"]) == ("Always", "IfNotPresent")
    assert main["ports"] == [{"containerPort": 1, "protocol": "TCP"}]
    assert main["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    probe = main["readinessProbe"]
    assert (probe["httpGet"]["path"], probe["httpGet"]["scheme"], probe["periodSeconds"]) == ("/", "HTTP", 10)
    assert main["lifecycle"]["preStop"]["httpGet"]["path"] == "/"
    assert main["resources"]["requests"] == {"cpu": "1"}
    assert found["volumes"][0]["emptyDir"] == {}
    assert found["volumes"][1]["configMap"]["defaultMode"] == 0o644
    assert found["volumes"][2]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] == 3600
    assert len(found["volumes"]) == 3, "no token was wanted"


def test_the_token_of_a_pod(plane: Plane) -> None:
    pod = plane.make("pods", "p", spec={"containers": [CONTAINER, {**CONTAINER, "name": "second"}]})
    volume = pod["spec"]["volumes"][-1]["name"]
    assert volume.startswith("kube-api-access-")
    for container in pod["spec"]["containers"]:
        assert container["volumeMounts"][-1]["name"] == volume
    plane.make("serviceaccounts", "quiet", automountServiceAccountToken=False)
    assert "volumes" not in plane.make("pods", "q", spec={**POD, "serviceAccountName": "quiet"})["spec"]
    told = plane.make("pods", "r", spec={**POD, "serviceAccountName": "quiet", "automountServiceAccountToken": True})
    assert "volumes" in told["spec"]


def test_an_account_must_be_there(plane: Plane) -> None:
    with pytest.raises(StatusError, match=r'pods "p" is forbidden: error looking up service account default/x'):
        plane.make("pods", "p", spec={**POD, "serviceAccountName": "x"})


POD_FAULTS: list[tuple[Json, tuple[str, str]]] = [
    ({"containers": []}, ("spec.containers", "Required value")),
    ({"containers": [{"name": "A", "image": "x"}]}, ("spec.containers[0].name", 'Invalid value: "A"')),
    ({"containers": [{"name": "a"}]}, ("spec.containers[0].image", "Required value")),
    ({"containers": [CONTAINER, CONTAINER]}, ("spec.containers[1].name", 'Duplicate value: "main"')),
    ({"containers": [{**CONTAINER, "env": [{"name": ""}]}]}, ("spec.containers[0].env[0].name", "Required value")),
    ({"containers": [{**CONTAINER, "env": [{"name": "a=b"}]}]}, ("spec.containers[0].env[0].name", "Invalid value")),
    ({"containers": [{**CONTAINER, "volumeMounts": [{"name": "x", "mountPath": "/x"}]}]},
     ("spec.containers[0].volumeMounts[0].name", 'Not found: "x"')),
    ({"containers": [{**CONTAINER, "ports": [{"containerPort": 0}]}]},
     ("spec.containers[0].ports[0].containerPort", "Required value")),
    ({"containers": [{**CONTAINER, "env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {
        "fieldPath": "spec.nodeName"}}}]}]}, ("spec.containers[0].env[0].valueFrom", "may not be specified when")),
    ({"containers": [{**CONTAINER, "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}]},
     ("spec.containers[0].env[0].valueFrom.fieldRef.fieldPath", "field label not supported: spec.x")),
    ({"containers": [{**CONTAINER, "env": [{"name": "A", "valueFrom": {}}]}]},
     ("spec.containers[0].env[0].valueFrom", "must specify one of")),
    ({"containers": [{**CONTAINER, "startupProbe": {"httpGet": {"port": 0}}}]},
     ("spec.containers[0].startupProbe.httpGet.port", "must be between 1 and 65535, inclusive")),
    ({"containers": [{**CONTAINER, "lifecycle": {"preStop": {"tcpSocket": {"port": 70000}}}}]},
     ("spec.containers[0].lifecycle.preStop.tcpSocket.port", "must be between 1 and 65535, inclusive")),
    ({"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}}}]},
     ("spec.containers[0].resources.requests", "must be less than or equal to cpu limit of 1")),
    ({"restartPolicy": "Sometimes"}, ("spec.restartPolicy", 'Unsupported value: "Sometimes": supported values')),
    ({"volumes": [{"name": "x", "emptyDir": {}, "secret": {}}]},
     ("spec.volumes[0].secret", "may not specify more than 1 volume type")),
    ({"volumes": [{"name": "x"}, {"name": "x"}]}, ("spec.volumes[1].name", 'Duplicate value: "x"')),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "expected"), POD_FAULTS, ids=[row[1][0] + str(i) for i, row in enumerate(POD_FAULTS)])
def test_faults_of_a_pod(plane: Plane, spec: Json, expected: tuple[str, str]) -> None:
    found = causes(lambda: plane.make("pods", "p", spec={**private(POD), **spec}))
    assert any(field == expected[0] and expected[1] in message for field, message in found), found


def test_what_may_change_in_a_pod(plane: Plane) -> None:
    plane.make("pods", "p", spec=POD)
    change(plane, "pods", "p", lambda o: o["spec"]["containers"][0].update(image="other"))
    change(plane, "pods", "p", lambda o: o["spec"].update(activeDeadlineSeconds=1))
    [(field, message)] = causes(lambda: change(plane, "pods", "p", lambda o: o["spec"].update(nodeName="n")))
    assert (field, message.startswith("Forbidden: pod updates may not change fields other than")) == ("spec", True)


QOS: list[tuple[Json, str]] = [
    ({}, "BestEffort"),
    ({"requests": {"cpu": "1"}}, "Burstable"),
    ({"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1", "memory": "1"}}, "Guaranteed"),
    ({"limits": {"cpu": "1", "memory": "2"}, "requests": {"cpu": "1", "memory": "1"}}, "Burstable"),
    ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
]


@pytest.mark.parametrize(("resources", "expected"), QOS, ids=[f"{row[1]}-{i}" for i, row in enumerate(QOS)])
def test_quality_of_service(resources: Json, expected: str) -> None:
    assert qos_class({"containers": [{"resources": resources}]}) == expected


def bind(plane: Plane, node: str, **meta: str) -> Json:
    """Binds Pod p."""
    body = {"metadata": meta, "target": {"kind": "Node", "name": node}}
    return plane.post("/api/v1/namespaces/default/pods/p/binding", body)


def test_binding(plane: Plane) -> None:
    plane.make("pods", "p", spec=POD)
    assert bind(plane, "n")["status"] == "Success"
    pod = plane.found("pods", "p") or {}
    assert (pod["spec"]["nodeName"], pod["metadata"]["generation"]) == ("n", 1)
    assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [("PodScheduled", "True")]


@pytest.mark.parametrize(
    ("node", "meta", "code", "message"),
    [
        ("", {}, 500, "target.name: Required value"),
        ("n", {"name": "q"}, 400, "name in URL does not match name in Binding object"),
        ("n", {"uid": "other"}, 409, "Precondition failed: UID in precondition: other"),
    ],
)
def test_bindings_that_are_refused(plane: Plane, node: str, meta: dict[str, str], code: int, message: str) -> None:
    plane.make("pods", "p", spec=POD)
    with pytest.raises(StatusError) as refused:
        bind(plane, node, **meta)
    assert (refused.value.code, message in refused.value.message) == (code, True)


def test_a_pod_is_bound_once_and_alive(plane: Plane) -> None:
    plane.make("pods", "p", spec=POD, metadata={"finalizers": ["a.b/c"]})
    bind(plane, "n")
    with pytest.raises(StatusError, match='already assigned to node "n"'):
        bind(plane, "m")
    plane.remove("pods", "p")
    with pytest.raises(StatusError, match="is being deleted, cannot be assigned to a host"):
        bind(plane, "n")


def test_an_eviction_is_a_deletion(plane: Plane) -> None:
    plane.make("pods", "p", spec={**POD, "nodeName": "n"})
    path = "/api/v1/namespaces/default/pods/p/eviction"
    with pytest.raises(StatusError, match="the UID in the precondition"):
        plane.post(path, {"deleteOptions": {"preconditions": {"uid": "x"}}})
    plane.post(path, {"deleteOptions": {"gracePeriodSeconds": 5}})
    assert (plane.found("pods", "p") or {})["metadata"]["deletionGracePeriodSeconds"] == 5


# ---------------------------------------------------------------- Services


def service(plane: Plane, name: str, **spec: Any) -> Json:
    """A Service of one port."""
    return plane.make("services", name, spec={"ports": [{"port": 80}], **spec})


def test_each_service_has_an_address(plane: Plane) -> None:
    own = (plane.found("services", "kubernetes") or {})["spec"]
    assert own["clusterIP"] == "10.96.0.1"
    addresses = {service(plane, f"s{i}")["spec"]["clusterIP"] for i in range(20)}
    assert len(addresses) == 20
    assert all(address.startswith("10.96.") for address in addresses)
    assert service(plane, "headless", clusterIP="None")["spec"]["clusterIPs"] == ["None"]
    assert "clusterIP" not in service(plane, "elsewhere", type="ExternalName", externalName="x")["spec"]
    assert 30000 <= service(plane, "out", type="NodePort")["spec"]["ports"][0]["nodePort"] < 32768


SERVICE_FAULTS: list[tuple[Json, tuple[str, str]]] = [
    ({"clusterIP": "10.96.0.1"}, ("spec.clusterIPs", "provided IP is already allocated")),
    ({"clusterIP": "192.0.2.1"}, ("spec.clusterIPs", "is not in the valid range")),
    ({"clusterIP": "x"}, ("spec.clusterIPs[0]", "must be a valid IP address")),
    ({"ports": []}, ("spec.ports", "Required value")),
    ({"ports": [{"port": 1}, {"port": 2}]}, ("spec.ports[0].name", "Required value")),
    ({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, ("spec.ports[1].name", "Duplicate value")),
    ({"ports": [{"port": 70000}]}, ("spec.ports[0].port", "must be between 1 and 65535, inclusive")),
    ({"ports": [{"port": 1, "protocol": "X"}]}, ("spec.ports[0].protocol", "Unsupported value")),
    ({"type": "Odd"}, ("spec.type", "Unsupported value")),
]


@pytest.mark.parametrize(("spec", "expected"), SERVICE_FAULTS, ids=[f"{row[0]}" for row in SERVICE_FAULTS])
def test_faults_of_a_service(plane: Plane, spec: Json, expected: tuple[str, str]) -> None:
    found = causes(lambda: service(plane, "s", **spec))
    assert any(field == expected[0] and expected[1] in message for field, message in found), found


def test_the_address_of_a_service_stays(plane: Plane) -> None:
    address = service(plane, "s")["spec"]["clusterIP"]

    def forget(obj: Json) -> None:
        for key in ("clusterIP", "clusterIPs"):
            del obj["spec"][key]

    assert change(plane, "services", "s", forget)["spec"]["clusterIP"] == address
    other = service(plane, "t")["spec"]["clusterIP"]
    assert ("spec.clusterIPs[0]", f'Invalid value: ["{other}"]: may not change once set') in causes(
        lambda: change(plane, "services", "s", lambda o: o["spec"].update(clusterIP=other))
    )


def test_a_service_is_refused_when_every_address_or_node_port_is_taken(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "ADDRESSES", 3)
    made = {service(plane, f"s{i}")["spec"]["clusterIP"] for i in range(2)}
    assert made | {"10.96.0.1"} == {f"10.96.0.{i}" for i in (1, 2, 3)}
    with pytest.raises(StatusError, match="failed to allocate a serviceIP: range is full") as refused:
        service(plane, "one-too-many")
    assert refused.value.code == 500
    monkeypatch.setattr(services, "ADDRESSES", 9)
    monkeypatch.setattr(services, "LAST_NODE_PORT", services.FIRST_NODE_PORT)
    service(plane, "out", type="NodePort")
    with pytest.raises(StatusError, match="failed to allocate a nodePort: range is full"):
        service(plane, "out-too", type="NodePort")


# ---------------------------------------------------------------- data

DATA: list[tuple[str, Json, str]] = [
    ("configmaps", {"data": {"a b": "1"}}, "data[a b]"),
    ("configmaps", {"data": {"..": "1"}}, "data[..]"),
    ("configmaps", {"data": {"a": "1"}, "binaryData": {"a": "MQ=="}}, "data[a]"),
    ("configmaps", {"data": {"a": "x" * (1024 * 1024 + 1)}}, ""),
    ("secrets", {"data": {"a/b": "MQ=="}}, "data[a/b]"),
    ("secrets", {"stringData": {"a": "x" * (1024 * 1024 + 4)}}, "data"),
    ("secrets", {"type": "kubernetes.io/tls"}, "data[tls.crt]"),
    ("secrets", {"type": "kubernetes.io/service-account-token"},
     "metadata.annotations[kubernetes.io/service-account.name]"),
]  # fmt: skip


@pytest.mark.parametrize(("plural", "rest", "field"), DATA, ids=[f"{row[0]}-{row[2]}" for row in DATA])
def test_data_that_is_refused(plane: Plane, plural: str, rest: Json, field: str) -> None:
    assert field in [at for at, _ in causes(lambda: plane.make(plural, "a", **rest))]


def test_string_data_is_a_way_of_writing_data(plane: Plane) -> None:
    made = plane.make("secrets", "a", data={"x": "MQ==", "y": None}, stringData={"x": "ü"})
    assert made["data"] == {"x": base64.b64encode("ü".encode()).decode(), "y": ""}
    assert "stringData" not in made
    with pytest.raises(StatusError, match="illegal base64 data at input byte 2"):
        plane.make("secrets", "b", data={"x": "ab!d"})


@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
def test_immutable_data(plane: Plane, plural: str) -> None:
    plane.make(plural, "a", data={"x": "MQ=="}, immutable=True)
    change(plane, plural, "a", lambda o: o["metadata"].update(labels={"l": "1"}))
    assert causes(lambda: change(plane, plural, "a", lambda o: o["data"].update(x="Mg==")))[0][0] == "data"
    assert causes(lambda: change(plane, plural, "a", lambda o: o.pop("immutable")))[0][0] == "immutable"


def test_the_type_of_a_secret_stays(plane: Plane) -> None:
    plane.make("secrets", "a")
    assert causes(lambda: change(plane, "secrets", "a", lambda o: o.update(type="x/y")))[0][0] == "type"


# ---------------------------------------------------------------- the others


def test_namespaces(plane: Plane) -> None:
    made = plane.make("namespaces", "demo", spec={"finalizers": []}, status={"phase": "Odd"})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "demo"}
    assert (made["spec"], made["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    kept = change(plane, "namespaces", "demo", lambda o: o["spec"].update(finalizers=[]))
    assert kept["spec"]["finalizers"] == ["kubernetes"]
    plane.remove("namespaces", "demo")
    ending = plane.found("namespaces", "demo") or {}
    assert ending["status"]["phase"] == "Terminating"
    body = private(ending)
    body["spec"]["finalizers"] = []
    plane.api.update(plane.of("namespaces"), "", "demo", body, subresource="finalize")
    assert plane.found("namespaces", "demo") is None


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_namespaces_that_stay(plane: Plane, name: str) -> None:
    with pytest.raises(StatusError, match=f'namespaces "{name}" is forbidden: this namespace may not be deleted'):
        plane.remove("namespaces", name)


def test_a_node_is_not_ready_before_it_says_so(plane: Plane) -> None:
    made = plane.make("nodes", "n", status={"phase": "x"})
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert made["status"] == {"phase": "x"}
    again = plane.make("nodes", "m", spec={"taints": made["spec"]["taints"]})
    assert len(again["spec"]["taints"]) == 1


OTHERS: list[tuple[str, Json, str]] = [
    ("leases", {"spec": {"leaseDurationSeconds": 0}}, "spec.leaseDurationSeconds"),
    ("leases", {"spec": {"leaseTransitions": -1}}, "spec.leaseTransitions"),
    ("events", {"involvedObject": {"namespace": "other"}}, "involvedObject.namespace"),
    ("endpointslices", {}, "addressType"),
    ("endpointslices", {"addressType": "X"}, "addressType"),
    ("endpointslices", {"addressType": "IPv4", "endpoints": [{}]}, "endpoints[0].addresses"),
    ("endpointslices", {"addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}]},
     "endpoints[0].addresses[0]"),
    ("endpointslices", {"addressType": "IPv4", "endpoints": [{"addresses": ["::2"]}]}, "endpoints[0].addresses[0]"),
    ("endpointslices", {"addressType": "IPv4", "endpoints": [{"addresses": ["x"]}]}, "endpoints[0].addresses[0]"),
    ("persistentvolumeclaims", {"spec": {}}, "spec.accessModes"),
    ("persistentvolumeclaims", {"spec": {"accessModes": ["X"]}}, "spec.resources[storage]"),
    ("replicasets", {"spec": {"template": {"spec": POD}}}, "spec.selector"),
    ("replicasets", {"spec": {"selector": {}, "template": {"spec": POD}}}, "spec.selector"),
    ("replicasets", {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": POD}}},
     "spec.template.metadata.labels"),
]  # fmt: skip


@pytest.mark.parametrize(("plural", "rest", "field"), OTHERS, ids=[f"{r[0]}-{i}" for i, r in enumerate(OTHERS)])
def test_what_is_refused_of_the_others(plane: Plane, plural: str, rest: Json, field: str) -> None:
    assert field in [at for at, _ in causes(lambda: plane.make(plural, "a", **private(rest)))]


def test_labels_of_an_endpoint_slice_count_as_change(plane: Plane) -> None:
    plane.make("endpointslices", "a", addressType="IPv4")
    made = change(plane, "endpointslices", "a", lambda o: o["metadata"].update(labels={"l": "1"}))
    assert made["metadata"]["generation"] == 2
    assert causes(lambda: change(plane, "endpointslices", "a", lambda o: o.update(addressType="IPv6")))


def test_a_claim_changes_in_size_alone(plane: Plane) -> None:
    asked = {"requests": {"storage": "1Gi"}}
    plane.make("persistentvolumeclaims", "a", spec={"accessModes": ["ReadWriteOnce"], "resources": asked})
    change(plane, "persistentvolumeclaims", "a", lambda o: o["spec"].update(resources={"requests": {"storage": "2Gi"}}))
    found = causes(lambda: change(plane, "persistentvolumeclaims", "a", lambda o: o["spec"].update(volumeName="x")))
    assert found[0][0] == "spec"


# ---------------------------------------------------------------- scale


def replica_set(plane: Plane) -> Json:
    """One of three Pods."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
    return plane.make(
        "replicasets", "r", spec={"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    )


def test_scale(plane: Plane) -> None:
    made, resource = replica_set(plane), plane.of("replicasets")
    shown = scale.of(resource, made)
    assert (shown["spec"], shown["status"]) == ({"replicas": 3}, {"replicas": 0, "selector": "a=b"})
    edit = scale.edit(resource, made, {**shown, "spec": {"replicas": 5}})
    done = plane.api.change(resource, "default", "r", edit, subresource="scale")
    assert (done["spec"]["replicas"], done["metadata"]["generation"]) == (5, 2)
    with pytest.raises(StatusError) as refused:
        scale.edit(resource, done, shown)
    assert refused.value.reason == "Conflict"
    assert causes(lambda: scale.edit(resource, made, {"spec": {"replicas": -1}}))[0][0] == "spec.replicas"
