"""Optimistic concurrency: a resourceVersion or UID as precondition of PUT, PATCH and DELETE, and conflicts."""

import pytest
from contract.client import JSON_PATCH, MERGE_PATCH, Api, Json, at
from contract.objects import make

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
OTHER_UID = "00000000-0000-0000-0000-000000000000"
BOTH = pytest.mark.parametrize("resource", ["configmaps", "widgets"])


def about(resource: str, name: str) -> str:
    """How a refusal names the object."""
    return (
        f'Operation cannot be fulfilled on {resource}{".contract.example" if resource == "widgets" else ""} "{name}": '
    )


@BOTH
def test_a_put_with_the_current_version_is_taken(api: Api, ns: str, name: str, resource: str) -> None:
    made = make(api, resource, ns, name)
    made["metadata"]["labels"] = {"a": "b"}
    put = api.replace(at(resource, ns, name), made).ok(200)
    assert int(put["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


@BOTH
def test_a_put_with_an_old_version_is_409(api: Api, ns: str, name: str, resource: str) -> None:
    made = make(api, resource, ns, name)
    api.patch(at(resource, ns, name), {"metadata": {"labels": {"a": "b"}}}).ok(200)
    said = api.replace(at(resource, ns, name), made).refused(409, "Conflict", about(resource, name) + MODIFIED)
    group = {"group": "contract.example"} if resource == "widgets" else {}
    assert said["details"] == {"name": name, "kind": resource} | group


def test_a_put_without_a_version_overwrites_a_built_in_object(api: Api, ns: str, name: str) -> None:
    made = make(api, "configmaps", ns, name)
    api.patch(at("configmaps", ns, name), {"metadata": {"labels": {"a": "b"}}}).ok(200)
    del made["metadata"]["resourceVersion"]
    assert "labels" not in api.replace(at("configmaps", ns, name), made).ok(200)["metadata"]


def test_a_put_without_a_version_is_refused_for_a_custom_object(api: Api, ns: str, name: str) -> None:
    made = make(api, "widgets", ns, name)
    del made["metadata"]["resourceVersion"]
    answer = api.replace(at("widgets", ns, name), made)
    answer.refused(422, "Invalid", "metadata.resourceVersion: Invalid value: 0: must be specified for an update")
    assert answer.causes == [("metadata.resourceVersion", "FieldValueInvalid")]


@BOTH
def test_a_put_of_another_uid_is_409(api: Api, ns: str, name: str, resource: str) -> None:
    made = make(api, resource, ns, name)
    made["metadata"]["uid"] = OTHER_UID
    api.replace(at(resource, ns, name), made).refused(
        409, "Conflict", f"Precondition failed: UID in precondition: {OTHER_UID}, UID in object meta: "
    )


@BOTH
def test_a_put_of_another_name_is_400(api: Api, ns: str, name: str, resource: str) -> None:
    made = make(api, resource, ns, name)
    made["metadata"]["name"] = "other"
    says = f"the name of the object (other) does not match the name on the URL ({name})"
    api.replace(at(resource, ns, name), made).refused(400, "BadRequest", says)


@BOTH
def test_a_put_that_changes_nothing_is_no_write(api: Api, ns: str, name: str, resource: str) -> None:
    made = make(api, resource, ns, name)
    assert api.replace(at(resource, ns, name), made).ok(200) == made


PATCHES: list[tuple[str, str, object, int]] = [
    # id, media type, body with VERSION and UID filled in, code
    ("merge-current-version", MERGE_PATCH, {"metadata": {"resourceVersion": "VERSION", "labels": {"a": "b"}}}, 200),
    ("merge-old-version", MERGE_PATCH, {"metadata": {"resourceVersion": "OLD", "labels": {"a": "b"}}}, 409),
    ("merge-current-uid", MERGE_PATCH, {"metadata": {"uid": "UID", "labels": {"a": "b"}}}, 200),
    # Another UID in a patch is an attempt to change it, unlike in a PUT.
    ("merge-other-uid", MERGE_PATCH, {"metadata": {"uid": OTHER_UID}}, 422),
    ("test-version", JSON_PATCH, [{"op": "test", "path": "/metadata/resourceVersion", "value": "VERSION"},
                                  {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], 200),
    ("test-old-version", JSON_PATCH, [{"op": "test", "path": "/metadata/resourceVersion", "value": "OLD"},
                                      {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], 422),
    ("test-uid", JSON_PATCH, [{"op": "test", "path": "/metadata/uid", "value": "UID"},
                              {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], 200),
    ("replace-version", JSON_PATCH, [{"op": "replace", "path": "/metadata/resourceVersion", "value": "OLD"}], 409),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(("type", "body", "code"), [pytest.param(*row[1:], id=row[0]) for row in PATCHES])
def test_preconditions_in_patches(
    api: Api, ns: str, name: str, resource: str, type: str, body: object, code: int
) -> None:
    old = make(api, resource, ns, name)["metadata"]["resourceVersion"]
    made = api.patch(at(resource, ns, name), {"metadata": {"annotations": {"x": "y"}}}).ok(200)["metadata"]

    def filled(value: object) -> object:
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [filled(item) for item in value]
        known = {"VERSION": made["resourceVersion"], "OLD": old, "UID": made["uid"]}
        return known.get(value, value) if isinstance(value, str) else value

    answer = api.patch(at(resource, ns, name), filled(body), type=type)
    if code == 200:
        assert answer.ok(200)["metadata"]["labels"] == {"a": "b"}
    elif code == 409:
        answer.refused(409, "Conflict", about(resource, name) + MODIFIED)
    else:
        answer.refused(422, "Invalid")


def test_a_patch_that_takes_the_version_away(api: Api, ns: str, name: str) -> None:
    """The same rule as for a PUT without one: custom objects refuse it, and name themselves by their plural here."""
    patch = {"metadata": {"resourceVersion": None}}
    made = make(api, "configmaps", ns, name)
    assert api.patch(at("configmaps", ns, name), patch).ok(200) == made
    make(api, "widgets", ns, name)
    api.patch(at("widgets", ns, name), patch).refused(
        422, "Invalid", f'widgets.contract.example "{name}" is invalid: metadata.resourceVersion: Invalid value: 0: '
    )


DELETES: list[tuple[str, Json, int]] = [
    ("current-uid", {"uid": "UID"}, 200),
    ("current-version", {"resourceVersion": "VERSION"}, 200),
    ("both", {"uid": "UID", "resourceVersion": "VERSION"}, 200),
    ("other-uid", {"uid": OTHER_UID}, 409),
    ("old-version", {"resourceVersion": "OLD"}, 409),
    ("right-uid-old-version", {"uid": "UID", "resourceVersion": "OLD"}, 409),
]


@pytest.mark.parametrize("resource", ["configmaps", "widgets", "pods"])
@pytest.mark.parametrize(("preconditions", "code"), [pytest.param(*row[1:], id=row[0]) for row in DELETES])
def test_preconditions_of_a_deletion(
    api: Api, ns: str, name: str, resource: str, preconditions: Json, code: int
) -> None:
    old = make(api, resource, ns, name)["metadata"]["resourceVersion"]
    made = api.patch(at(resource, ns, name), {"metadata": {"labels": {"a": "b"}}}).ok(200)["metadata"]
    known = {"VERSION": made["resourceVersion"], "OLD": old, "UID": made["uid"]}
    sent = {key: known.get(value, value) for key, value in preconditions.items()}
    answer = api.delete(at(resource, ns, name), {"preconditions": sent, "gracePeriodSeconds": 0})
    if code == 200:
        answer.ok(200)
        assert api.get(at(resource, ns, name)).code == 404
        return
    if sent.get("uid") == OTHER_UID:
        says = f"the UID in the precondition ({OTHER_UID}) does not match the UID in record ({made['uid']}). "
        says += "The object might have been deleted and then recreated"
    else:
        says = (
            f"the ResourceVersion in the precondition ({old}) does not match the ResourceVersion in record "
            f"({made['resourceVersion']}). The object might have been modified"
        )
    answer.refused(409, "Conflict", says)
    api.get(at(resource, ns, name)).ok(200)


def test_of_two_writers_with_one_version_one_wins(api: Api, ns: str, name: str) -> None:
    made = make(api, "leases", ns, name)
    first = {**made, "spec": {**made["spec"], "holderIdentity": "first"}}
    second = {**made, "spec": {**made["spec"], "holderIdentity": "second"}}
    api.replace(at("leases", ns, name), first).ok(200)
    api.replace(at("leases", ns, name), second).refused(409, "Conflict", MODIFIED)
    assert api.get(at("leases", ns, name)).ok(200)["spec"]["holderIdentity"] == "first"


def test_versions_grow_over_all_kinds(api: Api, ns: str, name: str) -> None:
    versions = [
        int(make(api, resource, ns, name)["metadata"]["resourceVersion"])
        for resource in ("configmaps", "widgets", "leases", "runs", "secrets")
    ]
    assert versions == sorted(set(versions))
