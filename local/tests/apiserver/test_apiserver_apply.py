"""Who owns which field: sets of fields, what writes take over, and apply with what it refuses."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.local.apiserver.ownership.apply import LAST_APPLIED, FieldOwnership
from kruntimes.local.apiserver.ownership.fields import decoded, encoded, of_value, shown
from kruntimes.local.apiserver.ownership.merging import merge
from kruntimes.local.apiserver.ownership.places import Place, built_in, of_resource
from kruntimes.local.apiserver.resources import BUILT_IN, Resource
from kruntimes.local.apiserver.schema.structural import read
from kruntimes.local.apiserver.status import StatusError

Json = dict[str, Any]

PLACE = of_resource(
    read(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer"},
                        "map": {"type": "object", "additionalProperties": {"type": "string"}},
                        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {}},
                        "list": {"type": "array", "items": {"type": "integer"}},
                        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                        "parts": {
                            "type": "array",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["name", "kind"],
                            "items": {
                                "type": "object",
                                "properties": {
                                    "name": {"type": "string"},
                                    "kind": {"type": "string", "default": "k"},
                                    "n": {"type": "integer"},
                                },
                            },
                        },
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                },
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
            },
        }
    )
)
THING = Resource(
    group="x.example", version="v1", plural="things", singular="thing", kind="Thing", namespaced=True, custom=True,
    subresources=("status",),
)  # fmt: skip
OWNERSHIP = FieldOwnership(lambda resource: PLACE if resource is THING else built_in(resource.kind))
CONFIG_MAP = next(r for r in BUILT_IN if r.kind == "ConfigMap")


def thing(spec: Json | None = None, **more: Any) -> Json:
    body: Json = {"apiVersion": "x.example/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "default"}}
    return body | ({} if spec is None else {"spec": spec}) | more


def apply(
    patch: Json, old: Json | None, manager: str, *, force: bool = False, sub: str = "", at: str = "2026-01-01T00:00:00Z"
) -> Json:
    kept = copy.deepcopy(old)
    done = OWNERSHIP.applied(
        THING, copy.deepcopy(patch), old, manager=manager, force=force, subresource=sub, timestamp=at
    )
    assert old == kept, "what is stored must not be changed"
    return done


def write(new: Json, old: Json | None, manager: str, *, sub: str = "") -> Json:
    return OWNERSHIP.written(
        THING, copy.deepcopy(new), old, manager=manager, subresource=sub, timestamp="2026-02-01T00:00:00Z"
    )


def owned(obj: Json) -> dict[str, Json]:
    return {
        f"{e['manager']}:{e['operation']}{e.get('subresource', '')}": e["fieldsV1"]
        for e in obj["metadata"].get("managedFields", [])
    }


SETS: list[tuple[Json, Json]] = [
    ({"spec": {"size": 1}}, {"f:spec": {"f:size": {}}}),
    ({"spec": {"map": {"a": "1"}}}, {"f:spec": {"f:map": {"f:a": {}}}}),
    ({"spec": {"map": {}}}, {"f:spec": {"f:map": {}}}),
    ({"spec": {"whole": {"a": 1}}}, {"f:spec": {"f:whole": {}}}),
    ({"spec": {"list": [1, 2]}}, {"f:spec": {"f:list": {}}}),
    ({"spec": {"set": ["a"]}}, {"f:spec": {"f:set": {'v:"a"': {}}}}),
    (
        {"spec": {"parts": [{"name": "a", "n": 1}]}},
        {"f:spec": {"f:parts": {'k:{"kind":"k","name":"a"}': {".": {}, "f:name": {}, "f:n": {}}}}},
    ),
    ({"spec": {"free": {"x": {"y": [1]}}}}, {"f:spec": {"f:free": {"f:x": {".": {}, "f:y": {}}}}}),
    ({"spec": None}, {"f:spec": {}}),
]


@pytest.mark.parametrize(("value", "fields"), SETS)
def test_fields_of_a_value(value: Json, fields: Json) -> None:
    found = of_value(value, PLACE)
    assert encoded(found) == fields
    assert decoded(fields) == found


PATHS = st.lists(st.sampled_from(["f:a", "f:b", 'v:"x"', 'k:{"n":1}', "i:0"]), min_size=1, max_size=4).map(tuple)


@given(st.frozensets(PATHS, max_size=12))
def test_sets_of_fields_are_read_as_they_are_written(fields: frozenset[tuple[str, ...]]) -> None:
    assert decoded(encoded(fields)) == fields


@pytest.mark.parametrize("raw", [[], "x", {"f:a": 1}, {"a": {}}, {"x:a": {}}])
def test_what_is_no_set_of_fields(raw: object) -> None:
    with pytest.raises(ValueError):
        decoded(raw)


def test_paths_as_people_read_them() -> None:
    path = ("f:spec", "f:parts", 'k:{"kind":"k","name":"a"}', "f:n")
    assert shown(path) == '.spec.parts[kind="k",name="a"].n'
    assert shown(("f:spec", "f:set", 'v:"a"')) == '.spec.set[="a"]'


# ---------------------------------------------------------------- writes


def test_a_creator_owns_what_it_wrote_and_what_holds_it() -> None:
    made = write(thing({"map": {"a": "1"}}), None, "editor")
    assert owned(made) == {"editor:Update": {"f:spec": {".": {}, "f:map": {".": {}, "f:a": {}}}}}


def test_a_writer_owns_what_it_changed_and_loses_what_it_removed() -> None:
    made = write(thing({"size": 1, "map": {"a": "1", "b": "2"}}), None, "one")
    changed = write({**made, "spec": {"size": 2, "map": {"b": "2"}}}, made, "two")
    assert owned(changed)["two:Update"] == {"f:spec": {"f:size": {}}}
    assert owned(changed)["one:Update"] == {"f:spec": {".": {}, "f:map": {".": {}, "f:b": {}}}}
    assert changed["metadata"]["managedFields"][-1]["time"] == "2026-02-01T00:00:00Z"


def test_a_write_that_changes_nothing_changes_no_owner() -> None:
    made = write(thing({"size": 1}), None, "one")
    assert write(made, made, "two")["metadata"]["managedFields"] == made["metadata"]["managedFields"]


def test_the_status_is_owned_at_its_own_door() -> None:
    made = write(thing({"size": 1}, status={"phase": "ignored"}), None, "one")
    assert owned(made) == {"one:Update": {"f:spec": {".": {}, "f:size": {}}}}
    del made["status"]
    done = write({**made, "status": {"phase": "p"}, "spec": {"size": 9}}, made, "two", sub="status")
    assert owned(done)["two:Updatestatus"] == {"f:status": {".": {}, "f:phase": {}}}


def test_managed_fields_may_be_written_and_forgotten() -> None:
    made = write(thing({"size": 1}), None, "one")
    entry = {**made["metadata"]["managedFields"][0], "manager": "other"}
    given = {**made, "metadata": {**made["metadata"], "managedFields": [entry]}}
    assert set(owned(write(given, made, "two"))) == {"other:Update"}
    for reset in ([], [{}]):
        cleared = write({**made, "metadata": {**made["metadata"], "managedFields": reset}}, made, "two")
        assert "managedFields" not in cleared["metadata"]
        assert "managedFields" not in write({**cleared, "spec": {"size": 2}}, cleared, "two")["metadata"]
    # What cannot be read, and any of it at a subresource, is passed over.
    bad = {**made, "metadata": {**made["metadata"], "managedFields": [{"manager": "x"}]}}
    assert set(owned(write(bad, made, "two"))) == {"one:Update"}


def test_many_writers_are_put_together() -> None:
    obj = write(thing({"map": {"k0": "1"}}), None, "writer-0")
    for i in range(1, 15):
        obj = write({**obj, "spec": {"map": {**obj["spec"]["map"], f"k{i}": "1"}}}, obj, f"writer-{i}")
    found = owned(obj)
    assert len(found) == 10
    assert {f"f:k{i}" for i in range(15)} <= {k for f in found.values() for k in f["f:spec"]["f:map"]}
    assert "ancient-changes:Update" in found


# ---------------------------------------------------------------- apply


def test_apply_creates_merges_and_gives_up() -> None:
    made = apply(thing({"size": 1, "map": {"a": "1"}, "set": ["x"]}), None, "one")
    assert owned(made) == {"one:Apply": {"f:spec": {"f:size": {}, "f:map": {"f:a": {}}, "f:set": {'v:"x"': {}}}}}
    both = apply(thing({"map": {"b": "2"}, "set": ["y"]}), made, "two")
    assert both["spec"] == {"size": 1, "map": {"a": "1", "b": "2"}, "set": ["x", "y"]}
    less = apply(thing({"size": 1}), both, "one")
    assert less["spec"] == {"size": 1, "map": {"b": "2"}, "set": ["y"]}
    gone = apply(thing({}), apply(thing({"size": 1}), less, "two"), "one")
    assert gone["spec"] == {"size": 1}
    assert "spec" not in apply(thing(), gone, "two")


def test_applying_again_changes_nothing() -> None:
    made = apply(thing({"size": 1, "parts": [{"name": "a"}]}), None, "one")
    assert apply(thing({"size": 1, "parts": [{"name": "a"}]}), made, "one", at="2026-05-05T00:00:00Z") == made


def test_conflicts_are_told_by_manager_and_field() -> None:
    made = apply(thing({"size": 1, "parts": [{"name": "a", "n": 1}]}), None, "one")
    made = write({**made, "spec": {**made["spec"], "list": [1]}}, made, "editor")
    with pytest.raises(StatusError) as refused:
        apply(thing({"size": 2, "parts": [{"name": "a", "n": 2}], "list": [2]}), made, "two")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert refused.value.message == (
        'Apply failed with 3 conflicts: conflicts with "editor" using x.example/v1:\n- .spec.list\n'
        'conflicts with "one":\n- .spec.parts[kind="k",name="a"].n\n- .spec.size'
    )
    assert [c.field for c in refused.value.causes] == [".spec.list", '.spec.parts[kind="k",name="a"].n', ".spec.size"]
    assert {c.reason for c in refused.value.causes} == {"FieldManagerConflict"}
    forced = apply(thing({"size": 2, "parts": [{"name": "a", "n": 2}], "list": [2]}), made, "two", force=True)
    assert forced["spec"] == {"size": 2, "parts": [{"name": "a", "n": 2}], "list": [2]}
    assert owned(forced)["one:Apply"] == {"f:spec": {"f:parts": {'k:{"kind":"k","name":"a"}': {".": {}, "f:name": {}}}}}
    assert "editor:Update" not in owned(forced)


def test_the_same_value_is_no_conflict() -> None:
    made = apply(thing({"size": 1}), None, "one")
    assert set(owned(apply(thing({"size": 1}), made, "two"))) == {"one:Apply", "two:Apply"}


def test_what_no_one_owned_belongs_to_those_before() -> None:
    bare = thing({"size": 1})
    with pytest.raises(StatusError, match='conflict with "before-first-apply" using x'):
        apply(thing({"size": 2}), bare, "one")


def test_kubectl_may_take_over_its_own_client_side_apply() -> None:
    last = (
        '{"apiVersion":"x.example/v1","kind":"Thing","metadata":{"name":"t","namespace":"default"},"spec":{"size":1}}'
    )
    body = thing({"size": 1})
    body["metadata"]["annotations"] = {LAST_APPLIED: last}
    made = write(body, None, "kubectl-client-side-apply")
    done = apply(thing({"size": 2}), made, "kubectl")
    assert done["spec"] == {"size": 2}
    assert '"size":2' in done["metadata"]["annotations"][LAST_APPLIED]
    touched = write({**made, "spec": {"size": 5}}, made, "editor")
    with pytest.raises(StatusError, match="conflict with"):
        apply(thing({"size": 2}), touched, "kubectl")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"nope": 1}, ".spec.nope: field not declared in schema"),
        ({"size": "x"}, ".spec.size: expected numeric"),
        ({"map": []}, ".spec.map: expected map"),
        ({"parts": {}}, ".spec.parts: expected list"),
        ({"set": ["a", "a"]}, '.spec.set: duplicate entries for key [="a"]'),
        ({"parts": [{"name": "a"}, {"name": "a", "kind": "k"}]}, 'duplicate entries for key [kind="k",name="a"]'),
    ],
)
def test_what_does_not_fit_the_schema(spec: Json, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        apply(thing(spec), None, "one")
    assert (refused.value.code, refused.value.reason) == (500, "")
    assert message in refused.value.message


def test_what_an_apply_may_not_bring() -> None:
    body = thing({"size": 1})
    for change in ({"metadata": {"name": "t", "managedFields": []}}, {"kind": "Other"}, {"kind": ""}):
        with pytest.raises(StatusError) as refused:
            apply({**body, **change}, None, "one")
        assert refused.value.code == 400


def test_built_in_kinds_have_their_own_keys() -> None:
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "containers": [{"name": "a", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}],
            "nodeSelector": {"x": "y"},
            "tolerations": [{"key": "k"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    found = encoded(of_value(body, built_in("Pod")))
    port, env = 'k:{"containerPort":80,"protocol":"TCP"}', 'k:{"name":"A"}'
    assert found["f:spec"] == {
        "f:containers": {
            'k:{"name":"a"}': {
                ".": {},
                "f:name": {},
                "f:ports": {port: {".": {}, "f:containerPort": {}}},
                "f:env": {env: {".": {}, "f:name": {}, "f:value": {}}},
            }
        },
        "f:nodeSelector": {},
        "f:tolerations": {},
    }
    assert found["f:status"] == {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}, "f:status": {}}}}


# ---------------------------------------------------------------- merging of lists

KEYED = Place(kind="keyed", of=Place(kind="map", of=Place(kind="leaf")), keys=(("name", None),))


def items(names: str) -> list[Json]:
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("live", "config", "expected"),
    [
        ("abc", "", "abc"),
        ("", "abc", "abc"),
        ("abc", "d", "abcd"),
        ("abc", "ca", "bca"),
        ("abc", "xby", "axbcy"),
        ("abcd", "db", "acdb"),
        ("ab", "ba", "ba"),
    ],
)
def test_the_order_of_merged_lists(live: str, config: str, expected: str) -> None:
    merged = merge(items(live), items(config), KEYED)
    assert "".join(item["name"] for item in merged) == expected


@given(st.permutations("abcde"), st.permutations("cdefg"), st.integers(0, 5), st.integers(0, 5))
def test_merged_lists_hold_everything_once_and_keep_the_order_of_the_configuration(
    live: list[str], config: list[str], i: int, j: int
) -> None:
    live, config = live[:i], config[:j]
    merged = [item["name"] for item in merge(items("".join(live)), items("".join(config)), KEYED)]
    assert sorted(merged) == sorted(set(live) | set(config))
    assert [name for name in merged if name in config] == config


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "size": st.integers(0, 2),
        "map": st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"), min_size=1, max_size=2),
        "list": st.lists(st.integers(0, 2), max_size=2),
        "set": st.lists(st.sampled_from("abc"), unique=True, min_size=1, max_size=3),
        "parts": st.lists(st.sampled_from("ab"), unique=True, min_size=1, max_size=2).map(items),
    },
).filter(bool)


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), SPECS), min_size=1, max_size=5))
def test_what_was_applied_last_stands_and_applying_it_again_changes_nothing(steps: list[tuple[str, Json]]) -> None:
    obj: Json | None = None
    for manager, spec in steps:
        obj = apply(thing(spec), obj, manager, force=True)
        assert apply(thing(spec), obj, manager) == obj
        for key, value in spec.items():
            if key in ("size", "list"):
                assert obj["spec"][key] == value
    assert obj is not None
    for manager in ("one", "two"):
        obj = apply(thing(), obj, manager, force=True)
    assert not obj.get("spec")
    assert "managedFields" not in obj["metadata"]
