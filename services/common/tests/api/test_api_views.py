"""Views of objects as the API server sends them (design §3)."""

import json
from typing import Any

import msgspec
import pytest

from kruntimes.common.api import manifests, views
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.phases import Phase

RUN: dict[str, Any] = {
    "apiVersion": "kruntimes.io/v1alpha1",
    "kind": "Run",
    "metadata": {
        "name": "hello",
        "namespace": "demo",
        "uid": "2c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6",
        "resourceVersion": "41",
        "generation": 2,
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "finalizers": ["kruntimes.io/registration-cleanup"],
        "labels": {"team": "a"},
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "runtime": "python",
        "source": {"inline": "def main(x): return x", "inlinePath": "main.py"},
        "mode": {"function": {"handler": "main.main", "idleTimeoutSeconds": 60, "isolation": "Fork"}},
        "env": [{"name": "A", "value": "1"}, {"name": "B"}],
        "timeout": "1h30m",
        "retryPolicy": {"maxAttempts": 3, "backoff": "500ms", "retryableReasons": ["RuntimePodLost"]},
        "resources": {"requests": {"runs": "2", "gpu": 1}},
        "ttlSecondsAfterFinished": 5,
        "somethingNew": {"a": 1},
    },
    "status": {
        "phase": "Ready",
        "assignedPod": "python-1",
        "assignedPodUID": "1f0e",
        "attempt": 2,
        "endpoint": {"protocol": "HTTPS", "url": "https://gateway/v1", "caBundle": "LS0t"},
        "startTime": "2026-03-01T12:00:01Z",
        "outputs": {"a": "b"},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "FunctionRegistered",
                "message": "",
                "lastTransitionTime": "2026-03-01T12:00:02Z",
                "observedGeneration": 1,
            }
        ],
    },
}


def decoded(obj: dict[str, Any], kind: type[views.View]) -> Any:
    return msgspec.json.decode(json.dumps(obj), type=kind)


def with_status(**status: object) -> dict[str, Any]:
    return RUN | {"status": RUN["status"] | status}


def test_a_run_whole() -> None:
    run = decoded(RUN, views.Run)
    assert run.metadata.key == "demo/hello" and not run.metadata.deleting
    assert run.spec.source.inline_path == "main.py" and run.spec.source.commit_sha is None
    assert run.spec.mode.function == views.FunctionMode("main.main", 60, "Fork") and run.spec.mode.task is None
    assert [(e.name, e.value) for e in run.spec.env] == [("A", "1"), ("B", "")]
    assert run.spec.timeout_seconds == 5400 and run.spec.retry_policy.backoff_seconds == 0.5
    assert run.spec.requests == {"runs": 2, "gpu": 1}
    assert run.status.endpoint.ca_bundle == "LS0t"
    assert run.epoch == Epoch(RUN["metadata"]["uid"], 2, "1f0e")
    assert run.phase_class.claimed and run.ready


def test_a_run_that_nobody_has_touched() -> None:
    spec = {"runtime": "bash", "mode": {"task": {}}}
    run = decoded({"metadata": {"name": "a", "namespace": "b"}, "spec": spec}, views.Run)
    assert run.spec.mode.task == views.TaskMode() and run.spec.source is None
    assert run.spec.requests == {"runs": 1}, "a Run takes one unit unless it says otherwise"
    assert run.spec.timeout_seconds is None and run.spec.retry_policy.max_attempts == 1
    assert run.phase_class == views.classify(Phase.PENDING) and run.epoch is None and not run.ready


@pytest.mark.parametrize("kind", [views.Run, views.RouteRun])
@pytest.mark.parametrize(
    ("obj", "ready"),
    [
        pytest.param(RUN, True, id="ready"),
        pytest.param(with_status(phase="Running"), False, id="phase-is-behind"),
        pytest.param(with_status(conditions=[]), False, id="no-condition"),
        pytest.param(
            with_status(conditions=[RUN["status"]["conditions"][0] | {"status": "False"}]), False, id="not-ready"
        ),
        pytest.param(
            with_status(conditions=[RUN["status"]["conditions"][0] | {"type": "Backoff"}]), False, id="other-condition"
        ),
        pytest.param(
            RUN | {"metadata": RUN["metadata"] | {"deletionTimestamp": "2026-03-01T12:00:00Z"}}, False, id="deleting"
        ),
    ],
)
def test_what_may_be_invoked(kind: type[views.View], obj: dict[str, Any], ready: bool) -> None:
    assert decoded(obj, kind).ready is ready


@pytest.mark.parametrize("kind", [views.Run, views.RouteRun])
@pytest.mark.parametrize(
    ("obj", "epoch"),
    [
        pytest.param(RUN, True, id="claimed"),
        pytest.param(with_status(attempt=0), False, id="scheduled-and-never-claimed"),
        pytest.param(with_status(assignedPodUID=""), False, id="not-assigned"),
    ],
)
def test_who_has_an_epoch(kind: type[views.View], obj: dict[str, Any], epoch: bool) -> None:
    assert (decoded(obj, kind).epoch is not None) is epoch


def test_views_are_values() -> None:
    run = decoded(RUN, views.Run)
    with pytest.raises(AttributeError):
        run.spec = views.RunSpec()
    assert run == decoded(RUN, views.Run)
    assert views.Meta(name="node").key == "node", "a cluster-scoped object has no namespace in its key"


def test_a_runtime() -> None:
    template = {"spec": {"containers": [{"name": "runtime", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}}
    least = decoded({"metadata": {"name": "python"}, "spec": {"template": template}}, views.Runtime)
    assert least.spec.template == template and least.spec.workspace is None
    assert (least.spec.port, least.spec.replicas, least.spec.offers) == (9091, 1, {"runs": 2})
    spec = {"template": template, "capacity": {"resources": {"gpu": "4"}}, "workspace": {"emptyDir": {}}}
    named = decoded({"spec": spec, "status": {"readyReplicas": 3}}, views.Runtime)
    assert named.spec.offers == {"runs": 2, "gpu": 4} and named.status.ready_replicas == 3


def test_a_pod() -> None:
    pod = {
        "metadata": {
            "name": "python-1",
            "namespace": "demo",
            "uid": "1f0e",
            "labels": {"runtime": "python"},
            "annotations": {"kruntimes.io/capacity.runs": "2", "kruntimes.io/capacity.gpu": "1", "other": "x"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}],
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "runtime"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    seen = decoded(pod, views.Pod)
    assert (seen.runtime, seen.status.pod_ip, seen.spec.node_name, seen.ready) == ("python", "10.0.0.1", "node-1", True)
    assert seen.capacity == {"runs": 2, "gpu": 1}
    assert seen.metadata.owner_references[0].kind == "ReplicaSet"
    broken = pod | {"metadata": {"annotations": {"kruntimes.io/capacity.runs": "lots"}}}
    with pytest.raises(ValueError, match="not a whole quantity"):
        _ = decoded(broken, views.Pod).capacity
    assert decoded(broken, views.Pod).runtime == ""


def test_a_certificate_request() -> None:
    request = {
        "metadata": {"name": "csr-1"},
        "spec": {
            "request": "LS0t",
            "signerName": "kruntimes.io/runtimed",
            "username": "system:serviceaccount:demo:kruntimes-runtimed",
            "extra": {"authentication.kubernetes.io/pod-uid": ["1f0e"]},
            "usages": ["digital signature"],
            "expirationSeconds": 3600,
        },
        "status": {"conditions": [{"type": "Approved", "status": "True"}], "certificate": "LS0t"},
    }
    seen = decoded(request, views.CSR)
    assert seen.spec.extra == {"authentication.kubernetes.io/pod-uid": ("1f0e",)}
    assert views.condition(seen.status.conditions, "Approved") is not None
    assert views.condition(seen.status.conditions, "Denied") is None


def test_a_lease() -> None:
    spec = {"holderIdentity": "1f0e", "leaseDurationSeconds": 30, "renewTime": "2026-03-01T12:00:00.123456Z"}
    seen = decoded({"metadata": {"name": "python-1"}, "spec": spec}, views.Lease)
    assert (seen.spec.holder_identity, seen.spec.renew_time) == ("1f0e", spec["renewTime"])


@pytest.mark.parametrize(
    ("plural", "view"),
    [("runs", views.Run), ("runtimes", views.Runtime)],
)
def test_a_view_names_every_field_of_its_schema(plural: str, view: type[views.View]) -> None:
    crd = next(c for c in manifests.crds() if c["spec"]["names"]["plural"] == plural)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    fields = {f.encode_name: f.type for f in msgspec.structs.fields(view)}
    for part in ("spec", "status"):
        seen = {f.encode_name for f in msgspec.structs.fields(fields[part])}
        assert seen == set(schema[part]["properties"])


def test_the_phases_of_the_schema_are_ours() -> None:
    crd = next(c for c in manifests.crds() if c["spec"]["names"]["plural"] == "runs")
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert status["properties"]["phase"]["enum"] == [phase.value for phase in Phase]
