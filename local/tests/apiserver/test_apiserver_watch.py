"""The hub: who hears what, in which form, encoded how often, and when a slow reader is let go."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kruntimes.local.apiserver import watch
from kruntimes.local.apiserver.encoding import Encoded, encode
from kruntimes.local.apiserver.negotiation import View
from kruntimes.local.apiserver.resources import Resource, Resources
from kruntimes.local.apiserver.status import StatusError, expired
from kruntimes.local.apiserver.store import Event
from kruntimes.local.apiserver.tables import Form
from kruntimes.local.apiserver.watch import Hub, Watcher, error_line

Json = dict[str, Any]
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def resource() -> Resource:
    """What is watched."""
    found = Resources.built_in().find("", "v1", "configmaps")
    assert found is not None
    return found


MAPS = resource()


def obj(version: int, *, namespace: str = "n", labels: Json | None = None) -> Json:
    """An object at a version."""
    meta = {"name": "a", "namespace": namespace, "resourceVersion": str(version), "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def event(kind: str, new: Json, old: Json | None = None) -> Event:
    """A write."""
    return Event(int(new["metadata"]["resourceVersion"]), kind, MAPS.key, new, old)


class Counting(Encoded):
    """Counts what it encodes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def of(self, obj: Json) -> bytes:
        self.asked += 1
        return super().of(obj)


@pytest.fixture
def encoded() -> Counting:
    """Where the hub gets JSON from."""
    return Counting()


@pytest.fixture
def hub(encoded: Counting) -> Hub:
    """An empty one."""
    return Hub(lambda: NOW, encoded)


def add(hub: Hub, *, form: str = "", namespace: str | None = None, matches: Any = None) -> Watcher:
    """A watcher that hears from now on."""
    watcher = Watcher(View(MAPS, Form(form)), namespace, matches)
    hub.add(watcher)
    return watcher


async def heard(watcher: Watcher) -> list[tuple[str, str]]:
    """Types and versions of what waits."""
    lines = (await watcher.take(0.01)).splitlines()
    events = [json.loads(line) for line in lines]
    return [(e["type"], e["object"]["metadata"]["resourceVersion"]) for e in events]


async def test_everyone_gets_the_same_bytes_made_once(hub: Hub, encoded: Counting) -> None:
    watchers = [add(hub) for _ in range(5)]
    hub.publish(event("ADDED", obj(2)))
    data = [await watcher.take(0.01) for watcher in watchers]
    assert set(data) == {b'{"type":"ADDED","object":%s}\n' % encode(obj(2))}
    assert encoded.asked == 1


async def test_each_form_is_made_once(hub: Hub, encoded: Counting) -> None:
    watchers = [add(hub, form=form) for form in ("", "PartialObjectMetadata", "Table", "Table")]
    hub.publish(event("ADDED", obj(2)))
    hub.publish(event("MODIFIED", obj(3), obj(2)))
    kinds = [[json.loads(line)["object"]["kind"] for line in (await w.take(0.01)).splitlines()] for w in watchers]
    assert kinds == [["ConfigMap"] * 2, ["PartialObjectMetadata"] * 2, ["Table"] * 2, ["Table"] * 2]
    assert encoded.asked == 6


async def test_the_columns_come_once(hub: Hub) -> None:
    watcher = add(hub, form="Table")
    hub.publish(event("ADDED", obj(2)))
    hub.publish(event("MODIFIED", obj(3), obj(2)))
    tables = [json.loads(line)["object"] for line in (await watcher.take(0.01)).splitlines()]
    assert [bool(table["columnDefinitions"]) for table in tables] == [True, False]


async def test_only_the_namespace_that_is_watched(hub: Hub) -> None:
    here, there, all_of_them = add(hub, namespace="n"), add(hub, namespace="m"), add(hub)
    hub.publish(event("ADDED", obj(2)))
    assert [await heard(w) for w in (here, there, all_of_them)] == [[("ADDED", "2")], [], [("ADDED", "2")]]


LIFE = [
    event("ADDED", obj(2)),
    event("MODIFIED", obj(3, labels={"in": "1"}), obj(2)),
    event("MODIFIED", obj(4, labels={"in": "1"}), obj(3, labels={"in": "1"})),
    event("MODIFIED", obj(5), obj(4, labels={"in": "1"})),
    event("DELETED", obj(6), obj(5)),
    event("ADDED", obj(7, labels={"in": "1"})),
    event("DELETED", obj(8, labels={"in": "1"}), obj(7, labels={"in": "1"})),
]


async def test_a_selection_has_its_own_life(hub: Hub) -> None:
    """Who leaves is deleted, as it was, at the version at which it left."""
    watcher = add(hub, matches=lambda obj: "in" in obj["metadata"]["labels"])
    for each in LIFE:
        hub.publish(each)
    lines = [json.loads(line) for line in (await watcher.take(0.01)).splitlines()]
    told = [(e["type"], e["object"]["metadata"]["resourceVersion"]) for e in lines]
    assert told == [("ADDED", "3"), ("MODIFIED", "4"), ("DELETED", "5"), ("ADDED", "7"), ("DELETED", "8")]
    assert lines[2]["object"]["metadata"]["labels"] == {"in": "1"}


async def test_replay_is_the_same(hub: Hub) -> None:
    watcher = Watcher(View(MAPS, Form()), None, lambda obj: "in" in obj["metadata"]["labels"])
    hub.replay(watcher, LIFE)
    assert [kind for kind, _ in await heard(watcher)] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]


async def test_a_reader_that_is_too_slow_is_let_go(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "QUEUE_EVENTS", 3)
    slow, quick = add(hub), add(hub)
    for version in range(2, 9):
        hub.publish(event("MODIFIED", obj(version), obj(version - 1)))
        assert len(await heard(quick)) == 1
    assert slow.over
    assert await slow.take(0.01) == b""
    assert not quick.over


async def test_the_queue_is_bounded_in_bytes_too(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "QUEUE_BYTES", 150)
    watcher = add(hub)
    hub.publish(event("ADDED", obj(2)))
    assert not watcher.over
    hub.publish(event("MODIFIED", obj(3), obj(2)))
    assert watcher.over


async def test_watchers_are_bounded_and_counted(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_WATCHERS", 2)
    first, second = add(hub), add(hub)
    with pytest.raises(StatusError) as refused:
        add(hub)
    assert refused.value.code == 429
    hub.remove(first)
    hub.remove(first)
    assert hub.count == 1
    add(hub)
    hub.publish(event("ADDED", obj(2)))
    assert await heard(first) == []
    assert await heard(second) == [("ADDED", "2")]


async def test_a_resource_that_is_withdrawn_ends_its_watches_after_what_was_written(hub: Hub) -> None:
    watcher = add(hub)
    hub.publish(event("DELETED", obj(3), obj(2)))
    hub.withdraw(MAPS.key)
    assert watcher.over
    assert await heard(watcher) == [("DELETED", "3")]


async def test_an_end_without_another_word(hub: Hub) -> None:
    watcher, ended = add(hub), []
    watcher.let_go = lambda: ended.append(True)
    hub.publish(event("ADDED", obj(2)))
    hub.close()
    assert await heard(watcher) == []
    assert ended == [True]


def test_bookmarks(hub: Hub) -> None:
    mark = json.loads(hub.bookmark(Watcher(View(MAPS, Form()), None, None), 9, initial_end=True))
    annotations = {"k8s.io/initial-events-end": "true"}
    assert mark == {
        "type": "BOOKMARK",
        "object": {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "9", "annotations": annotations},
        },
    }
    table = json.loads(hub.bookmark(Watcher(View(MAPS, Form("Table")), None, None), 9))["object"]
    assert table["kind"] == "Table"
    assert table["rows"][0]["object"]["metadata"] == {"resourceVersion": "9"}


def test_a_watch_that_cannot_go_on() -> None:
    told = json.loads(error_line(expired(3, 9)))
    assert (told["type"], told["object"]["code"], told["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_what_is_kept_encoded_is_bounded() -> None:
    kept = Encoded(kept_bytes=300)
    objects = [obj(version) for version in range(2, 9)]
    for each in objects:
        kept.size(each)
    assert [kept.of(each) for each in objects] == [encode(each) for each in objects]
    assert kept.of(objects[-1]) is kept.of(objects[-1])
    assert kept.of(objects[0]) is not kept.of(objects[0])
    changed = obj(99)
    assert kept.of(changed) == encode(changed)
