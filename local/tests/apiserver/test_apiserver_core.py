"""The core: what every kind's create, update, patch and delete have in common."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.apiserver.plane import POD, Json, Plane

from kruntimes.local.apiserver import patches
from kruntimes.local.apiserver.api import Call, private
from kruntimes.local.apiserver.parts import APPLY_PATCH, MERGE_PATCH, Parts
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import StatusError
from kruntimes.local.apiserver.store import Event
from kruntimes.local.apiserver.strategy import DeleteOptions, Strategy

HELD = "example.com/held"


def with_patches(parts: Parts) -> None:
    """Merge patches."""
    parts.patches[MERGE_PATCH] = patches.merge_patch


@pytest.fixture
def plane() -> Plane:
    """With a ServiceAccount for Pods."""
    made = Plane(with_patches)
    made.make("serviceaccounts", "default")
    return made


def refusal(act: Callable[[], object]) -> StatusError:
    """How *act* is refused."""
    with pytest.raises(StatusError) as refused:
        act()
    return refused.value


def put(plane: Plane, plural: str, obj: Json, *, sub: str = "", call: Call | None = None) -> Json:
    """A PUT."""
    meta = obj["metadata"]
    resource = plane.of(plural)
    return plane.api.update(
        resource, meta.get("namespace", ""), meta["name"], private(obj), call or Call(), subresource=sub
    )[0]


def patch(plane: Plane, plural: str, name: str, change: Json, *, call: Call | None = None) -> Json:
    """A merge patch."""
    return plane.api.patch(plane.of(plural), "default", name, change, MERGE_PATCH, call or Call())[0]


def test_what_the_server_fills_in(plane: Plane) -> None:
    made = plane.make("configmaps", "a", data={"x": "1"})
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")
    meta = made["metadata"]
    assert (meta["namespace"], meta["creationTimestamp"]) == ("default", "2026-03-01T12:00:00Z")
    assert meta["uid"].endswith("-0000-4000-8000-000000000000")
    assert int(meta["resourceVersion"]) == plane.api.store.version
    assert plane.found("configmaps", "a") is made


def test_a_stored_object_is_never_changed(plane: Plane) -> None:
    made = plane.make("configmaps", "a", data={"x": "1"}, metadata={"labels": {"l": "1"}})
    before = private(made)
    patch(plane, "configmaps", "a", {"data": {"x": "2"}, "metadata": {"labels": {"l": "2"}}})
    put(plane, "configmaps", {**made, "metadata": {**made["metadata"], "resourceVersion": ""}, "data": {}})
    plane.remove("configmaps", "a")
    assert made == before


def test_versions_of_an_object_share_what_is_equal(plane: Plane) -> None:
    made = plane.make("configmaps", "a", data={"x": "large"})
    changed = patch(plane, "configmaps", "a", {"metadata": {"labels": {"l": "1"}}})
    assert changed is not made
    assert changed["data"] is made["data"]


@pytest.mark.parametrize(
    ("rest", "code", "message"),
    [
        ({"metadata": {"resourceVersion": "5"}}, 500, "resourceVersion should not be set on objects to be created"),
        ({"metadata": {"namespace": "other"}}, 400, "does not match the namespace sent on the request"),
        ({"metadata": {"name": ""}}, 422, "name or generateName is required"),
        ({"metadata": {"labels": 5}}, 400, "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels"),
        ({"data": {"x": 5}}, 400, "cannot unmarshal number into Go struct field ConfigMap.data of type string"),
    ],
)
def test_creates_that_are_refused(plane: Plane, rest: Json, code: int, message: str) -> None:
    refused = refusal(lambda: plane.make("configmaps", "a", **rest))
    assert (refused.code, message in refused.message) == (code, True), refused.message


def test_generated_names_are_drawn_again_where_they_are_taken(plane: Plane) -> None:
    drawn = iter(["aaaaa", "aaaaa", "bbbbb"])
    plane.api._suffix = lambda: next(drawn)
    names = [
        plane.make("configmaps", "", metadata={"generateName": "x-", "name": ""})["metadata"]["name"] for _ in "12"
    ]
    assert names == ["x-aaaaa", "x-bbbbb"]


def test_a_name_that_cannot_be_drawn_is_taken(plane: Plane) -> None:
    plane.api._suffix = lambda: "aaaaa"
    plane.make("configmaps", "", metadata={"generateName": "x-", "name": ""})
    refused = refusal(lambda: plane.make("configmaps", "", metadata={"generateName": "x-", "name": ""}))
    assert refused.reason == "AlreadyExists"


def test_a_namespace_must_be_there_and_open(plane: Plane) -> None:
    assert refusal(lambda: plane.make("configmaps", "a", namespace="nope")).message == 'namespaces "nope" not found'
    plane.make("namespaces", "ending")
    plane.remove("namespaces", "ending")
    refused = refusal(lambda: plane.make("configmaps", "a", namespace="ending"))
    assert (refused.code, refused.causes[0].reason) == (403, "NamespaceTerminating")


def test_a_dry_run_stores_nothing(plane: Plane) -> None:
    dry = Call(dry_run=True)
    version = plane.api.store.version
    maps = plane.of("configmaps")
    assert "resourceVersion" not in plane.api.create(maps, "default", {"metadata": {"name": "a"}}, dry)["metadata"]
    made = plane.make("configmaps", "a", metadata={"finalizers": [HELD]})
    assert refusal(lambda: plane.api.create(maps, "default", {"metadata": {"name": "a"}}, dry)).code == 409
    assert patch(plane, "configmaps", "a", {"data": {"x": "1"}}, call=dry)["data"] == {"x": "1"}
    plane.api.delete(maps, "default", "a", DeleteOptions(), dry)
    assert plane.found("configmaps", "a") == made
    assert plane.api.store.version == version + 1


def test_unknown_and_duplicate_fields(plane: Plane) -> None:
    def make(strictness: str) -> Call:
        call = Call(strictness=strictness, duplicates=["data.x"])
        plane.api.create(plane.of("configmaps"), "default", {"metadata": {"name": strictness.lower()}, "no": 1}, call)
        return call

    said = ['unknown field "no"', 'duplicate field "data.x"']
    assert make("Warn").warnings == said
    assert make("Ignore").warnings == []
    assert refusal(lambda: make("Strict")).message == (
        f'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: {", ".join(said)}'
    )
    assert "no" not in (plane.found("configmaps", "warn") or {})


# ---------------------------------------------------------------- updates


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"resourceVersion": "1"}, 409, "the object has been modified"),
        ({"resourceVersion": "x"}, 500, 'strconv.ParseUint: parsing "x"'),
        ({"uid": "other"}, 409, "Precondition failed: UID in precondition: other"),
        ({"deletionTimestamp": "2001-01-01T00:00:00Z"}, 422, "metadata.deletionTimestamp"),
        ({"finalizers": ["plain"]}, 422, "name is neither a standard finalizer name nor is it fully qualified"),
    ],
)
def test_puts_that_are_refused(plane: Plane, change: Json, code: int, message: str) -> None:
    made = plane.make("configmaps", "a")
    refused = refusal(lambda: put(plane, "configmaps", {**made, "metadata": {**made["metadata"], **change}}))
    assert (refused.code, message in refused.message) == (code, True), refused.message


def test_a_put_without_a_version_writes_over_any(plane: Plane) -> None:
    plane.make("configmaps", "a", data={"x": "1"})
    body = {"metadata": {"name": "a", "namespace": "default"}, "data": {"y": "2"}}
    assert put(plane, "configmaps", body)["data"] == {"y": "2"}


class Careful(Strategy):
    """Wants a version with each update, and takes any finalizer."""

    unconditional = False
    any_finalizer = True


def test_kinds_that_want_a_version(plane: Plane) -> None:
    maps = plane.of("configmaps")
    plane.api.strategies.put(maps, Careful(maps))
    plane.make("configmaps", "a")
    refused = refusal(lambda: put(plane, "configmaps", {"metadata": {"name": "a", "namespace": "default"}}))
    assert refused.code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused.message
    call = Call()
    patch(plane, "configmaps", "a", {"metadata": {"finalizers": ["plain"]}}, call=call)
    assert "prefer a domain-qualified finalizer name" in call.warnings[0]


@pytest.mark.parametrize("plural", ["leases", "services", "events", "roles"])
def test_a_put_makes_what_is_not_there_of_some_kinds(plane: Plane, plural: str) -> None:
    rest: dict[str, Json] = {
        "services": {"spec": {"ports": [{"port": 1}]}}, "events": {"involvedObject": {"namespace": "default"}},
    }  # fmt: skip
    body = {"metadata": {"name": "a", "namespace": "default"}, **rest.get(plural, {})}
    made, new = plane.api.update(plane.of(plural), "default", "a", body)
    assert new
    assert plane.found(plural, "a") == made


def test_of_other_kinds_it_is_not_there(plane: Plane) -> None:
    refused = refusal(lambda: put(plane, "configmaps", {"metadata": {"name": "a", "namespace": "default"}}))
    assert refused.code == 404


def test_what_is_put_right_in_silence(plane: Plane) -> None:
    made = plane.make("configmaps", "a")
    kept = patch(
        plane, "configmaps", "a",
        {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9, "selfLink": "x", "labels": {}}},
    )  # fmt: skip
    assert kept is made


def test_patches_that_do_not_fit(plane: Plane) -> None:
    plane.make("configmaps", "a")
    for change, code, message in (
        ({"metadata": {"name": "b"}}, 400, "the name of the object (b) does not match the name on the URL (a)"),
        ({"kind": "Secret"}, 422, "kind: Invalid value"),
        ({"data": "x"}, 422, "patch: Invalid value"),
        ({"metadata": "x"}, 400, "metadata must be an object"),
    ):
        refused = refusal(lambda change=change: patch(plane, "configmaps", "a", change))
        assert (refused.code, message in refused.message) == (code, True), refused.message


def test_media_types_of_patches(plane: Plane) -> None:
    maps = plane.of("configmaps")
    assert refusal(lambda: plane.api.patch(maps, "default", "a", {}, "text/plain")).code == 415
    assert refusal(lambda: plane.api.patch(maps, "default", "a", [], APPLY_PATCH)).code == 400
    assert refusal(lambda: plane.api.patch(maps, "default", "a", {}, APPLY_PATCH, subresource="status")).code == 404


def test_generations_count_the_spec_alone(plane: Plane) -> None:
    plane.make("pods", "p", spec=POD)
    resource = plane.of("pods")

    def change(edit: Callable[[Json], object], sub: str = "") -> int:
        def edited(obj: Json) -> Json:
            edit(obj)
            return obj

        return int(plane.api.change(resource, "default", "p", edited, subresource=sub)["metadata"]["generation"])

    assert change(lambda o: o["metadata"].update(labels={"a": "b"})) == 1
    assert change(lambda o: o["status"].update(phase="Running"), "status") == 1
    assert change(lambda o: o["status"].update(phase="Failed")) == 1
    assert change(lambda o: o["spec"].update(activeDeadlineSeconds=5)) == 2
    status = (plane.found("pods", "p") or {})["status"]["phase"]
    assert status == "Running", "the main resource does not write the status"


# ---------------------------------------------------------------- deletion


def watch(plane: Plane) -> list[Event]:
    """Every write from now on."""
    told: list[Event] = []
    plane.api.listen(told.append)
    return told


def test_finalizers_hold(plane: Plane) -> None:
    plane.make("configmaps", "a", metadata={"finalizers": [HELD]})
    told = watch(plane)
    maps = plane.of("configmaps")
    obj, gone = plane.api.delete(maps, "default", "a")
    assert not gone
    assert obj["metadata"]["deletionTimestamp"] == "2026-03-01T12:00:00Z"
    assert plane.api.delete(maps, "default", "a") == (obj, False)
    refused = refusal(lambda: patch(plane, "configmaps", "a", {"metadata": {"finalizers": [HELD, "a.b/c"]}}))
    assert "no new finalizers can be added if the object is being deleted" in refused.message
    last = patch(plane, "configmaps", "a", {"metadata": {"finalizers": None}})
    assert "finalizers" not in last["metadata"]
    assert plane.found("configmaps", "a") is None
    assert [e.type for e in told] == ["MODIFIED", "DELETED"]
    assert told[-1].object["metadata"]["finalizers"] == [HELD], "it goes as it was before the last write"


def test_the_deletion_cannot_be_taken_back(plane: Plane) -> None:
    plane.make("configmaps", "a", metadata={"finalizers": [HELD]})
    obj, _ = plane.api.delete(plane.of("configmaps"), "default", "a")
    kept = patch(
        plane, "configmaps", "a", {"metadata": {"deletionTimestamp": None, "deletionGracePeriodSeconds": None}}
    )
    assert kept is obj


@pytest.mark.parametrize(
    ("propagation", "finalizers"),
    [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"]), ("Background", None), (None, None)],
)
def test_propagation_is_a_finalizer(plane: Plane, propagation: str | None, finalizers: list[str] | None) -> None:
    plane.make("configmaps", "a")
    plane.api.delete(plane.of("configmaps"), "default", "a", DeleteOptions(propagation=propagation))
    found = plane.found("configmaps", "a")
    assert (found or {"metadata": {}})["metadata"].get("finalizers") == finalizers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DeleteOptions(uid="other"), "the UID in the precondition (other) does not match the UID in record"),
        (DeleteOptions(resource_version="1"), "the ResourceVersion in the precondition (1) does not match"),
    ],
)
def test_preconditions_of_a_deletion(plane: Plane, options: DeleteOptions, message: str) -> None:
    plane.make("configmaps", "a")
    refused = refusal(lambda: plane.api.delete(plane.of("configmaps"), "default", "a", options))
    assert (refused.code, message in refused.message) == (409, True)


GRACE: list[tuple[str, Json, int | None, int | None]] = [
    # id, what the Pod is beside a container, grace that is asked for, grace that it gets or None where it is gone
    ("nowhere", {}, None, None),
    ("nowhere-asked", {}, 20, None),
    ("bound", {"nodeName": "n"}, None, 30),
    ("bound-own", {"nodeName": "n", "terminationGracePeriodSeconds": 7}, None, 7),
    ("bound-asked", {"nodeName": "n", "terminationGracePeriodSeconds": 7}, 90, 90),
    ("bound-now", {"nodeName": "n"}, 0, None),
    ("bound-negative", {"nodeName": "n"}, -1, 1),
]


@pytest.mark.parametrize(("spec", "asked", "given"), [pytest.param(*row[1:], id=row[0]) for row in GRACE])
def test_the_grace_of_a_pod(plane: Plane, spec: Json, asked: int | None, given: int | None) -> None:
    plane.make("pods", "p", spec={**POD, **spec})
    obj, gone = plane.api.delete(plane.of("pods"), "default", "p", DeleteOptions(grace_seconds=asked))
    assert gone == (given is None)
    assert obj["metadata"].get("deletionGracePeriodSeconds") == given


def test_the_grace_only_gets_shorter(plane: Plane) -> None:
    plane.make("pods", "p", spec={**POD, "nodeName": "n"})
    pods = plane.of("pods")

    def delete(grace: int | None) -> tuple[int, str]:
        meta = plane.api.delete(pods, "default", "p", DeleteOptions(grace_seconds=grace))[0]["metadata"]
        return meta["deletionGracePeriodSeconds"], meta["deletionTimestamp"]

    assert delete(None) == (30, "2026-03-01T12:00:30Z")
    plane.pass_time(5)
    assert delete(300) == (30, "2026-03-01T12:00:30Z")
    assert delete(10) == (10, "2026-03-01T12:00:10Z"), "counted from the first deletion"
    assert delete(0)[0] == 10
    assert plane.found("pods", "p") is None


def test_a_collection_is_deleted_by_what_is_selected(plane: Plane) -> None:
    for i in range(4):
        plane.make("configmaps", f"a{i}", metadata={"labels": {"odd": str(i % 2)}})
    odd = plane.api.delete_each(
        plane.of("configmaps"), "default", lambda obj: obj["metadata"].get("labels", {}).get("odd") == "1"
    )
    gone = [next(odd)]
    plane.make("configmaps", "a5", metadata={"labels": {"odd": "1"}})
    gone += odd
    assert [obj["metadata"]["name"] for obj in gone] == ["a1", "a3"]
    assert [obj["metadata"]["name"] for obj in plane.all("configmaps", "default")] == ["a0", "a2", "a5"]


def test_what_somebody_else_deleted_meanwhile_is_passed_over(plane: Plane) -> None:
    for name in "abc":
        plane.make("configmaps", name)
    deleting = plane.api.delete_each(plane.of("configmaps"), "default", lambda obj: True)
    next(deleting)
    plane.remove("configmaps", "b")
    assert [obj["metadata"]["name"] for obj in deleting] == ["c"]


def test_a_listener_can_go(plane: Plane) -> None:
    told: list[Event] = []
    end = plane.api.listen(told.append)
    plane.make("configmaps", "a")
    end()
    plane.make("configmaps", "b")
    assert [e.object["metadata"]["name"] for e in told] == ["a"]


def test_another_version_shows_the_same_object(plane: Plane) -> None:
    """Versions of a custom kind differ in name alone."""
    rest: dict[str, Any] = {"group": "e.x", "plural": "things", "singular": "thing", "kind": "Thing"}
    one, two = (Resource(version=v, namespaced=True, custom=True, **rest) for v in ("v1", "v2"))
    plane.api.resources.add(one)
    plane.api.resources.add(two)
    made = plane.api.create(one, "default", {"metadata": {"name": "a"}, "spec": {}})
    assert one.shows(made) is made
    assert two.shows(made) == {**made, "apiVersion": "e.x/v2"}
    assert plane.api.resources.groups()["e.x"] == ("v2", "v1")
    assert plane.api.get(two, "default", "a") is made
    changed, _ = plane.api.patch(two, "default", "a", {"spec": {"x": 1}}, MERGE_PATCH)
    assert (changed["apiVersion"], changed["spec"]) == ("e.x/v1", {"x": 1})
