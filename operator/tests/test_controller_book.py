"""The indexes of Runs and Pods, against the same answers reckoned from scratch."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.api.views import Meta, Pod
from kruntimes.controller.book import Book
from kruntimes.controller.schedule import pending, usage
from kruntimes.controller.views import ControlledRun

KEYS = ["n/a", "n/b", "n/c"]


def run(key: str, runtime: str, phase: str, uid: str, runs: int) -> ControlledRun:
    fields: dict[str, Any] = {
        "metadata": {"namespace": "n", "name": key[2:]},
        "spec": {"runtime": runtime, "resources": {"requests": {"runs": runs}}},
        "status": {"phase": phase, "assignedPodUID": uid, "assignedPod": uid},
    }
    return msgspec.convert(fields, ControlledRun)


states = st.sampled_from([("Pending", ""), ("Scheduled", "u"), ("Ready", "u"), ("Ready", "v"), ("Failed", "u")])
changes = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.one_of(st.none(), st.tuples(st.sampled_from(["r", "s"]), states, st.integers(1, 3))),
    ),
    max_size=30,
)


@given(changes)
def test_what_the_book_says_is_what_its_runs_say(steps: list[Any]) -> None:
    book, truth = Book(), dict[str, ControlledRun]()
    for key, change in steps:
        if change is None:
            truth.pop(key, None)
            book.put_run(key, None)
        else:
            runtime, (phase, uid), runs = change
            truth[key] = run(key, runtime, phase, uid, runs)
            book.put_run(key, truth[key])
    for uid in ("u", "v"):
        held = [one for one in truth.values() if one.occupies == uid]
        assert book.used(uid) == usage(held)
        assert sorted(book.occupants(uid)) == sorted(one.metadata.key for one in held)
    for runtime in ("r", "s"):
        waiting = [one for one in truth.values() if one.spec.runtime == runtime and pending(one) is not None]
        found = book.waiting(f"n/{runtime}")
        assert sorted(one.metadata.key for one in found) == sorted(one.metadata.key for one in waiting)
    assert book.waiting_count() == sum(pending(one) is not None for one in truth.values())


def test_which_changes_concern_the_scheduler() -> None:
    book = Book()
    assert book.put_run("n/a", run("n/a", "r", "Pending", "", 1))
    assert book.put_run("n/a", run("n/a", "r", "Scheduled", "u", 1))
    assert not book.put_run("n/a", run("n/a", "r", "Ready", "u", 1))
    assert book.put_run("n/a", run("n/a", "r", "Failed", "u", 1))
    assert not book.put_run("n/a", None)


def pod(name: str, uid: str, runtime: str = "r") -> Pod:
    return Pod(metadata=Meta(namespace="n", name=name, uid=uid, labels={"runtime": runtime}))


def test_a_pod_is_found_by_name_by_uid_and_by_runtime() -> None:
    book = Book()
    first, second = pod("p", "u"), pod("p", "v")
    assert book.put_pod("n/p", first) is None
    assert book.put_pod("n/p", second) is first
    assert book.pod("n/p") is second
    assert book.pod_by_uid("u") is None
    assert book.pod_by_uid("v") is second
    assert book.pods("n/r") == [second]
    book.put_pod("n/p", None)
    assert book.pods("n/r") == []
    assert book.pod_by_uid("v") is None


def a_pod(name: str, uid: str, account: str) -> Pod:
    metadata = {"namespace": "n", "name": name, "uid": uid}
    return msgspec.convert({"metadata": metadata, "spec": {"serviceAccountName": account}}, Pod)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x", "y", "gone"])), max_size=20))
def test_the_accounts_of_a_namespace_are_those_of_its_pods(steps: list[tuple[str, str]]) -> None:
    book, truth = Book(), dict[str, str]()
    for number, (name, account) in enumerate(steps):
        if account == "gone":
            book.put_pod(f"n/{name}", None)
            truth.pop(name, None)
        else:
            book.put_pod(f"n/{name}", a_pod(name, f"uid-{number}", account))
            truth[name] = account
        assert book.accounts("n") == {one for one in truth.values() if one}
    assert book.accounts("other") == set()


def version(uid: str, number: int, phase: str) -> ControlledRun:
    metadata = {"namespace": "n", "name": "a", "uid": uid, "resourceVersion": str(number)}
    status = {"phase": phase, "assignedPodUID": "" if phase == "Pending" else "u", "assignedPod": ""}
    return msgspec.convert({"metadata": metadata, "spec": {"runtime": "r"}, "status": status}, ControlledRun)


def test_a_watch_that_lags_gives_nothing_away_again() -> None:
    book = Book()
    book.see_run("n/a", version("x", 7, "Pending"))
    book.put_run("n/a", version("x", 7, "Scheduled"))  # decided, and not yet written
    assert not book.see_run("n/a", version("x", 7, "Pending"))
    assert book.used("u") == {"runs": 1}
    book.put_run("n/a", version("x", 9, "Scheduled"))  # written
    assert not book.see_run("n/a", version("x", 8, "Pending"))
    assert book.used("u") == {"runs": 1}
    assert book.see_run("n/a", version("x", 10, "Pending"))
    assert book.used("u") == {}
    assert book.see_run("n/a", version("y", 3, "Scheduled")), "another Run of the same name"
    assert book.see_run("n/a", None)
    assert book.used("u") == {}
