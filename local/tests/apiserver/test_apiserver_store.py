"""The store: versions, preconditions, history, and that a watcher who replays it holds what is there."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kruntimes.local.apiserver.resources import Resource, Resources
from kruntimes.local.apiserver.status import StatusError
from kruntimes.local.apiserver.store import Event, Store

Json = dict[str, Any]
NAMES = ("a", "b", "c")


def config_maps() -> Resource:
    """A resource to store."""
    found = Resources.built_in().find("", "v1", "configmaps")
    assert found is not None
    return found


MAPS = config_maps()


def obj(name: str, **rest: Any) -> Json:
    """An object as the core hands it over."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n", "uid": name}, **rest}


def store(**options: Any) -> Store:
    """An empty one."""
    return Store(size=lambda obj: 100, **options)


def test_each_write_takes_the_next_version() -> None:
    held = store()
    versions = [int(held.create(MAPS, obj(name))["metadata"]["resourceVersion"]) for name in NAMES]
    assert versions == [2, 3, 4]
    assert held.version == 4
    assert int(held.remove(MAPS, "n", "a")["metadata"]["resourceVersion"]) == 5


def test_a_write_that_changes_nothing_is_none() -> None:
    held = store()
    made = held.create(MAPS, obj("a", data={"x": "1"}))
    assert held.replace(MAPS, obj("a", data={"x": "1"}), expect=None) is made
    assert held.version == 2
    assert held.replace(MAPS, obj("a", data={"x": "2"}), expect=None) is not made


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        pytest.param(lambda s: s.create(MAPS, obj("a")), "AlreadyExists", id="create-again"),
        pytest.param(lambda s: s.replace(MAPS, obj("a"), expect="1"), "Conflict", id="old-version"),
        pytest.param(lambda s: s.replace(MAPS, obj("z"), expect=None), "NotFound", id="replace-nothing"),
        pytest.param(lambda s: s.remove(MAPS, "n", "z"), "NotFound", id="remove-nothing"),
        pytest.param(lambda s: s.get(MAPS, "n", "z"), "NotFound", id="get-nothing"),
        pytest.param(lambda s: s.vacant(MAPS, obj("a")), "AlreadyExists", id="not-vacant"),
    ],
)
def test_what_is_refused(act: Any, reason: str) -> None:
    held = store()
    held.create(MAPS, obj("a", data={}))
    with pytest.raises(StatusError) as refused:
        act(held)
    assert refused.value.reason == reason
    assert held.version == 2


def test_the_history_is_bounded_by_events_and_by_bytes() -> None:
    for held in (store(history_events=3), store(history_bytes=300)):
        for i in range(10):
            held.create(MAPS, obj(f"x{i}"))
        assert held.usage() == {"objects": 10, "history_events": 3, "history_bytes": 300}
        assert [e.version for e in held.events(MAPS.key, held.compacted)] == [9, 10, 11]
        with pytest.raises(StatusError) as refused:
            list(held.events(MAPS.key, held.compacted - 1))
        assert (refused.value.code, refused.value.reason) == (410, "Expired")
        with pytest.raises(StatusError):
            held.list_at(MAPS.key, "n", 3)


def test_an_earlier_life_is_too_old() -> None:
    held = store(first_version=1000)
    assert list(held.events(MAPS.key, 1000)) == []
    with pytest.raises(StatusError) as refused:
        list(held.events(MAPS.key, 999))
    assert refused.value.message == "too old resource version: 999 (1000)"


def test_compaction_on_demand() -> None:
    held = store()
    held.create(MAPS, obj("a"))
    held.compact()
    assert list(held.events(MAPS.key, held.version)) == []
    with pytest.raises(StatusError):
        list(held.events(MAPS.key, held.version - 1))


Step = tuple[str, str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "replace", "remove"]), st.sampled_from(NAMES), st.integers(0, 2)), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.data())
def test_who_replays_the_history_holds_what_is_there(steps: list[Step], data: st.DataObject) -> None:
    """From any version, and `list_at` shows each version as it was."""
    told: list[Event] = []
    held = store(on_write=told.append)
    moments: dict[int, list[Json]] = {held.version: []}
    for kind, name, value in steps:
        try:
            if kind == "create":
                held.create(MAPS, obj(name, data={"v": str(value)}))
            elif kind == "replace":
                held.replace(MAPS, obj(name, data={"v": str(value)}), expect=None)
            else:
                held.remove(MAPS, "n", name)
        except StatusError:
            continue
        moments[held.version] = held.list(MAPS.key)
    for version, shown in moments.items():
        assert held.list_at(MAPS.key, None, version) == shown
    since = data.draw(st.sampled_from(sorted(moments)))
    copy = {o["metadata"]["name"]: o for o in moments[since]}
    for event in held.events(MAPS.key, since):
        assert event in told
        name = event.object["metadata"]["name"]
        if event.type == "DELETED":
            del copy[name]
        else:
            assert (name in copy) == (event.type == "MODIFIED")
            copy[name] = event.object
    assert copy == {o["metadata"]["name"]: o for o in held.list(MAPS.key)}


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(("m", "m0", "n")), st.sampled_from(NAMES)), max_size=40))
def test_lists_are_in_order_whatever_was_made_and_removed(writes: list[tuple[bool, str, str]]) -> None:
    held, there = store(), set()
    for make, namespace, name in writes:
        if make and (namespace, name) not in there:
            body = obj(name)
            body["metadata"]["namespace"] = namespace
            held.create(MAPS, body)
            there.add((namespace, name))
        elif not make and (namespace, name) in there:
            held.remove(MAPS, namespace, name)
            there.discard((namespace, name))

    def listed(namespace: str | None) -> list[tuple[str, str]]:
        return [(o["metadata"]["namespace"], o["metadata"]["name"]) for o in held.list(MAPS.key, namespace)]

    assert listed(None) == sorted(there)
    for namespace in ("m", "m0", "n"):
        assert listed(namespace) == sorted(at for at in there if at[0] == namespace)
