"""Status versus spec writes, scale, and the binding of Pods."""

import pytest
from contract.client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Api, Json, at
from contract.objects import make, obj

SEPARATE: list[tuple[str, Json, Json]] = [
    # resource, a status, a spec change
    ("widgets", {"phase": "p"}, {"size": 5}),
    ("runs", {"phase": "Running"}, {"cancelRequested": True}),
    ("runtimes", {"readyReplicas": 1}, {"replicas": 3}),
    ("pods", {"message": "p"}, {"activeDeadlineSeconds": 10}),
    ("replicasets", {"observedGeneration": 7, "replicas": 0}, {"minReadySeconds": 2}),
]
ROWS = pytest.mark.parametrize(("resource", "status", "spec"), [pytest.param(*row, id=row[0]) for row in SEPARATE])


def part(body: Json, of: Json) -> Json:
    """What *body* holds of the keys in *of*."""
    return {key: body[key] for key in of if key in body}


@ROWS
def test_a_status_at_creation_is_dropped(api: Api, ns: str, name: str, resource: str, status: Json, spec: Json) -> None:
    made = make(api, resource, ns, name, status=status)
    assert part(made.get("status", {}), status) != status


@ROWS
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_write_to_the_object_leaves_the_status(
    api: Api, ns: str, name: str, resource: str, status: Json, spec: Json, method: str
) -> None:
    made = make(api, resource, ns, name)
    path = at(resource, ns, name)
    if method == "PATCH":
        body = api.patch(path, {"spec": spec, "status": status}).ok(200)
    else:
        made["metadata"].pop("resourceVersion") if resource not in ("widgets", "runs", "runtimes") else None
        body = api.replace(path, {**made, "spec": {**made["spec"], **spec}, "status": status}).ok(200)
    assert part(body["spec"], spec) == spec
    assert part(body.get("status", {}), status) != status


@ROWS
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_write_to_the_status_leaves_everything_else(
    api: Api, ns: str, name: str, resource: str, status: Json, spec: Json, method: str
) -> None:
    """Of a custom object's metadata nothing is taken but the resourceVersion; built-in kinds do take their labels."""
    made = make(api, resource, ns, name)
    path = at(resource, ns, name, "status")
    if method == "PATCH":
        body = api.patch(path, {"metadata": {"labels": {"a": "b"}}, "spec": spec, "status": status}).ok(200)
    else:
        meta = {**made["metadata"], "labels": {"a": "b"}}
        meta.pop("resourceVersion") if resource not in ("widgets", "runs", "runtimes") else None
        new = {
            **made,
            "metadata": meta,
            "spec": {**made["spec"], **spec},
            "status": {**made.get("status", {}), **status},
        }
        body = api.replace(path, new).ok(200)
    assert part(body["status"], status) == status
    assert body["spec"] == made["spec"]
    custom = resource in ("widgets", "runs", "runtimes")
    assert body["metadata"].get("labels") == (None if custom else {"a": "b"})


def test_metadata_through_the_status_of_a_pod(api: Api, ns: str, name: str) -> None:
    """Built-in kinds differ from custom ones: a Pod's status takes labels, annotations and even finalizers."""
    make(api, "pods", ns, name)
    meta = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["contract.example/x"]}
    body = api.patch(at("pods", ns, name, "status"), {"metadata": meta}).ok(200)
    assert (body["metadata"]["labels"], body["metadata"]["annotations"]) == ({"a": "b"}, {"c": "d"})
    assert body["metadata"]["finalizers"] == ["contract.example/x"]
    api.patch(at("pods", ns, name), {"metadata": {"finalizers": None}}).ok(200)


def test_the_status_is_read_as_the_whole_object(api: Api, ns: str, name: str) -> None:
    for resource in ("widgets", "pods", "runs"):
        make(api, resource, ns, name)
        assert api.get(at(resource, ns, name, "status")).ok(200) == api.get(at(resource, ns, name)).ok(200)


def test_a_status_can_be_emptied(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    path = at("widgets", ns, name, "status")
    api.patch(path, {"status": {"phase": "p"}}).ok(200)
    assert "status" not in api.patch(path, {"status": None}).ok(200)


def test_a_kind_without_status_subresource_takes_status_like_any_field(api: Api, ns: str, name: str) -> None:
    make(api, "plains", ns, name, status={"text": "made"})
    path = at("plains", ns, name)
    assert api.get(path).ok(200)["status"] == {"text": "made"}
    assert api.patch(path, {"status": {"text": "new"}}).ok(200)["status"] == {"text": "new"}


def test_the_precondition_of_a_status_write(api: Api, ns: str, name: str) -> None:
    made = make(api, "runs", ns, name)
    path = at("runs", ns, name, "status")
    api.patch(path, {"status": {"phase": "Pending"}}).ok(200)
    api.replace(path, {**made, "status": {"phase": "Failed"}}).refused(409, "Conflict")
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "status": {"phase": "Failed"}}
    api.patch(path, old).refused(409, "Conflict")
    ops = [
        {"op": "test", "path": "/status/phase", "value": "Pending"},
        {"op": "replace", "path": "/status/phase", "value": "Running"},
    ]
    assert api.patch(path, ops, type=JSON_PATCH).ok(200)["status"]["phase"] == "Running"
    api.patch(path, ops, type=JSON_PATCH).refused(422, "Invalid")


# ---------------------------------------------------------------- scale


@pytest.mark.parametrize("resource", ["widgets", "runtimes", "replicasets"])
def test_scale_reads_and_writes_replicas(api: Api, ns: str, name: str, resource: str) -> None:
    made = make(api, resource, ns, name)
    path = at(resource, ns, name, "scale")
    scale = api.get(path).ok(200)
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    keys = {"name", "namespace", "uid", "creationTimestamp"}
    assert {k: scale["metadata"][k] for k in keys} == {k: made["metadata"][k] for k in keys}
    assert scale["spec"] == {"widgets": {"replicas": 3}, "runtimes": {"replicas": 1}, "replicasets": {}}[resource]
    assert scale["status"]["replicas"] == 0
    scaled = api.replace(path, {**scale, "spec": {"replicas": 5}}).ok(200)
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 5})
    assert api.patch(path, {"spec": {"replicas": 2}}).ok(200)["spec"] == {"replicas": 2}
    body = api.get(at(resource, ns, name)).ok(200)
    assert body["spec"]["size" if resource == "widgets" else "replicas"] == 2
    assert body["metadata"]["generation"] == 3
    api.replace(path, {**scale, "spec": {"replicas": 4}}).refused(409, "Conflict", "the object has been modified")
    field = {"widgets": ".spec.size", "runtimes": ".spec.replicas", "replicasets": "spec.replicas"}[resource]
    api.patch(path, {"spec": {"replicas": -1}}).refused(422, "Invalid", f"{field}: Invalid value: -1")
    api.delete(at(resource, ns, name)).ok(200)


def test_scale_is_held_to_the_schema(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    api.patch(at("widgets", ns, name, "scale"), {"spec": {"replicas": 10}}).refused(
        422, "Invalid", "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"
    )


def test_scale_shows_status_and_selector(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    api.patch(at("widgets", ns, name, "status"), {"status": {"replicas": 2, "selector": "a=b"}}).ok(200)
    assert api.get(at("widgets", ns, name, "scale")).ok(200)["status"] == {"replicas": 2, "selector": "a=b"}


def test_scale_of_a_replicaset_shows_its_selector(api: Api, ns: str, name: str) -> None:
    make(api, "replicasets", ns, name)
    assert api.get(at("replicasets", ns, name, "scale")).ok(200)["status"] == {"replicas": 0, "selector": "app=x"}


@pytest.mark.parametrize("resource", ["widgets", "replicasets"])
def test_scale_of_nothing_is_404(api: Api, ns: str, name: str, resource: str) -> None:
    api.get(at(resource, ns, name, "scale")).refused(404, "NotFound", f'"{name}" not found')
    api.patch(at(resource, ns, name, "scale"), {"spec": {"replicas": 1}}).refused(404, "NotFound")


# ---------------------------------------------------------------- binding


def bind(api: Api, ns: str, name: str, node: str, **target: str) -> Json:
    """The body of a Binding."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node, **target},
    }


def test_binding_puts_a_pod_on_a_node(api: Api, ns: str, name: str) -> None:
    """The node need not exist; the Pod is told by a condition and keeps its generation."""
    make(api, "pods", ns, name)
    path = at("pods", ns, name, "binding")
    said = api.create(path, bind(api, ns, name, "node-a")).ok(201)
    assert (said["kind"], said["status"], said["code"]) == ("Status", "Success", 201)
    pod = api.get(at("pods", ns, name)).ok(200)
    assert pod["spec"]["nodeName"] == "node-a"
    scheduled = next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
    assert scheduled["status"] == "True"
    api.create(path, bind(api, ns, name, "node-b")).refused(
        409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} is already assigned to '
    )
    api.create(path, bind(api, ns, name, "node-a")).refused(409, "Conflict")
    api.delete(at("pods", ns, name), {"gracePeriodSeconds": 0}).ok(200)


def test_binding_of_nothing_is_404(api: Api, ns: str, name: str) -> None:
    api.create(at("pods", ns, name, "binding"), bind(api, ns, name, "node-a")).refused(
        404, "NotFound", f'pods "{name}" not found'
    )


def test_binding_under_another_name_is_400(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, name)
    api.create(at("pods", ns, name, "binding"), bind(api, ns, "other", "node-a")).refused(
        400, "BadRequest", "name in URL does not match name in Binding object"
    )


def test_binding_without_a_node_is_500(api: Api, ns: str, name: str) -> None:
    """An error without a reason: it is not wrapped as an invalid object would be."""
    make(api, "pods", ns, name)
    api.create(at("pods", ns, name, "binding"), bind(api, ns, name, "")).refused(500, "", "target.name: Required value")


def test_binding_a_pod_that_is_being_deleted_is_409(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, name, meta={"finalizers": ["contract.example/x"]})
    api.delete(at("pods", ns, name)).ok(200)
    api.create(at("pods", ns, name, "binding"), bind(api, ns, name, "node-a")).refused(
        409, "Conflict", f"pod {name} is being deleted, cannot be assigned to a host"
    )
    api.patch(at("pods", ns, name), {"metadata": {"finalizers": None}})


# ---------------------------------------------------------------- Pods otherwise

POD_WRITES: list[tuple[str, Json, int]] = [
    ("image", {"spec": {"containers": [{"name": "main", "image": "other:1"}]}}, 200),
    ("deadline", {"spec": {"activeDeadlineSeconds": 9}}, 200),
    ("node", {"spec": {"nodeName": "x"}}, 422),
    (
        "command",
        {"spec": {"containers": [{"name": "main", "image": "registry.invalid/none:1", "command": ["x"]}]}},
        422,
    ),
    ("account", {"spec": {"serviceAccountName": "other"}}, 422),
    ("restart-policy", {"spec": {"restartPolicy": "Never"}}, 422),
]


@pytest.mark.parametrize(("patch", "code"), [pytest.param(*row[1:], id=row[0]) for row in POD_WRITES])
def test_what_may_change_in_a_pods_spec(api: Api, ns: str, name: str, patch: Json, code: int) -> None:
    """A merge patch replaces lists whole, so the rest of the container is taken from the Pod itself."""
    made = make(api, "pods", ns, name, spec={"automountServiceAccountToken": False})
    for new in patch["spec"].get("containers", []):
        new.update({k: v for k, v in made["spec"]["containers"][0].items() if k not in new})
    answer = api.patch(at("pods", ns, name), patch)
    if code == 200:
        assert answer.ok(200)["metadata"]["generation"] == 2
    else:
        answer.refused(422, "Invalid", "spec: Forbidden: pod updates may not change fields other than ")


def test_a_pod_gets_what_it_does_not_say(api: Api, ns: str, name: str) -> None:
    pod = make(api, "pods", ns, name)
    spec = pod["spec"]
    assert {k: spec[k] for k in ("restartPolicy", "dnsPolicy", "terminationGracePeriodSeconds", "schedulerName")} == {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    }
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert spec["enableServiceLinks"] is True
    assert [t["tolerationSeconds"] for t in spec["tolerations"]] == [300, 300]
    assert {t["key"] for t in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    [volume] = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    [mount] = spec["containers"][0]["volumeMounts"]
    assert mount == {
        "name": volume["name"],
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    assert (pod["status"]["phase"], pod["status"]["qosClass"]) == ("Pending", "BestEffort")


def test_a_pod_that_wants_no_token_gets_none(api: Api, ns: str, name: str) -> None:
    pod = make(api, "pods", ns, name, spec={"automountServiceAccountToken": False})
    assert "volumes" not in pod["spec"]
    assert "volumeMounts" not in pod["spec"]["containers"][0]


def test_a_pod_of_an_account_that_is_not_there_is_403(api: Api, ns: str, name: str) -> None:
    answer = api.create(at("pods", ns), obj("pods", name, spec={"serviceAccountName": "nobody"}))
    answer.refused(
        403,
        "Forbidden",
        f'pods "{name}" is forbidden: error looking up service account {ns}/nobody: serviceaccount "nobody" not found',
    )


def test_a_pod_without_containers_is_422(api: Api, ns: str, name: str) -> None:
    answer = api.create(at("pods", ns), obj("pods", name, spec={"containers": []}))
    answer.refused(422, "Invalid", "spec.containers: Required value")


def test_conditions_of_a_pod_by_apply_of_another_manager(api: Api, ns: str, name: str) -> None:
    """How the operator writes its readiness gate beside what the node writes."""
    make(api, "pods", ns, name, spec={"readinessGates": [{"conditionType": "contract.example/Gate"}]})
    path = at("pods", ns, name, "status")
    ready = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}
    api.patch(path, {"status": {"conditions": [ready]}}, type=MERGE_PATCH).ok(200)
    gate = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "status": {"conditions": [{"type": "contract.example/Gate", "status": "True"}]},
    }
    body = api.call("PATCH", path, gate, type=APPLY_PATCH, query={"fieldManager": "gate", "force": "true"}).ok(200)
    conditions = {c["type"]: c["status"] for c in body["status"]["conditions"]}
    assert (conditions["contract.example/Gate"], conditions["Ready"]) == ("True", "False")
