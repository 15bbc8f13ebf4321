"""How watches end, what they cost others, and what comes through under load."""

import threading
from contextlib import ExitStack

import httpx
import pytest
from contract.client import METADATA, METADATA_LIST, TABLE, Api, Json, at
from contract.objects import make

WATCHERS = 40
BIG = 120_000
"""Bytes of one ConfigMap's value; a hundred of them pass what sockets and servers hold for a slow reader."""
BIG_WRITES = 80


def version(body: Json) -> str:
    """The resourceVersion of an object or list."""
    found: str = body["metadata"]["resourceVersion"]
    return found


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
def test_the_server_ends_a_watch_after_the_time_that_was_asked_for(api: Api, ns: str, name: str, resource: str) -> None:
    """A clean end: the last chunk comes, and the connection serves the next request."""
    since = version(make(api, resource, ns, name))
    with api.watch(at(resource, ns), resourceVersion=since, timeoutSeconds="1", labelSelector=f"of={name}") as watch:
        assert watch.rest() == []


@pytest.mark.parametrize("resource", ["runs"])
def test_a_bookmark_comes_before_the_end(api: Api, ns: str, name: str, resource: str) -> None:
    """At the latest two seconds before the end of a watch that wants bookmarks; its version is a place to go on."""
    since = version(make(api, resource, ns, name))
    query = {"resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": "3"}
    with api.watch(at(resource, ns), labelSelector=f"of={name}", **query) as watch:
        other = version(make(api, resource, ns, f"{name}-other"))  # not selected
        events = watch.rest()
    assert {e["type"] for e in events} == {"BOOKMARK"}
    mark = events[-1]["object"]
    assert {"kind", "apiVersion", "metadata"} <= set(mark)  # a built-in kind may have an empty spec besides
    assert set(mark["metadata"]) == {"resourceVersion"}
    assert int(version(mark)) >= int(other)
    with api.watch(at(resource, ns), resourceVersion=version(mark), labelSelector=f"of={name}") as watch:
        make(api, resource, ns, f"{name}-last", meta={"labels": {"of": name}})
        assert watch.next()["object"]["metadata"]["name"] == f"{name}-last"


def test_a_watcher_that_goes_away_leaves_the_server_well(api: Api, ns: str, name: str) -> None:
    for _ in range(20):
        with api.watch(at("widgets", ns)):
            pass
    make(api, "widgets", ns, name)


def test_many_watchers_see_the_same(api: Api, ns: str, name: str) -> None:
    since = version(api.get(at("widgets", ns)).ok(200))
    with ExitStack() as stack:
        watches = [
            stack.enter_context(api.watch(at("widgets", ns), resourceVersion=since, labelSelector=f"of={name}"))
            for _ in range(WATCHERS)
        ]
        for i in range(5):
            make(api, "widgets", ns, f"{name}-{i}", meta={"labels": {"of": name}})
        seen = [[event["object"]["metadata"]["name"] for event in watch.take(5)] for watch in watches]
    assert seen == [[f"{name}-{i}" for i in range(5)]] * WATCHERS


def test_a_slow_reader_holds_up_no_one_and_can_go_on_where_it_stopped(api: Api, ns: str, name: str) -> None:
    """The server may end the stream of one who does not read; what came through has no gap, and the rest follows."""
    since = version(api.get(at("configmaps", ns)).ok(200))
    select = {"labelSelector": f"of={name}"}
    expected = [f"{name}-{i:03}" for i in range(BIG_WRITES)]
    seen: list[str] = []
    with (
        api.watch(at("configmaps", ns), resourceVersion=since, **select) as slow,
        api.watch(at("configmaps", ns), resourceVersion=since, **select) as quick,
    ):
        for each in expected:
            make(api, "configmaps", ns, each, meta={"labels": {"of": name}}, data={"a": "x" * BIG})
            assert quick.next()["object"]["metadata"]["name"] == each
        try:
            while len(seen) < len(expected):
                event = slow.next()
                seen.append(event["object"]["metadata"]["name"])
                since = version(event["object"])
        except (AssertionError, httpx.HTTPError):
            pass  # ended by the server
    while len(seen) < len(expected):
        with api.watch(at("configmaps", ns), resourceVersion=since, **select) as watch:
            for event in watch.take(len(expected) - len(seen)):
                seen.append(event["object"]["metadata"]["name"])
                since = version(event["object"])
    assert seen == expected
    api.delete(at("configmaps", ns), labelSelector=f"of={name}").ok(200)


def test_writers_side_by_side_are_seen_once_each_in_one_order(api: Api, ns: str, name: str) -> None:
    """Two watchers agree on the order, and versions only grow."""
    since = version(api.get(at("leases", ns)).ok(200))
    writers, each = 4, 15

    def write(writer: int) -> None:
        client = api.another()
        try:
            for i in range(each):
                make(client, "leases", ns, f"{name}-{writer}-{i}", meta={"labels": {"of": name}})
        finally:
            client.close()

    select = {"resourceVersion": since, "labelSelector": f"of={name}"}
    with api.watch(at("leases", ns), **select) as first, api.watch(at("leases", ns), **select) as second:
        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
        for thread in threads:
            thread.start()
        events = first.take(writers * each)
        same = second.take(writers * each)
        for thread in threads:
            thread.join()
    assert events == same
    versions = [int(version(event["object"])) for event in events]
    assert versions == sorted(set(versions))
    found = {event["object"]["metadata"]["name"] for event in events}
    assert found == {f"{name}-{writer}-{i}" for writer in range(writers) for i in range(each)}


def test_every_version_of_a_hot_object_comes_through(api: Api, ns: str, name: str) -> None:
    """No event is merged with the next one."""
    since = version(make(api, "leases", ns, name))
    with api.watch(at("leases", ns), resourceVersion=since, fieldSelector=f"metadata.name={name}") as watch:
        for i in range(30):
            api.patch(at("leases", ns, name), {"spec": {"leaseTransitions": i}}).ok(200)
        assert [e["object"]["spec"]["leaseTransitions"] for e in watch.take(30)] == list(range(30))


# ---------------------------------------------------------------- other forms


def test_a_watch_of_metadata_only(api: Api, ns: str, name: str) -> None:
    """The same events with everything but metadata left out; deletions too."""
    since = version(make(api, "runs", ns, name))
    path = at("runs", ns, name)
    with api.watch(at("runs", ns), resourceVersion=since, fieldSelector=f"metadata.name={name}", accept=METADATA) as w:
        changed = api.patch(path, {"spec": {"cancelRequested": True}}).ok(200)
        api.delete(path).ok(200)
        modified, deleted = w.take(2)
    kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    assert modified == {"type": "MODIFIED", "object": {**kind, "metadata": changed["metadata"]}}
    assert (deleted["type"], deleted["object"]["kind"]) == ("DELETED", "PartialObjectMetadata")


@pytest.mark.parametrize("resource", ["runs", "widgets", "pods", "configmaps", "leases"])
def test_metadata_only(api: Api, ns: str, name: str, resource: str) -> None:
    """Items of the list carry kind and apiVersion of their own."""
    made = make(api, resource, ns, name, meta={"labels": {"of": name}})
    kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    assert api.get(at(resource, ns, name), accept=METADATA).ok(200)["kind"] == "PartialObjectMetadata"
    body = api.get(at(resource, ns), accept=METADATA_LIST, labelSelector=f"of={name}").ok(200)
    assert (body["kind"], body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert int(version(body)) >= int(version(made))
    [item] = body["items"]
    assert set(item) <= {"kind", "apiVersion", "metadata"}
    assert {**kind, **item} == {**kind, "metadata": item["metadata"]}
    assert item["metadata"]["uid"] == made["metadata"]["uid"]


def test_a_watch_as_tables(api: Api, ns: str, name: str) -> None:
    """Each event holds a Table of one row; only the first one says what the columns are."""
    since = version(make(api, "widgets", ns, name))
    path = at("widgets", ns, name)
    with api.watch(at("widgets", ns), resourceVersion=since, fieldSelector=f"metadata.name={name}", accept=TABLE) as w:
        changed = api.patch(path, {"spec": {"size": 5}}).ok(200)
        api.delete(path).ok(200)
        modified, deleted = w.take(2)
    assert (modified["type"], deleted["type"]) == ("MODIFIED", "DELETED")
    table = modified["object"]
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Size", "Color", "On", "Part", "When"]
    assert table["rows"][0]["cells"][:3] == [name, 5, "red"]
    assert table["rows"][0]["object"]["metadata"]["resourceVersion"] == version(changed)
    assert deleted["object"].get("columnDefinitions") is None
    assert len(deleted["object"]["rows"]) == 1


def test_initial_events_as_tables_end_with_a_bookmark(api: Api, ns: str, name: str) -> None:
    """What `kubectl get -w` may be told: a Table without cells whose row carries the annotated object."""
    make(api, "widgets", ns, name)
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with api.watch(at("widgets", ns), fieldSelector=f"metadata.name={name}", accept=TABLE, **query) as watch:
        first, end = watch.take(2)
    assert (first["type"], first["object"]["rows"][0]["cells"][0]) == ("ADDED", name)
    assert (end["type"], end["object"]["kind"]) == ("BOOKMARK", "Table")
    [row] = end["object"]["rows"]
    assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
