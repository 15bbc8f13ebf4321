"""Create, read, list, replace, patch and delete, for every built-in resource and for custom ones."""

import json

import pytest
from contract.client import JSON, Api, at
from contract.objects import BODIES, CLUSTER_SCOPED, KINDS, make, obj

RESOURCES = sorted(BODIES)
CUSTOM = {"widgets", "plains", "manies", "clusterthings", "celforms", "runs", "runtimes"}
WITH_GENERATION = CUSTOM | {"pods", "replicasets", "endpointslices"}
"""The others have no metadata.generation at all."""
ANSWER_DELETE_WITH_OBJECT = {"pods", "services", "serviceaccounts", "persistentvolumeclaims", "namespaces"}
"""The others answer with a Status of success that names the UID."""
MADE_BY_PUT = {"services", "events", "leases", "roles", "rolebindings", "clusterroles", "clusterrolebindings"}
"""A PUT of these creates what is not there; of the others it is 404."""


def place(resource: str, ns: str) -> str | None:
    """The namespace to use for *resource*."""
    return None if resource in CLUSTER_SCOPED else ns


def full_name(resource: str) -> str:
    """`leases.coordination.k8s.io`, or `pods`."""
    group = KINDS[resource][0].rpartition("/")[0]
    return f"{resource}.{group}" if group else resource


def details(resource: str, name: str) -> dict[str, str]:
    """What a Status says about an object of *resource*."""
    group = KINDS[resource][0].rpartition("/")[0]
    return {"name": name, "kind": resource} | ({"group": group} if group else {})


@pytest.mark.parametrize("resource", RESOURCES)
def test_an_object_lives(api: Api, ns: str, name: str, resource: str) -> None:
    space = place(resource, ns)
    path = at(resource, space, name)
    version, kind = KINDS[resource]
    made = make(api, resource, space, name)
    try:
        meta = made["metadata"]
        assert (made["apiVersion"], made["kind"], meta["name"], meta.get("namespace")) == (version, kind, name, space)
        assert int(meta["resourceVersion"]) > 0
        assert len(meta["uid"]) == 36
        assert meta["creationTimestamp"].endswith("Z")
        assert len(meta["creationTimestamp"]) == 20
        assert meta.get("generation") == (1 if resource in WITH_GENERATION else None)

        read = api.get(path).ok(200)
        assert (read["kind"], read["metadata"]["uid"]) == (kind, meta["uid"])

        api.patch(path, {"metadata": {"labels": {"step": "patched"}}}).ok(200)
        read = api.get(path).ok(200)
        assert read["metadata"]["labels"]["step"] == "patched"
        read["metadata"]["labels"]["step"] = "replaced"
        replaced = api.replace(path, read)
        if replaced.code == 409:  # a controller wrote in between
            read["metadata"].pop("resourceVersion")
            replaced = api.replace(path, read)
        assert replaced.ok(200)["metadata"]["labels"]["step"] == "replaced"
        assert int(replaced.body["metadata"]["resourceVersion"]) > int(meta["resourceVersion"])
    finally:
        gone = api.delete(path, {"gracePeriodSeconds": 0})
    body = gone.ok(200)
    if resource in ANSWER_DELETE_WITH_OBJECT:
        assert (body["kind"], body["metadata"]["uid"]) == (kind, meta["uid"])
    else:
        assert body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details(resource, name) | {"uid": meta["uid"]},
        }


@pytest.mark.parametrize("resource", sorted(set(RESOURCES) - {"namespaces", "nodes"}))
def test_a_second_of_the_same_name_is_409(api: Api, ns: str, name: str, resource: str) -> None:
    space = place(resource, ns)
    make(api, resource, space, name)
    body = obj(resource, name)
    if resource == "events":
        body["involvedObject"]["namespace"] = ns
    refusal = api.create(at(resource, space), body)
    said = refusal.refused(409, "AlreadyExists", f'{full_name(resource)} "{name}" already exists')
    assert said["details"] == details(resource, name)
    api.delete(at(resource, space, name), {"gracePeriodSeconds": 0}).ok()


@pytest.mark.parametrize(
    ("resource", "method"),
    [
        (resource, method)
        for resource in RESOURCES
        for method in ("GET", "PUT", "PATCH", "DELETE")
        if (method, resource) not in {("PUT", r) for r in MADE_BY_PUT}
    ],
)
def test_what_is_not_there_is_404(api: Api, ns: str, name: str, resource: str, method: str) -> None:
    path = at(resource, place(resource, ns), name)
    body = {"GET": None, "DELETE": None, "PATCH": {}, "PUT": obj(resource, name)}[method]
    answer = api.call(
        method, path, body, type="application/merge-patch+json" if method == "PATCH" else "application/json"
    )
    said = answer.refused(404, "NotFound", f'{full_name(resource)} "{name}" not found')
    assert said["details"] == details(resource, name)


@pytest.mark.parametrize("resource", sorted(MADE_BY_PUT))
def test_a_put_makes_what_is_not_there(api: Api, ns: str, name: str, resource: str) -> None:
    path = at(resource, place(resource, ns), name)
    body = obj(resource, name)
    if resource == "events":
        body["involvedObject"]["namespace"] = ns
    assert api.replace(path, body).ok(201)["metadata"]["name"] == name
    api.delete(path).ok(200)


@pytest.mark.parametrize("resource", RESOURCES)
def test_a_list_has_its_own_kind_and_a_version(api: Api, ns: str, name: str, resource: str) -> None:
    """Items of built-in lists carry neither kind nor apiVersion; custom ones do, with `continue: ""` beside them."""
    space = place(resource, ns)
    made = make(api, resource, space, name, meta={"labels": {"only": name}})
    answer = api.get(at(resource, space), labelSelector=f"only={name}")
    body = answer.ok(200)
    version, kind = KINDS[resource]
    assert (body["kind"], body["apiVersion"]) == (f"{kind}List", version)
    assert int(body["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    [item] = body["items"]
    assert item["metadata"]["uid"] == made["metadata"]["uid"]
    assert ("kind" in item, "continue" in body["metadata"]) == ((True, True) if resource in CUSTOM else (False, False))
    everywhere = api.get(at(resource), labelSelector=f"only={name}").ok(200)
    assert [i["metadata"]["uid"] for i in everywhere["items"]] == [made["metadata"]["uid"]]
    api.delete(at(resource, space, name), {"gracePeriodSeconds": 0}).ok()


@pytest.mark.parametrize("resource", ["configmaps", "leases", "widgets", "runs", "pods"])
def test_a_collection_can_be_deleted_by_selector(api: Api, ns: str, name: str, resource: str) -> None:
    """The answer of a custom or built-in resource alike is the list of what was deleted."""
    for i in range(3):
        make(api, resource, ns, f"{name}-{i}", meta={"labels": {"batch": name, "i": str(i)}})
    answer = api.delete(at(resource, ns), {"gracePeriodSeconds": 0}, labelSelector=f"batch={name},i!=1")
    body = answer.ok(200)
    assert body["kind"] == f"{KINDS[resource][1]}List"
    assert [i["metadata"]["name"] for i in body["items"]] == [f"{name}-0", f"{name}-2"]
    left = api.get(at(resource, ns), labelSelector=f"batch={name}").ok(200)
    assert [i["metadata"]["name"] for i in left["items"]] == [f"{name}-1"]


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_dry_run_changes_nothing(api: Api, ns: str, name: str, resource: str, method: str) -> None:
    path = at(resource, ns, name)
    if method == "POST":
        body = api.create(at(resource, ns), obj(resource, name), dryRun="All").ok(201)
        assert body["metadata"]["name"] == name
        assert "resourceVersion" not in body["metadata"]
        api.get(path).refused(404, "NotFound")
        return
    made = make(api, resource, ns, name)
    if method == "DELETE":
        api.delete(path, dryRun="All").ok(200)
    elif method == "PUT":
        made_new = {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}
        assert api.replace(path, made_new, dryRun="All").ok(200)["metadata"]["labels"] == {"a": "b"}
    else:
        changed = api.patch(path, {"metadata": {"labels": {"a": "b"}}}, dryRun="All").ok(200)
        assert changed["metadata"]["labels"] == {"a": "b"}
    assert api.get(path).ok(200)["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_dry_run_of_another_name_is_422(api: Api, ns: str, name: str) -> None:
    api.create(at("configmaps", ns), obj("configmaps", name), dryRun="Some").refused(
        422, "Invalid", 'dryRun: Unsupported value: ["Some"]: supported values: "All"'
    )


def test_field_managers_are_kept_with_the_fields_they_wrote(api: Api, ns: str, name: str) -> None:
    made = api.create(at("configmaps", ns), obj("configmaps", name), fieldManager="tester").ok(201)
    [entry] = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("tester", "Update", "v1")
    assert (entry["fieldsType"], entry["fieldsV1"]) == ("FieldsV1", {"f:data": {".": {}, "f:a": {}}})
    assert "subresource" not in entry


def test_the_field_manager_of_those_who_name_none_is_their_user_agent(api: Api, ns: str, name: str) -> None:
    """Up to the first slash."""
    headers = {"user-agent": "some-client/1.2 (x)", "content-type": JSON}
    answer = api.http.post(at("configmaps", ns), content=json.dumps(obj("configmaps", name)), headers=headers)
    assert [e["manager"] for e in answer.json()["metadata"]["managedFields"]] == ["some-client"]


def test_managed_fields_can_be_emptied(api: Api, ns: str, name: str) -> None:
    path = at("configmaps", ns, name)
    make(api, "configmaps", ns, name)
    body = api.patch(path, {"metadata": {"managedFields": [{}]}}).ok(200)
    assert "managedFields" not in body["metadata"]
