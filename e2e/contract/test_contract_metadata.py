"""What the server writes into metadata, what it lets a caller write, and what it refuses there."""

from typing import Any

import pytest
from contract.client import Api, Json, at
from contract.objects import KINDS, make, obj

SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
NAME_PART = "name part must consist of alphanumeric characters, '-', '_' or '.'"
NAMES = [
    # resource, name, message or None where the name is good
    ("configmaps", "a.b", None),
    ("configmaps", "a" * 253, None),
    ("configmaps", "UP", SUBDOMAIN),
    ("configmaps", "a_b", SUBDOMAIN),
    ("configmaps", "-a", SUBDOMAIN),
    ("configmaps", "a-", SUBDOMAIN),
    ("configmaps", "a/b", SUBDOMAIN),
    ("configmaps", "..", SUBDOMAIN),
    ("configmaps", "a" * 254, "must be no more than 253 characters"),
    ("widgets", "a.b", None),
    ("widgets", "UP", SUBDOMAIN),
    ("widgets", "a" * 254, "must be no more than 253 characters"),
    ("pods", "UP", SUBDOMAIN),
    ("leases", "a_b", SUBDOMAIN),
    ("services", "a" * 63, None),
    ("services", "1a", None),
    ("services", "a.b", "must not contain dots"),
    ("services", "UP", LABEL),
    ("services", "a" * 64, "must be no more than 63 characters"),
    ("namespaces", "a.b", "must not contain dots"),
    ("namespaces", "UP", LABEL),
    # The names of RBAC objects are only kept from breaking a path.
    ("roles", "UP:with_all-of.it", None),
    ("roles", "a" * 254, None),
    ("roles", "a/b", "may not contain '/'"),
    ("roles", "%", "may not contain '%'"),
    ("roles", "..", "may not be '..'"),
    ("clusterroles", "system:something", None),
    ("runs", "a.b", None),
    ("runs", "UP", SUBDOMAIN),
]


@pytest.mark.parametrize(
    ("resource", "name", "message"), [pytest.param(*row, id=f"{row[0]}-{row[1][:8]}-{len(row[1])}") for row in NAMES]
)
def test_names(api: Api, ns: str, resource: str, name: str, message: str | None) -> None:
    space = None if resource in ("namespaces", "clusterroles") else ns
    answer = api.create(at(resource, space), obj(resource, name), dryRun="All")
    if message is None:
        assert answer.ok(201)["metadata"]["name"] == name
        return
    answer.refused(422, "Invalid", f'metadata.name: Invalid value: "{name}": {message}')
    assert ("metadata.name", "FieldValueInvalid") in answer.causes


@pytest.mark.parametrize("resource", ["configmaps", "widgets", "pods", "namespaces", "roles", "leases"])
@pytest.mark.parametrize("name", ["", None], ids=["empty", "absent"])
def test_a_name_is_required(api: Api, ns: str, resource: str, name: str | None) -> None:
    body = obj(resource, "x")
    body["metadata"] = {} if name is None else {"name": name}
    answer = api.create(at(resource, None if resource == "namespaces" else ns), body)
    said = answer.refused(422, "Invalid", "metadata.name: Required value: name or generateName is required")
    assert "name" not in said["details"]
    assert said["details"]["kind"] == KINDS[resource][1]
    assert answer.causes == [("metadata.name", "FieldValueRequired")]


@pytest.mark.parametrize("resource", ["configmaps", "widgets", "runs", "pods"])
def test_a_generated_name_has_five_characters_more(api: Api, ns: str, resource: str) -> None:
    body = obj(resource, "x")
    body["metadata"] = {"generateName": "made-"}
    names = set()
    for _ in range(3):
        meta = api.create(at(resource, ns), body).ok(201)["metadata"]
        assert meta["generateName"] == "made-"
        assert len(meta["name"]) == 10
        assert set(meta["name"][5:]) <= set("bcdfghjklmnpqrstvwxz2456789")
        names.add(meta["name"])
    assert len(names) == 3


def test_a_given_name_wins_over_generate_name(api: Api, ns: str, name: str) -> None:
    meta = make(api, "configmaps", ns, name, meta={"generateName": "other-"})["metadata"]
    assert (meta["name"], meta["generateName"]) == (name, "other-")


def test_a_long_prefix_is_cut_to_58_characters_before_five_are_added(api: Api, ns: str) -> None:
    body = obj("configmaps", "x")
    body["metadata"] = {"generateName": "p" * 100}
    name = api.create(at("configmaps", ns), body).ok(201)["metadata"]["name"]
    assert (len(name), name[:58]) == (63, "p" * 58)


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
def test_a_bad_prefix_is_told_twice(api: Api, ns: str, resource: str) -> None:
    body = obj(resource, "x")
    body["metadata"] = {"generateName": "Bad_"}
    answer = api.create(at(resource, ns), body)
    answer.refused(422, "Invalid", 'metadata.generateName: Invalid value: "Bad_": ' + SUBDOMAIN)
    assert answer.causes == [("metadata.generateName", "FieldValueInvalid"), ("metadata.name", "FieldValueInvalid")]


FORGED = {
    "uid": "00000000-0000-0000-0000-000000000000",
    "creationTimestamp": "2001-01-01T00:00:00Z",
    "deletionTimestamp": "2001-01-01T00:00:00Z",
    "deletionGracePeriodSeconds": 3,
    "selfLink": "/x",
}


@pytest.mark.parametrize("resource", ["configmaps", "widgets", "pods", "leases"])
def test_what_the_server_owns_is_overwritten_at_creation(api: Api, ns: str, name: str, resource: str) -> None:
    meta = make(api, resource, ns, name, meta=FORGED)["metadata"]
    assert meta["uid"] != FORGED["uid"]
    assert meta["creationTimestamp"] > "2026"
    assert not {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} & meta.keys()


@pytest.mark.parametrize(("resource", "kept"), [("configmaps", 7), ("widgets", 1), ("pods", 1), ("replicasets", 1)])
def test_a_forged_generation(api: Api, ns: str, name: str, resource: str, kept: int) -> None:
    """Kinds that do not count generations keep whatever was sent."""
    assert make(api, resource, ns, name, meta={"generation": 7})["metadata"]["generation"] == kept


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
def test_a_resource_version_at_creation_is_500(api: Api, ns: str, name: str, resource: str) -> None:
    answer = api.create(at(resource, ns), obj(resource, name, meta={"resourceVersion": "5"}))
    answer.refused(500, "", "resourceVersion should not be set on objects to be created")


GENERATIONS: list[tuple[str, str, str, Json, int]] = [
    # id, resource, subresource, merge patch, generation after it
    ("spec", "widgets", "", {"spec": {"size": 4}}, 2),
    ("same-spec", "widgets", "", {"spec": {"size": 3}}, 1),
    ("labels", "widgets", "", {"metadata": {"labels": {"a": "b"}}}, 1),
    ("annotations", "widgets", "", {"metadata": {"annotations": {"a": "b"}}}, 1),
    ("finalizers", "widgets", "", {"metadata": {"finalizers": ["contract.example/x"]}}, 1),
    ("status-by-the-main-path", "widgets", "", {"status": {"phase": "p"}}, 1),
    ("status", "widgets", "status", {"status": {"phase": "p"}}, 1),
    ("own-value", "widgets", "", {"metadata": {"generation": 9}}, 1),
    # Without the status subresource any change beside metadata counts.
    ("no-subresource-spec", "plains", "", {"spec": {"text": "u"}}, 2),
    ("no-subresource-status", "plains", "", {"status": {"text": "u"}}, 2),
    ("no-subresource-labels", "plains", "", {"metadata": {"labels": {"a": "b"}}}, 1),
    ("run-spec", "runs", "", {"spec": {"cancelRequested": True}}, 2),
    ("run-status", "runs", "status", {"status": {"phase": "Pending"}}, 1),
    ("pod-labels", "pods", "", {"metadata": {"labels": {"a": "b"}}}, 1),
    ("pod-status", "pods", "status", {"status": {"phase": "Running"}}, 1),
    ("pod-spec", "pods", "", {"spec": {"activeDeadlineSeconds": 5}}, 2),
    ("replicaset-spec", "replicasets", "", {"spec": {"minReadySeconds": 5}}, 2),
    ("replicaset-labels", "replicasets", "", {"metadata": {"labels": {"a": "b"}}}, 1),
    ("slice-endpoints", "endpointslices", "", {"endpoints": [{"addresses": ["10.1.2.4"]}]}, 2),
    ("slice-labels", "endpointslices", "", {"metadata": {"labels": {"a": "b"}}}, 2),
]


@pytest.mark.parametrize(
    ("resource", "sub", "patch", "generation"), [pytest.param(*row[1:], id=row[0]) for row in GENERATIONS]
)
def test_generations(api: Api, ns: str, name: str, resource: str, sub: str, patch: Json, generation: int) -> None:
    make(api, resource, ns, name)
    body = api.patch(at(resource, ns, name, sub or None), patch).ok(200)
    assert body["metadata"]["generation"] == generation
    if "finalizers" in patch.get("metadata", {}):
        api.patch(at(resource, ns, name), {"metadata": {"finalizers": None}}).ok(200)


IMMUTABLE: list[tuple[str, Json, int, str, str]] = [
    # id, merge patch, code, reason, message
    ("name", {"metadata": {"name": "zz"}}, 400, "BadRequest",
     "the name of the object (zz) does not match the name on the URL"),
    ("namespace", {"metadata": {"namespace": "zz"}}, 400, "BadRequest",
     "the namespace of the provided object does not match the namespace sent on the request"),
    ("uid", {"metadata": {"uid": "zz"}}, 422, "Invalid", 'metadata.uid: Invalid value: "zz": field is immutable'),
    ("deletion-timestamp", {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}, 422, "Invalid",
     'metadata.deletionTimestamp: Invalid value: "2001-01-01T00:00:00Z": field is immutable'),
    ("grace-period", {"metadata": {"deletionGracePeriodSeconds": 5}}, 422, "Invalid",
     "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable"),
    ("old-version", {"metadata": {"resourceVersion": "1"}}, 409, "Conflict", "the object has been modified"),
    ("not-a-version", {"metadata": {"resourceVersion": "x"}}, 500, "", 'strconv.ParseUint: parsing "x"'),
    ("kind", {"kind": "Other"}, 422, "Invalid", ""),
    ("api-version", {"apiVersion": "v9"}, 422, "Invalid", ""),
    ("owner", {"metadata": {"ownerReferences": [{"kind": "x"}]}}, 422, "Invalid",
     "metadata.ownerReferences[0].uid: Required value: must not be empty"),
    ("label-key", {"metadata": {"labels": {"a b": "c"}}}, 422, "Invalid",
     'metadata.labels: Invalid value: "a b": ' + NAME_PART),
    ("label-value", {"metadata": {"labels": {"a": "c d"}}}, 422, "Invalid",
     'metadata.labels: Invalid value: "c d": a valid label must be an empty string or consist of'),
    ("label-value-too-long", {"metadata": {"labels": {"a": "c" * 64}}}, 422, "Invalid", "must be no more than 63"),
    ("annotation-key", {"metadata": {"annotations": {"a b": "c"}}}, 422, "Invalid",
     'metadata.annotations: Invalid value: "a b": ' + NAME_PART),
    ("annotations-too-long", {"metadata": {"annotations": {"a": "c" * 262144}}}, 422, "Invalid",
     "metadata.annotations: Too long: may not be more than 262144 bytes"),
    ("finalizer", {"metadata": {"finalizers": ["a/b c"]}}, 422, "Invalid",
     'metadata.finalizers: Invalid value: "a/b c": ' + NAME_PART),
]  # fmt: skip


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
@pytest.mark.parametrize(
    ("patch", "code", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in IMMUTABLE]
)
def test_metadata_that_cannot_be_patched_so(
    api: Api, ns: str, name: str, resource: str, patch: Json, code: int, reason: str, message: str
) -> None:
    made = make(api, resource, ns, name)
    api.patch(at(resource, ns, name), patch).refused(code, reason, message)
    assert api.get(at(resource, ns, name)).ok(200) == made


HARMLESS: list[tuple[str, Json]] = [
    ("no-creation-timestamp", {"metadata": {"creationTimestamp": None}}),
    ("another-creation-timestamp", {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}),
    ("no-uid", {"metadata": {"uid": None}}),
    ("generation", {"metadata": {"generation": 9}}),
    ("self-link", {"metadata": {"selfLink": "x"}}),
    ("empty", {}),
]


@pytest.mark.parametrize("resource", ["configmaps", "widgets", "pods"])
@pytest.mark.parametrize("patch", [pytest.param(row[1], id=row[0]) for row in HARMLESS])
def test_what_is_put_right_in_silence_is_no_write(api: Api, ns: str, name: str, resource: str, patch: Json) -> None:
    """A write that changes nothing keeps the resourceVersion, so nobody is told."""
    made = make(api, resource, ns, name)
    before: Any = made["metadata"]
    after = api.patch(at(resource, ns, name), patch).ok(200)["metadata"]
    assert after == before


def test_a_finalizer_without_domain(api: Api, ns: str, name: str) -> None:
    """Built-in kinds refuse it, custom ones warn."""
    patch = {"metadata": {"finalizers": ["plain"]}}
    make(api, "configmaps", ns, name)
    answer = api.patch(at("configmaps", ns, name), patch)
    answer.refused(422, "Invalid", 'Invalid value: "plain": name is neither a standard finalizer name nor is it')
    assert answer.causes == [("metadata.finalizers[0]", "FieldValueInvalid")]
    make(api, "widgets", ns, name)
    answer = api.patch(at("widgets", ns, name), patch)
    assert answer.ok(200)["metadata"]["finalizers"] == ["plain"]
    assert answer.warnings == [
        'metadata.finalizers: "plain": prefer a domain-qualified finalizer name to avoid accidental conflicts with '
        "other finalizer writers"
    ]
    api.patch(at("widgets", ns, name), {"metadata": {"finalizers": []}}).ok(200)


def test_two_owners_that_both_control_are_refused(api: Api, ns: str, name: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "controller": True}
    meta = {"ownerReferences": [{**owner, "uid": "1"}, {**owner, "uid": "2"}]}
    answer = api.create(at("configmaps", ns), obj("configmaps", name, meta=meta))
    answer.refused(422, "Invalid", "metadata.ownerReferences: Invalid value:", "Only one reference can have Controller")


def test_an_owner_that_is_an_event_is_refused(api: Api, ns: str, name: str) -> None:
    meta = {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "x", "uid": "1"}]}
    answer = api.create(at("configmaps", ns), obj("configmaps", name, meta=meta))
    answer.refused(422, "Invalid", "is disallowed from being an owner")
