"""Watches: what an informer relies on, from the first event to a reconnection without loss."""

from typing import Any

import pytest
from contract.client import METADATA, Api, Json, at
from contract.objects import make

BOTH = pytest.mark.parametrize("resource", ["configmaps", "widgets"])
INITIAL_END = "k8s.io/initial-events-end"
LIST_AND_WATCH = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


def short(event: Json) -> tuple[str, str]:
    """Type and name."""
    return event["type"], event["object"]["metadata"]["name"]


def version(body: Json) -> str:
    """The resourceVersion of an object or list."""
    found: str = body["metadata"]["resourceVersion"]
    return found


def cached_up_to(api: Api, resource: str, ns: str, made: Json) -> None:
    """Waits until the server's cache has *made*: "any version" may be any older one."""
    api.get(at(resource, ns), resourceVersion=version(made)).ok(200)


@BOTH
def test_a_watch_tells_each_write_in_order(api: Api, ns: str, name: str, resource: str) -> None:
    """Each event holds the whole object as it is after the write; that of a deletion has a version of its own."""
    since = version(api.get(at(resource, ns)).ok(200))
    path = at(resource, ns, name)
    with api.watch(at(resource, ns), resourceVersion=since, labelSelector=f"of={name}") as watch:
        assert watch.response.headers["content-type"] == "application/json"
        made = make(api, resource, ns, name, meta={"labels": {"of": name}})
        changed = api.patch(path, {"metadata": {"annotations": {"a": "b"}}}).ok(200)
        api.patch(path, {}).ok(200)  # no write
        api.delete(path).ok(200)
        added, modified, deleted = watch.take(3)
    assert added == {"type": "ADDED", "object": made}
    assert modified == {"type": "MODIFIED", "object": changed}
    assert deleted["type"] == "DELETED"
    assert int(version(deleted["object"])) > int(version(changed))
    last = {**deleted["object"], "metadata": {**deleted["object"]["metadata"], "resourceVersion": version(changed)}}
    assert last == changed


@BOTH
def test_a_watch_from_a_version_tells_what_came_after_it(api: Api, ns: str, name: str, resource: str) -> None:
    made = [make(api, resource, ns, f"{name}-{i}", meta={"labels": {"of": name}}) for i in range(4)]
    with api.watch(at(resource, ns), resourceVersion=version(made[1]), labelSelector=f"of={name}") as watch:
        assert [short(e) for e in watch.take(2)] == [("ADDED", f"{name}-2"), ("ADDED", f"{name}-3")]


@BOTH
@pytest.mark.parametrize("since", [None, "0"], ids=["unset", "zero"])
def test_a_watch_from_no_version_begins_with_what_is_there(
    api: Api, ns: str, name: str, resource: str, since: str | None
) -> None:
    for i in range(2):
        make(api, resource, ns, f"{name}-{i}", meta={"labels": {"of": name}})
    query = {} if since is None else {"resourceVersion": since}
    with api.watch(at(resource, ns), labelSelector=f"of={name}", **query) as watch:
        assert sorted(short(e) for e in watch.take(2)) == [("ADDED", f"{name}-{i}") for i in range(2)]
        api.delete(at(resource, ns, f"{name}-0")).ok(200)
        assert short(watch.next()) == ("DELETED", f"{name}-0")


@BOTH
def test_a_reconnection_at_the_last_version_loses_and_repeats_nothing(
    api: Api, ns: str, name: str, resource: str
) -> None:
    """The version to go on from is that of the last event, a deletion's and a bookmark's included."""
    since = version(api.get(at(resource, ns)).ok(200))
    expected: list[tuple[str, str]] = []
    seen: list[tuple[str, str]] = []
    for i in range(12):
        make(api, resource, ns, f"{name}-{i}", meta={"labels": {"of": name}})
        expected.append(("ADDED", f"{name}-{i}"))
        if i % 3 == 0:
            api.patch(at(resource, ns, f"{name}-{i}"), {"metadata": {"annotations": {"n": str(i)}}}).ok(200)
            expected.append(("MODIFIED", f"{name}-{i}"))
        if i % 4 == 0:
            api.delete(at(resource, ns, f"{name}-{i}")).ok(200)
            expected.append(("DELETED", f"{name}-{i}"))
    while len(seen) < len(expected):
        with api.watch(at(resource, ns), resourceVersion=since, labelSelector=f"of={name}") as watch:
            for event in watch.take(min(2, len(expected) - len(seen))):
                seen.append(short(event))
                since = version(event["object"])
    assert seen == expected


@pytest.mark.parametrize(
    "resource",
    ["widgets", "runs", pytest.param("configmaps", marks=pytest.mark.capability("embedded"))],
)
def test_a_version_before_all_history_is_410_inside_the_stream(api: Api, ns: str, resource: str) -> None:
    """HTTP says 200; one event of type ERROR holds the Status, and then the stream ends.

    Version 1 is older than any history of a kind that was defined later. A real server that has just been started
    may still hold the whole history of a built-in kind.
    """
    with api.watch(at(resource, ns), resourceVersion="1") as watch:
        [event] = watch.rest()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


def test_the_same_for_metadata_only(api: Api, ns: str) -> None:
    with api.watch(at("runs", ns), resourceVersion="1", accept=METADATA) as watch:
        [event] = watch.rest()
    assert (event["type"], event["object"]["kind"], event["object"]["code"]) == ("ERROR", "Status", 410)


# ---------------------------------------------------------------- list and watch in one


@BOTH
@pytest.mark.parametrize("since", [None, "0", "VERSION"])
def test_initial_events_end_with_a_bookmark(api: Api, ns: str, name: str, resource: str, since: str | None) -> None:
    made = [make(api, resource, ns, f"{name}-{i}", meta={"labels": {"of": name}}) for i in range(3)]
    query = {} if since is None else {"resourceVersion": since.replace("VERSION", version(made[2]))}
    cached_up_to(api, resource, ns, made[2])
    with api.watch(at(resource, ns), labelSelector=f"of={name}", **LIST_AND_WATCH, **query) as watch:
        events = watch.until(lambda e: e["type"] == "BOOKMARK")
        assert sorted(short(e) for e in events[:-1]) == [("ADDED", f"{name}-{i}") for i in range(3)]
        end = events[-1]["object"]
        assert (end["kind"], end["apiVersion"]) == (made[0]["kind"], made[0]["apiVersion"])
        assert end["metadata"]["annotations"] == {INITIAL_END: "true"}
        assert int(version(end)) >= int(version(made[2]))
        assert set(end["metadata"]) == {"annotations", "resourceVersion"}
        assert "spec" not in end
        api.delete(at(resource, ns, f"{name}-1")).ok(200)
        assert short(watch.until(lambda e: e["type"] != "BOOKMARK")[-1]) == ("DELETED", f"{name}-1")


def test_initial_events_of_an_empty_collection(api: Api, ns: str, name: str) -> None:
    with api.watch(at("widgets", ns), labelSelector=f"of={name}", **LIST_AND_WATCH) as watch:
        event = watch.next()
    assert (event["type"], event["object"]["metadata"]["annotations"]) == ("BOOKMARK", {INITIAL_END: "true"})


def test_initial_events_as_metadata_only(api: Api, ns: str, name: str) -> None:
    make(api, "runs", ns, name)
    select = {"fieldSelector": f"metadata.name={name}"}
    with api.watch(at("runs", ns), accept=METADATA, **LIST_AND_WATCH, **select) as watch:
        first, end = watch.take(2)
    assert (first["type"], first["object"]["kind"]) == ("ADDED", "PartialObjectMetadata")
    assert "spec" not in first["object"]
    assert (end["type"], end["object"]["metadata"]["annotations"]) == ("BOOKMARK", {INITIAL_END: "true"})


@BOTH
def test_a_watch_that_wants_bookmarks_and_names_no_version_gets_the_end_of_the_beginning_too(
    api: Api, ns: str, name: str, resource: str
) -> None:
    make(api, resource, ns, name)
    select = {"fieldSelector": f"metadata.name={name}"}
    with api.watch(at(resource, ns), allowWatchBookmarks="true", **select) as watch:
        first, end = watch.take(2)
    assert short(first) == ("ADDED", name)
    assert (end["type"], end["object"]["metadata"]["annotations"]) == ("BOOKMARK", {INITIAL_END: "true"})


def test_no_bookmark_for_those_who_did_not_ask(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "timeoutSeconds": "1"}
    with api.watch(at("widgets", ns), fieldSelector=f"metadata.name={name}", **query) as watch:
        assert [short(e) for e in watch.rest()] == [("ADDED", name)]


def test_without_initial_events(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    query = {**LIST_AND_WATCH, "sendInitialEvents": "false", "fieldSelector": f"metadata.name={name}"}
    with api.watch(at("widgets", ns), **query) as watch:
        api.delete(at("widgets", ns, name)).ok(200)
        assert watch.until(lambda e: e["type"] != "BOOKMARK")[-1]["type"] == "DELETED"


FORBIDDEN: list[tuple[str, dict[str, str], int, str, str]] = [
    ("no-match", {"sendInitialEvents": "true"}, 422, "Invalid",
     "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
    ("no-match-false", {"sendInitialEvents": "false"}, 422, "Invalid", "sendInitialEvents requires setting"),
    ("exact", {"sendInitialEvents": "true", "resourceVersionMatch": "Exact", "resourceVersion": "5"}, 422, "Invalid",
     'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"'),
    ("match-alone", {"resourceVersionMatch": "NotOlderThan"}, 422, "Invalid",
     "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is"),
    ("version-word", {"resourceVersion": "x"}, 500, "", 'resourceVersion: Invalid value: "x"'),
    ("timeout-word", {"timeoutSeconds": "x"}, 400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax'),
    ("labels", {"labelSelector": "a=b=c"}, 400, "BadRequest", "found '='"),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(
    ("query", "code", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in FORBIDDEN]
)
def test_watch_options_that_are_refused(
    api: Api, ns: str, resource: str, query: dict[str, str], code: int, reason: str, message: str
) -> None:
    api.get(at(resource, ns), watch="true", **query).refused(code, reason, message)


TRUE: list[tuple[str, bool]] = [("true", True), ("1", True), ("", True), ("false", False), ("0", False), ("x", True)]


@pytest.mark.parametrize(("word", "watches"), TRUE, ids=[row[0] or "empty" for row in TRUE])
def test_what_counts_as_watch(api: Api, ns: str, word: str, watches: bool) -> None:
    """Anything but `false` and `0`."""
    answer = api.get(at("widgets", ns), watch=word, timeoutSeconds="1", resourceVersion="1")
    first: Any = answer.text.splitlines()[0]
    assert ('"type":"ERROR"' in first) == watches


def test_a_watch_where_the_namespace_is_not_there(api: Api, name: str) -> None:
    """It waits, as for any empty collection."""
    with api.watch(at("configmaps", name), timeoutSeconds="1") as watch:
        assert watch.rest() == []
