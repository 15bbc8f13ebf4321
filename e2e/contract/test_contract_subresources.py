"""Status versus spec writes, and scale."""

import pytest
from contract.client import JSON_PATCH, Api, Json, at, eventually
from contract.objects import make

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
    if resource == "replicasets":  # its controller writes once by itself
        status = at(resource, ns, name, "status")
        eventually("observed", lambda: api.get(status).ok(200)["status"].get("observedGeneration") == 1)
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
