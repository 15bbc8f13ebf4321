"""Deletion in steps: finalizers, grace periods of Pods, options, and what may still be written meanwhile."""

from collections.abc import Iterator
from typing import Any

import pytest
from contract.client import JSON_PATCH, Api, Json, at
from contract.objects import CONTAINER, make

ONE, TWO = "contract.example/one", "contract.example/two"
BOTH = pytest.mark.parametrize("resource", ["configmaps", "widgets"])
ALL = pytest.mark.parametrize("resource", ["configmaps", "widgets", "pods", "runs", "leases"])
NODE = "no-such-node"


def release(api: Api, path: str) -> None:
    """Takes every finalizer away."""
    api.patch(path, {"metadata": {"finalizers": None}})


@pytest.fixture
def held(api: Api, ns: str, name: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The path of an object with two finalizers that is being deleted."""
    resource = request.getfixturevalue("resource")
    make(api, resource, ns, name, meta={"finalizers": [ONE, TWO]})
    path = at(resource, ns, name)
    api.delete(path, {"gracePeriodSeconds": 0}).ok(200)
    yield path
    release(api, path)


@ALL
def test_finalizers_hold_an_object(api: Api, ns: str, name: str, resource: str) -> None:
    """The deletion answers with the object as it stands now, where there is no finalizer with a Status or object."""
    before = make(api, resource, ns, name, meta={"finalizers": [ONE]})["metadata"]
    path = at(resource, ns, name)
    first = api.delete(path, {"gracePeriodSeconds": 0}).ok(200)["metadata"]
    assert len(first["deletionTimestamp"]) == 20
    assert first["deletionGracePeriodSeconds"] == 0
    assert int(first["resourceVersion"]) > int(before["resourceVersion"])
    again = api.delete(path, {"gracePeriodSeconds": 0}).ok(200)["metadata"]
    assert again == first
    assert api.get(path).ok(200)["metadata"] == first
    last = api.patch(path, {"metadata": {"finalizers": []}}).ok(200)["metadata"]
    assert "finalizers" not in last
    api.get(path).refused(404, "NotFound")


@ALL
def test_the_generation_grows_with_the_deletion_where_it_is_counted(
    api: Api, ns: str, name: str, resource: str
) -> None:
    before = make(api, resource, ns, name, meta={"finalizers": [ONE]})["metadata"].get("generation")
    path = at(resource, ns, name)
    after = api.delete(path, {"gracePeriodSeconds": 0}).ok(200)["metadata"].get("generation")
    release(api, path)
    assert (before, after) == ((None, None) if resource in ("configmaps", "leases") else (1, 2))


FINALIZERS: list[tuple[str, Json | list[Json], int]] = [
    # id, patch of an object that is being deleted and has ONE and TWO, code
    ("same", {"metadata": {"finalizers": [ONE, TWO]}}, 200),
    ("other-order", {"metadata": {"finalizers": [TWO, ONE]}}, 200),
    ("one-less", {"metadata": {"finalizers": [TWO]}}, 200),
    ("none", {"metadata": {"finalizers": None}}, 200),
    ("one-less-by-test", [{"op": "test", "path": "/metadata/finalizers/0", "value": ONE},
                          {"op": "remove", "path": "/metadata/finalizers/0"}], 200),
    ("one-more", {"metadata": {"finalizers": [ONE, TWO, "contract.example/new"]}}, 422),
    ("another", {"metadata": {"finalizers": ["contract.example/new"]}}, 422),
    ("one-more-by-add", [{"op": "add", "path": "/metadata/finalizers/-", "value": "contract.example/new"}], 422),
]  # fmt: skip


@ALL
@pytest.mark.parametrize(("patch", "code"), [pytest.param(*row[1:], id=row[0]) for row in FINALIZERS])
def test_finalizers_of_an_object_that_is_being_deleted(
    api: Api, held: str, resource: str, patch: Any, code: int
) -> None:
    """None can be added: 422 with the reason Forbidden in the cause, which means: it is being deleted."""
    answer = api.patch(held, patch, **({"type": JSON_PATCH} if isinstance(patch, list) else {}))
    if code == 200:
        answer.ok(200)
        return
    answer.refused(
        422,
        "Invalid",
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"contract.example/new"}',
    )
    assert set(answer.causes) == {("metadata.finalizers", "FieldValueForbidden")}  # custom objects say it twice


WRITES: list[tuple[str, Json]] = [
    ("labels", {"metadata": {"labels": {"a": "b"}}}),
    ("annotations", {"metadata": {"annotations": {"a": "b"}}}),
    ("owner", {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]}}),
]


@BOTH
@pytest.mark.parametrize("patch", [pytest.param(row[1], id=row[0]) for row in WRITES])
def test_an_object_that_is_being_deleted_can_be_written(api: Api, held: str, resource: str, patch: Json) -> None:
    api.patch(held, patch).ok(200)


def test_spec_and_status_can_be_written_while_deleting(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name, meta={"finalizers": [ONE]})
    path = at("widgets", ns, name)
    api.delete(path).ok(200)
    assert api.patch(path, {"spec": {"size": 5}}).ok(200)["spec"]["size"] == 5
    assert api.patch(f"{path}/status", {"status": {"phase": "p"}}).ok(200)["status"]["phase"] == "p"
    release(api, path)


@BOTH
def test_the_deletion_cannot_be_taken_back(api: Api, held: str, resource: str) -> None:
    """A patch or PUT that leaves deletionTimestamp out changes nothing about it."""
    before = api.get(held).ok(200)
    after = api.patch(held, {"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}}).ok(200)["metadata"]
    assert after["deletionTimestamp"] == before["metadata"]["deletionTimestamp"]
    put = {**before, "metadata": {k: v for k, v in before["metadata"].items() if k != "deletionTimestamp"}}
    put["metadata"]["resourceVersion"] = after["resourceVersion"]
    assert api.replace(held, put).ok(200)["metadata"]["deletionTimestamp"] == after["deletionTimestamp"]


@BOTH
def test_the_name_is_taken_until_the_last_finalizer_goes(
    api: Api, held: str, ns: str, name: str, resource: str
) -> None:
    """The refusal is the ordinary one, with a hint that it is being deleted."""
    path, _, _ = held.rpartition("/")
    body = api.get(held).ok(200)
    fresh = {**body, "metadata": {"name": name}}
    api.create(path, fresh).refused(409, "AlreadyExists", f'"{name}" already exists')
    api.patch(held, {"metadata": {"finalizers": None}}).ok(200)
    assert api.create(path, fresh).ok(201)["metadata"]["uid"] != body["metadata"]["uid"]


def test_a_put_with_the_last_finalizer_gone_ends_it(api: Api, ns: str, name: str) -> None:
    made = make(api, "configmaps", ns, name, meta={"finalizers": [ONE]})
    path = at("configmaps", ns, name)
    api.delete(path).ok(200)
    del made["metadata"]["resourceVersion"]
    made["metadata"]["finalizers"] = []
    api.replace(path, made).ok(200)
    api.get(path).refused(404, "NotFound")


def test_a_finalizer_that_is_taken_away_first_deletes_nothing(api: Api, ns: str, name: str) -> None:
    make(api, "configmaps", ns, name, meta={"finalizers": [ONE]})
    api.patch(at("configmaps", ns, name), {"metadata": {"finalizers": None}}).ok(200)
    api.get(at("configmaps", ns, name)).ok(200)


# ---------------------------------------------------------------- Pods


def pod(api: Api, ns: str, name: str, *, node: str = "", grace: int | None = None, **meta: Any) -> str:
    """The path of a Pod, bound to a node that does not exist where *node* is given."""
    spec: Json = {"containers": [CONTAINER]}
    if grace is not None:
        spec["terminationGracePeriodSeconds"] = grace
    if node:
        spec["nodeName"] = node
        spec["tolerations"] = [{"operator": "Exists"}]
    make(api, "pods", ns, name, spec=spec, meta=meta)
    return at("pods", ns, name)


PODS: list[tuple[str, str, int | None, Json | None, int | None]] = [
    # id, node, its terminationGracePeriodSeconds, delete options, grace of the deletion; None: it is gone at once
    ("free", "", None, None, None),
    ("free-with-grace", "", None, {"gracePeriodSeconds": 20}, None),
    ("bound", NODE, None, None, 30),
    ("bound-own-grace", NODE, 7, None, 7),
    ("bound-shorter", NODE, 7, {"gracePeriodSeconds": 2}, 2),
    ("bound-longer", NODE, 7, {"gracePeriodSeconds": 90}, 90),
    ("bound-now", NODE, None, {"gracePeriodSeconds": 0}, None),
    ("bound-own-grace-zero", NODE, 0, None, None),
]


@pytest.mark.parametrize(("node", "own", "options", "grace"), [pytest.param(*row[1:], id=row[0]) for row in PODS])
def test_a_pod_that_runs_is_deleted_with_grace(
    api: Api, ns: str, name: str, node: str, own: int | None, options: Json | None, grace: int | None
) -> None:
    path = pod(api, ns, name, node=node, grace=own)
    meta = api.delete(path, options).ok(200)["metadata"]
    if grace is None:
        assert api.get(path).code == 404
        return
    assert meta["deletionGracePeriodSeconds"] == grace
    assert meta["generation"] == 2
    assert api.get(path).ok(200)["metadata"] == meta
    api.delete(path, {"gracePeriodSeconds": 0}).ok(200)
    api.get(path).refused(404, "NotFound")


@pytest.mark.parametrize(
    ("second", "held"),
    [
        pytest.param(10, 10, id="shorter-counts"),
        pytest.param(300, 30, id="longer-does-not"),
        pytest.param(None, 30, id="none-given"),
    ],
)
def test_a_second_deletion_can_only_shorten_the_grace(
    api: Api, ns: str, name: str, second: int | None, held: int
) -> None:
    path = pod(api, ns, name, node=NODE)
    first = api.delete(path).ok(200)["metadata"]
    meta = api.delete(path, None if second is None else {"gracePeriodSeconds": second}).ok(200)["metadata"]
    assert meta["deletionGracePeriodSeconds"] == held
    assert (meta["deletionTimestamp"] < first["deletionTimestamp"]) == (held < 30)
    api.delete(path, {"gracePeriodSeconds": 0}).ok(200)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_gone_at_once(api: Api, ns: str, name: str, phase: str) -> None:
    path = pod(api, ns, name, node=NODE)
    api.patch(f"{path}/status", {"status": {"phase": phase}}).ok(200)
    api.delete(path).ok(200)
    assert api.get(path).code == 404


def test_the_grace_is_cut_to_zero_while_a_finalizer_holds_the_pod(api: Api, ns: str, name: str) -> None:
    path = pod(api, ns, name, node=NODE, finalizers=[ONE])
    assert api.delete(path).ok(200)["metadata"]["deletionGracePeriodSeconds"] == 30
    assert api.delete(path, {"gracePeriodSeconds": 0}).ok(200)["metadata"]["deletionGracePeriodSeconds"] == 0
    api.patch(path, {"metadata": {"finalizers": None}}).ok(200)
    assert api.get(path).code == 404


def test_finalizers_gone_before_the_grace_is_over_leave_the_pod(api: Api, ns: str, name: str) -> None:
    path = pod(api, ns, name, node=NODE, finalizers=[ONE])
    api.delete(path).ok(200)
    api.patch(path, {"metadata": {"finalizers": None}}).ok(200)
    assert api.get(path).ok(200)["metadata"]["deletionGracePeriodSeconds"] == 30
    api.delete(path, {"gracePeriodSeconds": 0}).ok(200)


# ---------------------------------------------------------------- options

OPTIONS: list[tuple[str, Json, int, str, str]] = [
    ("negative-grace", {"gracePeriodSeconds": -1}, 200, "", ""),
    ("propagation", {"propagationPolicy": "Nonsense"}, 422, "Invalid",
     'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Nonsense": supported values: '
     '"Foreground", "Background", "Orphan", "nil"'),
    ("both-ways", {"propagationPolicy": "Background", "orphanDependents": True}, 422, "Invalid",
     "orphanDependents and deletionPropagation cannot be both set"),
    ("dry-run", {"dryRun": ["Some"]}, 422, "Invalid", "dryRun: Unsupported value: "),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(
    ("options", "code", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in OPTIONS]
)
def test_delete_options(
    api: Api, ns: str, name: str, resource: str, options: Json, code: int, reason: str, message: str
) -> None:
    make(api, resource, ns, name)
    answer = api.delete(at(resource, ns, name), options)
    if code == 200:
        answer.ok(200)
    else:
        answer.refused(code, reason, message)
        api.get(at(resource, ns, name)).ok(200)


@BOTH
def test_delete_options_in_the_query(api: Api, ns: str, name: str, resource: str) -> None:
    make(api, resource, ns, name)
    path = at(resource, ns, name)
    api.delete(path, propagationPolicy="Nonsense").refused(422, "Invalid", "propagationPolicy")
    api.delete(path, gracePeriodSeconds="0", propagationPolicy="Background").ok(200)
    assert api.get(path).code == 404


@BOTH
def test_a_body_that_is_not_delete_options_is_400(api: Api, ns: str, name: str, resource: str) -> None:
    make(api, resource, ns, name)
    api.call("DELETE", at(resource, ns, name), {"kind": "Pod", "apiVersion": "v1"}).refused(400, "BadRequest")
    api.call("DELETE", at(resource, ns, name), b"{nope").refused(400, "BadRequest")
    api.get(at(resource, ns, name)).ok(200)
