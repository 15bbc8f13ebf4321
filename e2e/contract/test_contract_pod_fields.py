"""What a node reads of a Pod: the defaults of every field that a container's life hangs on; and what is refused."""

from typing import Any

import pytest
from contract.client import Api, Json, at
from contract.objects import CONTAINER, make, obj

HTTP = {"httpGet": {"path": "/healthz", "port": 9090}}
PROBE_DEFAULTS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def container(**fields: object) -> Json:
    """A spec with one container that has *fields* besides."""
    return {"automountServiceAccountToken": False, "containers": [{**CONTAINER, **fields}]}


DEFAULTS: list[tuple[str, Json, tuple[str | int, ...], Any]] = [
    # id, spec, path below spec, what stands there then
    ("pull-policy", container(), ("containers", 0, "imagePullPolicy"), "IfNotPresent"),
    ("pull-policy-of-latest", container(image="a/b:latest"), ("containers", 0, "imagePullPolicy"), "Always"),
    ("pull-policy-without-tag", container(image="a/b"), ("containers", 0, "imagePullPolicy"), "Always"),
    ("termination-message", container(), ("containers", 0, "terminationMessagePath"), "/dev/termination-log"),
    ("readiness", container(readinessProbe=HTTP), ("containers", 0, "readinessProbe"),
     {"httpGet": {"path": "/healthz", "port": 9090, "scheme": "HTTP"}, **PROBE_DEFAULTS}),
    ("startup", container(startupProbe={**HTTP, "periodSeconds": 2, "failureThreshold": 30}),
     ("containers", 0, "startupProbe"),
     {"httpGet": {"path": "/healthz", "port": 9090, "scheme": "HTTP"}, **PROBE_DEFAULTS, "periodSeconds": 2,
      "failureThreshold": 30}),
    ("pre-stop", container(lifecycle={"preStop": HTTP}), ("containers", 0, "lifecycle", "preStop", "httpGet", "scheme"),
     "HTTP"),
    ("port", container(ports=[{"containerPort": 80}]), ("containers", 0, "ports"),
     [{"containerPort": 80, "protocol": "TCP"}]),
    ("field", container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]),
     ("containers", 0, "env", 0, "valueFrom", "fieldRef"), {"apiVersion": "v1", "fieldPath": "status.podIP"}),
    ("empty-value", container(env=[{"name": "A", "value": ""}]), ("containers", 0, "env"), [{"name": "A"}]),
    ("sidecar", {**container(), "initContainers": [{**CONTAINER, "name": "side", "restartPolicy": "Always"}]},
     ("initContainers", 0, "restartPolicy"), "Always"),
    ("config-map-mode", {**container(), "volumes": [{"name": "v", "configMap": {"name": "c"}}]}, ("volumes", 0),
     {"name": "v", "configMap": {"name": "c", "defaultMode": 420}}),
    ("projected", {**container(), "volumes": [{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token"}}]}}]}, ("volumes", 0, "projected"),
     {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}]}),
    ("empty-dir", {**container(), "volumes": [{"name": "v", "emptyDir": {}}]}, ("volumes", 0),
     {"name": "v", "emptyDir": {}}),
    ("limits-are-requests", container(resources={"limits": {"cpu": "500m", "memory": "1Gi"}}),
     ("containers", 0, "resources", "requests"), {"cpu": "500m", "memory": "1Gi"}),
    ("grace-below-nothing", container() | {"terminationGracePeriodSeconds": -1}, ("terminationGracePeriodSeconds",), 1),
    ("security-context", container(), ("securityContext",), {}),
    ("preemption", container(), ("preemptionPolicy",), "PreemptLowerPriority"),
    ("priority", container(), ("priority",), 0),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "path", "expected"), [pytest.param(*row[1:], id=row[0]) for row in DEFAULTS])
def test_defaults(api: Api, ns: str, name: str, spec: Json, path: tuple[str | int, ...], expected: Any) -> None:
    found: Any = make(api, "pods", ns, name, spec=spec)["spec"]
    for step in path:
        found = found[step]
    assert found == expected


QUALITY: list[tuple[str, Json, str]] = [
    ("none", {}, "BestEffort"),
    ("requests", {"requests": {"cpu": "1"}}, "Burstable"),
    ("limits", {"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
]


@pytest.mark.parametrize(("resources", "quality"), [pytest.param(*row[1:], id=row[0]) for row in QUALITY])
def test_quality_of_service(api: Api, ns: str, name: str, resources: Json, quality: str) -> None:
    assert make(api, "pods", ns, name, spec=container(resources=resources))["status"]["qosClass"] == quality


REFUSED: list[tuple[str, Json, str]] = [
    ("name-twice", {"containers": [CONTAINER, CONTAINER]}, 'spec.containers[1].name: Duplicate value: "main"'),
    ("name-of-init-twice", {"initContainers": [CONTAINER]}, 'Duplicate value: "main"'),
    ("bad-name", container(name="Main"), 'spec.containers[0].name: Invalid value: "Main"'),
    ("no-name", {"containers": [{"image": "i"}]}, "spec.containers[0].name: Required value"),
    ("no-image", {"containers": [{"name": "main"}]}, "spec.containers[0].image: Required value"),
    ("no-such-volume", container(volumeMounts=[{"name": "v", "mountPath": "/x"}]),
     'spec.containers[0].volumeMounts[0].name: Not found: "v"'),
    ("volume-twice", {**container(), "volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]},
     'spec.volumes[1].name: Duplicate value: "v"'),
    ("two-sources", {**container(), "volumes": [{"name": "v", "emptyDir": {}, "configMap": {"name": "c"}}]},
     "spec.volumes[0].configMap: Forbidden: may not specify more than 1 volume type"),
    ("env-without-name", container(env=[{"value": "x"}]), "spec.containers[0].env[0].name: Required value"),
    ("env-both", container(env=[{"name": "A", "value": "x",
                                 "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]),
     "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"),
    ("unknown-field-path", container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}]),
     "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.nope\""),
    ("probe-port", container(readinessProbe={"httpGet": {"port": 70000}}),
     "spec.containers[0].readinessProbe.httpGet.port: Invalid value: 70000"),
    ("restart-policy", {"restartPolicy": "Sometimes"}, 'spec.restartPolicy: Unsupported value: "Sometimes"'),
    ("probe-of-nothing", container(readinessProbe={"periodSeconds": 1}),
     "spec.containers[0].readinessProbe: Required value: must specify a handler type"),
    ("hook-of-nothing", container(lifecycle={"preStop": {}}),
     "spec.containers[0].lifecycle.preStop: Required value: must specify a handler type"),
    ("hook-of-two", container(lifecycle={"preStop": {"exec": {"command": ["a"]}, "sleep": {"seconds": 1}}}),
     "spec.containers[0].lifecycle.preStop.sleep: Forbidden: may not specify more than 1 handler type"),
    ("no-port", container(ports=[{"containerPort": 0}]), "spec.containers[0].ports[0].containerPort: Required value"),
    ("host-port", container(ports=[{"containerPort": 1, "hostPort": 70000}]),
     "spec.containers[0].ports[0].hostPort: Invalid value: 70000: must be between 1 and 65535, inclusive"),
    ("user-of-the-pod", container() | {"securityContext": {"runAsUser": -1}},
     "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"),
    ("groups-of-the-pod", container() | {"securityContext": {"supplementalGroups": [1, -1]}},
     "spec.securityContext.supplementalGroups[1]: Invalid value: -1: must be between 0 and 2147483647, inclusive"),
    ("group-of-files", container() | {"securityContext": {"fsGroup": -5}},
     "spec.securityContext.fsGroup: Invalid value: -5: must be between 0 and 2147483647, inclusive"),
    ("user-of-a-container", container(securityContext={"runAsUser": -1}),
     "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"),
    ("node-key", container() | {"nodeSelector": {"bad key": "x"}},
     'spec.nodeSelector: Invalid value: "bad key": name part must consist of'),
    ("node-value", container() | {"nodeSelector": {"k": "bad value"}},
     'spec.nodeSelector: Invalid value: "bad value": a valid label must be an empty string or consist of'),
    ("toleration-operator", container() | {"tolerations": [{"key": "k", "operator": "Foo"}]},
     'spec.tolerations[0].operator: Unsupported value: "Foo": supported values: "Equal", "Exists"'),
    ("toleration-effect", container() | {"tolerations": [{"key": "k", "operator": "Exists", "effect": "Nope"}]},
     'spec.tolerations[0].effect: Unsupported value: "Nope": supported values: "NoSchedule", "Prefer'),
    ("toleration-value", container() | {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
     'spec.tolerations[0].operator: Invalid value: "v": value must be empty when `operator` is \'Exists\''),
    ("toleration-key", container() | {"tolerations": [{"key": "bad key", "operator": "Exists"}]},
     'spec.tolerations[0].key: Invalid value: "bad key": name part must consist of'),
    ("toleration-of-all", container() | {"tolerations": [{"operator": "Equal", "value": "v"}]},
     'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty'),
    ("toleration-seconds",
     container() | {"tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule", "tolerationSeconds": 1}]},
     "spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when"),
    ("requests-over-limits", container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
     'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_pods_that_are_refused(api: Api, ns: str, name: str, spec: Json, message: str) -> None:
    api.create(at("pods", ns), obj("pods", name, spec=spec)).refused(
        422, "Invalid", f'Pod "{name}" is invalid: ', message
    )


@pytest.mark.parametrize(
    ("part", "field"),
    [
        pytest.param({"labels": {"app": "x", "bad key": "x"}}, "spec.template.labels", id="label-key"),
        pytest.param({"labels": {"app": "x", "k": "bad value"}}, "spec.template.labels", id="label-value"),
        pytest.param({"annotations": {"bad key": "x"}}, "spec.template.annotations", id="annotation-key"),
    ],
)
def test_templates_that_are_refused(api: Api, ns: str, name: str, part: Json, field: str) -> None:
    body = obj("replicasets", name)
    body["spec"]["template"]["metadata"] |= part
    api.create(at("replicasets", ns), body).refused(422, "Invalid", f'{field}: Invalid value: "bad ')


@pytest.mark.parametrize("selector", [{"bad key": "x"}, {"k": "bad value"}], ids=["key", "value"])
def test_a_selector_of_a_service_that_is_refused(api: Api, ns: str, name: str, selector: Json) -> None:
    body = obj("services", name, spec={"ports": [{"port": 80}], "selector": selector})
    api.create(at("services", ns), body).refused(422, "Invalid", 'spec.selector: Invalid value: "bad ')


def test_an_account_that_mounts_no_token(api: Api, ns: str, name: str) -> None:
    """The Pod's own word counts more."""
    make(api, "serviceaccounts", ns, name, automountServiceAccountToken=False)
    pod = make(api, "pods", ns, name, spec={"serviceAccountName": name})
    assert "volumes" not in pod["spec"]
    spec = {"serviceAccountName": name, "automountServiceAccountToken": True}
    assert make(api, "pods", ns, f"{name}-2", spec=spec)["spec"]["volumes"]


def test_what_the_caller_mounts_at_the_place_of_the_token_stays(api: Api, ns: str, name: str) -> None:
    mount = {"name": "mine", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    spec = {"containers": [{**CONTAINER, "volumeMounts": [mount]}], "volumes": [{"name": "mine", "emptyDir": {}}]}
    made = make(api, "pods", ns, name, spec=spec)["spec"]
    assert made["containers"][0]["volumeMounts"] == [mount]
    assert [v["name"] for v in made["volumes"]] == ["mine"]


def test_logs_of_a_pod_without_a_node(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, name)
    """There is nothing, and nothing is wrong."""
    answer = api.get(at("pods", ns, name, "log"))
    assert (answer.code, answer.text) == (204, "")


def test_logs_of_nothing(api: Api, ns: str, name: str) -> None:
    api.get(at("pods", ns, name, "log")).refused(404, "NotFound", f'pods "{name}" not found')


def test_logs_of_a_container_that_is_not_there(api: Api, ns: str, name: str) -> None:
    spec = {"nodeName": "no-such-node", "tolerations": [{"operator": "Exists"}]}
    make(api, "pods", ns, name, spec=spec)
    api.get(at("pods", ns, name, "log"), container="nope").refused(
        400, "BadRequest", f"container nope is not valid for pod {name}"
    )
    api.delete(at("pods", ns, name), {"gracePeriodSeconds": 0}).ok(200)


def test_eviction_deletes(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, name)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": ns}}
    said = api.create(at("pods", ns, name, "eviction"), body).ok(201)
    assert (said["kind"], said["status"]) == ("Status", "Success")
    assert api.get(at("pods", ns, name)).code == 404
    api.create(at("pods", ns, name, "eviction"), body).refused(404, "NotFound")


def test_a_pods_status_as_a_node_writes_it(api: Api, ns: str, name: str) -> None:
    """A merge patch; `podIPs` has to go with `podIP`, and what is not a node's stays."""
    make(api, "pods", ns, name)
    state = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "started": True}
    status = {
        "phase": "Running",
        "podIP": "127.77.0.5",
        "podIPs": [{"ip": "127.77.0.5"}],
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{**state, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
    }
    body = api.patch(at("pods", ns, name, "status"), {"status": status}).ok(200)["status"]
    for key in ("phase", "podIP", "podIPs", "hostIP", "startTime"):
        assert body[key] == status[key]
    assert body["qosClass"] == "BestEffort"
    assert body["containerStatuses"][0]["lastState"] == {}
