"""Pods: binding, defaults, what may change in them, and what is refused."""

import pytest
from contract.client import (
    APPLY_PATCH,
    MERGE_PATCH,
    Api,
    Json,
    at,
)
from contract.objects import make, obj


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


# ---------------------------------------------------------------- defaults and changes

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
    pod = api.create(at("pods", ns), obj("pods", name, spec={"schedulerName": None}), dryRun="All").ok(201)
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
