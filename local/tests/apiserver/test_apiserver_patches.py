"""JSON patch, merge patch and strategic merge patch: what they make of a document, and that they leave it alone."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.local.apiserver.patches import NotApplicable, json_patch, merge_patch, merged, operate
from kruntimes.local.apiserver.resources import BUILT_IN
from kruntimes.local.apiserver.status import StatusError
from kruntimes.local.apiserver.strategic import strategic_patch

Json = dict[str, Any]
POD = next(r for r in BUILT_IN if r.kind == "Pod")

DOCUMENT: Json = {"a": {"b": [1, {"c": "x"}, 3]}, "s": "t", "n": None, "": 1, "x/y~z": 2}

APPLIES: list[tuple[Json, object]] = [
    # operation, and what stands at its path after it
    ({"op": "add", "path": "/new", "value": {"k": [1]}}, {"k": [1]}),
    ({"op": "add", "path": "/s", "value": 5}, 5),
    ({"op": "add", "path": "/a/b/0", "value": 0}, 0),
    ({"op": "add", "path": "/a/b/3", "value": 4}, 4),
    ({"op": "add", "path": "/a/b/1/d", "value": True}, True),
    ({"op": "add", "path": "/x~1y~0z", "value": 3}, 3),
    ({"op": "add", "path": "/", "value": 9}, 9),
    ({"op": "replace", "path": "/a/b/1", "value": "r"}, "r"),
    ({"op": "replace", "path": "/a/b/-1", "value": "last"}, "last"),
    ({"op": "replace", "path": "/missing", "value": 1}, 1),
    ({"op": "copy", "from": "/a/b", "path": "/c"}, [1, {"c": "x"}, 3]),
    ({"op": "move", "from": "/a/b/0", "path": "/first"}, 1),
]


def at(document: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


@pytest.mark.parametrize(("op", "value"), APPLIES)
def test_json_patch(op: Json, value: object) -> None:
    before = copy.deepcopy(DOCUMENT)
    assert at(operate(DOCUMENT, [op]), op["path"]) == value
    assert before == DOCUMENT


def test_json_patch_at_the_end_and_at_the_root() -> None:
    assert operate({"l": [1]}, [{"op": "add", "path": "/l/-", "value": 2}]) == {"l": [1, 2]}
    assert operate({"l": [1, 2]}, [{"op": "remove", "path": "/l/-1"}]) == {"l": [1]}
    assert operate({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}]) == {"b": 2}


@pytest.mark.parametrize(
    "op",
    [
        {"op": "remove", "path": "/missing"},
        {"op": "remove", "path": "/a/b/3"},
        {"op": "remove", "path": "/a/b/-4"},
        {"op": "remove", "path": "/a/b/x"},
        {"op": "remove", "path": "/a/b/0x1"},
        {"op": "remove", "path": ""},
        {"op": "add", "path": "/missing/deep", "value": 1},
        {"op": "add", "path": "/s/deep", "value": 1},
        {"op": "add", "path": "/a/b/4", "value": 1},
        {"op": "add", "path": "no-slash", "value": 1},
        {"op": "add", "value": 1},
        {"op": "move", "from": "/missing", "path": "/c"},
        {"op": "move", "path": "/c"},
        {"op": "test", "path": "/s", "value": "other"},
        {"op": "test", "path": "/a/b/0", "value": True},
        {"op": "test", "path": "/missing", "value": "x"},
        {"op": "nope", "path": "/s"},
        {"path": "/s"},
    ],
)
def test_json_patch_that_does_not_apply(op: Json) -> None:
    with pytest.raises(NotApplicable):
        operate(DOCUMENT, [op])
    with pytest.raises(StatusError) as refused:
        json_patch(POD, DOCUMENT, [{"op": "add", "path": "/z", "value": 1}, op])
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert refused.value.message == "the server rejected our request due to an error in our request"


@pytest.mark.parametrize("value", [{"c": "x"}, None])
def test_json_patch_tests_values_whole(value: object) -> None:
    path = "/a/b/1" if value else "/n"
    assert operate(DOCUMENT, [{"op": "test", "path": path, "value": value}]) == DOCUMENT
    # As in the real server, a member that is not there tests as null.
    assert operate(DOCUMENT, [{"op": "test", "path": "/missing", "value": None}]) == DOCUMENT


def test_json_patch_cannot_blow_up_a_document() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{i}"} for i in range(40)]
    with pytest.raises(NotApplicable):
        operate({"a": {"x": "y" * 1000}}, doubling)


def test_json_patch_has_a_bound() -> None:
    with pytest.raises(StatusError) as refused:
        json_patch(POD, {}, [{"op": "test", "path": "/x", "value": None}] * 10_001)
    assert refused.value.code == 413


STEPS = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "-1", "x"]), min_size=1, max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
    max_leaves=8,
)
OPERATIONS = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
        "path": STEPS.map(lambda s: "/" + "/".join(s)),
        "from": STEPS.map(lambda s: "/" + "/".join(s)),
        "value": VALUES,
    }
)


@given(VALUES, st.lists(OPERATIONS, max_size=6))
def test_json_patch_changes_nothing_that_it_is_given(document: Any, operations: list[Json]) -> None:
    before, ops = copy.deepcopy(document), copy.deepcopy(operations)
    try:
        operate(document, operations)
    except NotApplicable:
        pass
    finally:
        assert (document, operations) == (before, ops)


# ---------------------------------------------------------------- merge patch

MERGES: list[tuple[Json, Json, Json]] = [
    # RFC 7386, appendix A, as far as both are objects
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({"a": "foo"}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("document", "patch", "expected"), MERGES)
def test_merge_patch(document: Json, patch: Json, expected: Json) -> None:
    before = copy.deepcopy(document)
    assert merged(document, patch) == expected
    assert document == before


@given(st.dictionaries(st.sampled_from("abx"), VALUES), st.dictionaries(st.sampled_from("abx"), VALUES))
def test_merging_twice_changes_nothing_more(document: Json, patch: Json) -> None:
    once = merged(document, patch)
    assert merged(once, patch) == once


@pytest.mark.parametrize("patch", [[], "x", None, 1])
def test_a_patch_that_is_no_object_is_refused(patch: object) -> None:
    for apply in (merge_patch, strategic_patch):
        with pytest.raises(StatusError) as refused:
            apply(POD, {}, patch)
        assert refused.value.code == 400


# ---------------------------------------------------------------- strategic merge patch

LIVE: Json = {
    "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["f"]},
    "spec": {
        "containers": [
            {"name": "one", "image": "i", "env": [{"name": "A", "value": "1"}], "args": ["x"]},
            {"name": "two", "image": "j"},
        ],
        "tolerations": [{"key": "k"}],
    },
}


def container(name: str, **fields: object) -> Json:
    return {"name": name, **fields}


STRATEGIC: list[tuple[str, Json, str, object]] = [
    # id, patch, pointer, and what stands there after it
    ("by-key", {"spec": {"containers": [container("two", image="k")]}}, "/spec/containers/1/image", "k"),
    ("others-stay", {"spec": {"containers": [container("two", image="k")]}}, "/spec/containers/0/image", "i"),
    ("new-item", {"spec": {"containers": [container("three")]}}, "/spec/containers/0", {"name": "three"}),
    ("order-of-the-patch", {"spec": {"containers": [container("two"), container("one")]}}, "/spec/containers/0/name",
     "two"),
    ("in-depth", {"spec": {"containers": [container("one", env=[{"name": "B"}])]}}, "/spec/containers/0/env",
     [{"name": "B"}, {"name": "A", "value": "1"}]),
    ("plain-list", {"spec": {"containers": [container("one", args=["y"])]}}, "/spec/containers/0/args", ["y"]),
    ("no-key", {"spec": {"tolerations": [{"key": "l"}]}}, "/spec/tolerations", [{"key": "l"}]),
    ("delete-item", {"spec": {"containers": [{"$patch": "delete", "name": "one"}]}}, "/spec/containers",
     [{"name": "two", "image": "j"}]),
    ("replace-list", {"spec": {"containers": [container("four"), {"$patch": "replace"}]}}, "/spec/containers",
     [{"name": "four"}]),
    ("replace-map", {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}, "/metadata/labels", {"c": "3"}),
    ("delete-map", {"metadata": {"labels": {"$patch": "delete"}}}, "/metadata/labels", {}),
    ("retain-keys", {"metadata": {"labels": {"$retainKeys": ["b", "c"], "c": "3"}}}, "/metadata/labels",
     {"b": "2", "c": "3"}),
    ("set", {"metadata": {"finalizers": ["g", "f"]}}, "/metadata/finalizers", ["g", "f"]),
    ("out-of-set", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["f"]}}, "/metadata/finalizers", []),
    ("order", {"spec": {"$setElementOrder/containers": [{"name": "two"}, {"name": "one"}]}}, "/spec/containers/0/name",
     "two"),
    ("null", {"metadata": {"labels": {"a": None}}}, "/metadata/labels", {"b": "2"}),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "pointer", "value"), [pytest.param(*row[1:], id=row[0]) for row in STRATEGIC])
def test_strategic_merge_patch(patch: Json, pointer: str, value: object) -> None:
    before = copy.deepcopy(LIVE)
    assert at(strategic_patch(POD, LIVE, patch), pointer) == value
    assert before == LIVE


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [{"image": "i"}]}},
        {"spec": {"containers": ["one"]}},
        {"metadata": {"labels": {"$patch": "nope"}}},
    ],
)
def test_strategic_merge_patch_that_cannot_be(patch: Json) -> None:
    with pytest.raises(StatusError) as refused:
        strategic_patch(POD, LIVE, patch)
    assert refused.value.code == 400
