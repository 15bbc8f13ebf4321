"""The scheduling decision as a table, and what must hold for every input."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.api.reasons import Reason
from kruntimes.common.api.views import Pod
from kruntimes.controller.schedule import (
    UNCLAIMED_SECONDS,
    Action,
    Assign,
    Cancel,
    Expire,
    Explain,
    Offer,
    Pending,
    Wake,
    offer,
    pending,
    schedule,
    usage,
)
from kruntimes.controller.views import ControlledRun

NOW = 1_800_000_000.0


def run(key: str, created: str = "2026-01-01T00:00:00Z", runs: int = 1, **more: Any) -> Pending:
    return Pending(key=key, created=created, requests={"runs": runs} | more.pop("also", {}), **more)


def pod(
    name: str, *, runs: int = 2, used: int = 0, retiring: bool = False, doubtful: bool = False, **also: int
) -> Offer:
    return Offer(
        name=name,
        uid=f"uid-{name}",
        capacity={"runs": runs} | also,
        used={"runs": used},
        retiring=retiring,
        doubtful=doubtful,
    )


NO_POD = "no ready Pod of the Runtime has a live heartbeat; the conditions of the Runtime say more"


def full(key: str, asked: str = "runs=1") -> Explain:
    message = f"every ready Pod of the Runtime is full: there is no room for {asked}"
    return Explain(key, Reason.INSUFFICIENT_CAPACITY, message)


def too_much(key: str, asked: str, most: str) -> Explain:
    message = f"spec.resources.requests: {asked} is more than any ready Pod of the Runtime offers, at most {most}"
    return Explain(key, Reason.INSUFFICIENT_CAPACITY, message)


def no_pod(key: str) -> Explain:
    return Explain(key, Reason.NO_READY_POD, NO_POD)


CASES = [
    pytest.param([], [pod("a")], [], id="nothing-waits"),
    pytest.param([run("n/r")], [pod("a")], [Assign("n/r", "a", "uid-a")], id="one-run-one-pod"),
    pytest.param(
        [run("n/young", "2026-01-01T00:00:09Z"), run("n/old", "2026-01-01T00:00:01Z")],
        [pod("a", runs=1)],
        [Assign("n/old", "a", "uid-a"), full("n/young")],
        id="oldest-first",
    ),
    pytest.param(
        [run("n/b"), run("n/a")],
        [pod("p", runs=1)],
        [Assign("n/a", "p", "uid-p"), full("n/b")],
        id="same-second-goes-by-name",
    ),
    pytest.param(
        [run("n/1"), run("n/2"), run("n/3")],
        [pod("a", runs=2, used=1), pod("b", runs=2)],
        [Assign("n/1", "b", "uid-b"), Assign("n/2", "a", "uid-a"), Assign("n/3", "b", "uid-b")],
        id="spread-over-the-least-loaded",
    ),
    pytest.param(
        [run("n/1")],
        [pod("small", runs=2, used=1), pod("large", runs=10, used=4)],
        [Assign("n/1", "large", "uid-large")],
        id="load-is-a-share-of-the-capacity",
    ),
    pytest.param(
        [run("n/1"), run("n/2"), run("n/3")],
        [pod("old", runs=2, retiring=True), pod("new", runs=2, used=1)],
        [Assign("n/1", "new", "uid-new"), Assign("n/2", "old", "uid-old"), Assign("n/3", "old", "uid-old")],
        id="a-retiring-pod-is-the-last-choice",
    ),
    pytest.param(
        [run("n/1"), run("n/2"), run("n/3")],
        [pod("mute", doubtful=True), pod("old", runs=2, retiring=True)],
        [Assign("n/1", "old", "uid-old"), Assign("n/2", "old", "uid-old"), Assign("n/3", "mute", "uid-mute")],
        id="a-pod-that-left-a-run-unclaimed-is-the-very-last-choice",
    ),
    pytest.param([run("n/r")], [], [no_pod("n/r")], id="no-ready-pod"),
    pytest.param([run("n/r", explained=("NoReadyPod", NO_POD))], [], [], id="said-once"),
    pytest.param(
        [run("n/r", explained=("NoReadyPod", NO_POD))],
        [pod("a", used=2)],
        [full("n/r")],
        id="said-again-when-it-changes",
    ),
    pytest.param(
        [run("n/large", "2026-01-01T00:00:00Z", runs=3), run("n/small", "2026-01-01T00:00:01Z")],
        [pod("a", runs=2)],
        [too_much("n/large", "runs=3", "runs=2"), Assign("n/small", "a", "uid-a")],
        id="one-that-does-not-fit-holds-nobody-up",
    ),
    pytest.param(
        [run("n/r", also={"gpu": 1})],
        [pod("plain"), pod("fast", gpu=1, used=1)],
        [Assign("n/r", "fast", "uid-fast")],
        id="every-resource-counts",
    ),
    pytest.param(
        [run("n/r", also={"gpu": 1})],
        [pod("plain")],
        [too_much("n/r", "gpu=1, runs=1", "gpu=0, runs=2")],
        id="a-resource-that-nobody-offers",
    ),
    pytest.param([run("n/r", cancel=True)], [pod("a")], [Cancel("n/r")], id="cancel-before-assignment"),
    pytest.param(
        [run("n/r", cancel=True, not_before=NOW + 5, lifetime_ends=NOW - 1)], [], [Cancel("n/r")], id="cancel-wins"
    ),
    pytest.param([run("n/r", lifetime_ends=NOW)], [pod("a")], [Expire("n/r")], id="lifetime-over"),
    pytest.param(
        [run("n/r", lifetime_ends=NOW + 9, not_before=NOW + 4, explained=("RegistrationFailed", "no such module"))],
        [pod("a")],
        [Wake(NOW + 4)],
        id="backoff-keeps-the-reason-of-the-failure",
    ),
    pytest.param(
        [run("n/r", not_before=NOW + 4)],
        [pod("a")],
        [Explain("n/r", Reason.UNSCHEDULED, "waits for its back-off before the next attempt"), Wake(NOW + 4)],
        id="backoff-says-so-where-nothing-was-said",
    ),
    pytest.param([run("n/r", not_before=NOW)], [pod("a")], [Assign("n/r", "a", "uid-a")], id="backoff-over"),
    pytest.param(
        [run("n/r", lifetime_ends=NOW + 9, explained=("NoReadyPod", NO_POD))],
        [],
        [Wake(NOW + 9)],
        id="wakes-for-its-end",
    ),
]


@pytest.mark.parametrize(("waiting", "offers", "expected"), CASES)
def test_the_decision(waiting: list[Pending], offers: list[Offer], expected: list[Action]) -> None:
    assert schedule(waiting, offers, NOW) == expected


def test_where_there_is_no_runtime_it_says_so_whatever_pods_are_left() -> None:
    message = "spec.runtime: there is no Runtime 'pythn' in this namespace"
    told = Explain("n/r", Reason.RUNTIME_NOT_FOUND, message)
    assert schedule([run("n/r")], [pod("a")], NOW, missing="pythn") == [told]
    assert schedule([run("n/r", explained=(told.reason, message))], [], NOW, missing="pythn") == []
    assert schedule([run("n/r", cancel=True)], [], NOW, missing="pythn") == [Cancel("n/r")]


names = st.text("abc", min_size=1, max_size=3)
runs = st.lists(
    st.builds(
        run,
        names.map("n/{}".format),
        st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]),
        st.integers(1, 3),
        cancel=st.booleans(),
        not_before=st.sampled_from([0.0, NOW - 1, NOW + 1]),
        lifetime_ends=st.sampled_from([None, NOW - 1, NOW + 2]),
    ),
    max_size=12,
    unique_by=lambda one: one.key,
)
pods = st.lists(
    st.builds(pod, names, runs=st.integers(0, 4), used=st.integers(0, 4), retiring=st.booleans()),
    max_size=5,
    unique_by=lambda one: one.uid,
)


@given(runs, pods)
def test_no_pod_gives_more_than_it_has_and_no_wake_lies_in_the_past(
    waiting: list[Pending], offers: list[Offer]
) -> None:
    actions = schedule(waiting, offers, NOW)
    wanted = {one.key: one.requests["runs"] for one in waiting}
    for one in offers:
        given_away = sum(wanted[a.key] for a in actions if isinstance(a, Assign) and a.pod_uid == one.uid)
        assert given_away == 0 or one.used["runs"] + given_away <= one.capacity["runs"]
    assert all(a.at > NOW for a in actions if isinstance(a, Wake))
    told = [a.key for a in actions if not isinstance(a, Wake)]
    assert len(told) == len(set(told))


@given(runs, pods)
def test_a_run_waits_only_where_nothing_fits(waiting: list[Pending], offers: list[Offer]) -> None:
    actions = schedule(waiting, offers, NOW)
    assigned = {a.key: a.pod_uid for a in actions if isinstance(a, Assign)}
    free = {
        one.uid: one.capacity["runs"]
        - one.used["runs"]
        - sum(w.requests["runs"] for w in waiting if assigned.get(w.key) == one.uid)
        for one in offers
    }
    for one in waiting:
        due = not one.cancel and one.not_before <= NOW and (one.lifetime_ends is None or one.lifetime_ends > NOW)
        if due and one.key not in assigned:
            assert all(room < one.requests["runs"] for room in free.values())


@given(runs, pods, st.randoms())
def test_the_order_of_the_input_does_not_matter(waiting: list[Pending], offers: list[Offer], random: Any) -> None:
    expected = schedule(waiting, offers, NOW)
    random.shuffle(waiting)
    random.shuffle(offers)
    assert schedule(waiting, offers, NOW) == expected


def read(**fields: Any) -> ControlledRun:
    return msgspec.convert(
        {"metadata": {"name": "r", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}} | fields,
        ControlledRun,
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"status": {"phase": "Scheduled", "assignedPodUID": "u"}}, id="assigned"),
        pytest.param({"status": {"phase": "Cancelled"}}, id="ended"),
        pytest.param(
            {"metadata": {"name": "r", "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, id="deleting"
        ),
    ],
)
def test_a_run_that_is_not_the_schedulers_business(fields: dict[str, Any]) -> None:
    assert pending(read(**fields)) is None


def test_backoff_counts_from_its_condition() -> None:
    seen = pending(
        read(
            spec={"timeout": "1h", "retryPolicy": {"maxAttempts": 3, "backoff": "10s"}, "cancelRequested": True},
            status={
                "phase": "Pending",
                "attempt": 2,
                "startTime": "2026-01-01T00:00:00Z",
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "SourceFailed"},
                    {"type": "Backoff", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"},
                ],
            },
        )
    )
    start = 1767225600.0
    assert seen == Pending(
        key="n/r",
        created="2026-01-01T00:00:00Z",
        requests={"runs": 1},
        cancel=True,
        lifetime_ends=start + 3600,
        not_before=start + 60 + 20,
        explained=("SourceFailed", ""),
    )


def test_a_run_that_was_left_unclaimed_waits_a_minute() -> None:
    backoff = {
        "type": "Backoff",
        "status": "True",
        "reason": "Unscheduled",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    seen = pending(read(status={"phase": "Pending", "conditions": [backoff]}))
    assert seen is not None
    assert seen.not_before == 1767225600.0 + UNCLAIMED_SECONDS


def test_a_claimed_backoff_is_over() -> None:
    seen = pending(
        read(
            spec={"retryPolicy": {"backoff": "10s"}},
            status={
                "conditions": [
                    {"type": "Backoff", "status": "False", "lastTransitionTime": "2026-01-01T00:01:00Z"},
                ]
            },
        )
    )
    assert seen is not None
    assert seen.not_before == 0


def candidate(**metadata: Any) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "p", "uid": "u", "annotations": {"kruntimes.io/capacity.runs": "4"}} | metadata,
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        },
        Pod,
    )


def test_what_a_pod_offers() -> None:
    assert offer(candidate(), used={"runs": 1}, alive=True) == Offer(
        name="p", uid="u", capacity={"runs": 4}, used={"runs": 1}
    )


@pytest.mark.parametrize(
    ("one", "alive"),
    [
        pytest.param(candidate(), False, id="silent"),
        pytest.param(candidate(deletionTimestamp="2026-01-01T00:00:00Z"), True, id="deleting"),
        pytest.param(Pod(), True, id="not-ready"),
        pytest.param(candidate(annotations={"kruntimes.io/capacity.runs": "many"}), True, id="unreadable"),
    ],
)
def test_a_pod_that_offers_nothing(one: Pod, alive: bool) -> None:
    assert offer(one, used={}, alive=alive) is None


def test_usage_counts_at_least_one_run_each() -> None:
    runs = [read(), read(spec={"resources": {"requests": {"runs": "2", "gpu": 1}}})]
    assert usage(runs) == {"runs": 3, "gpu": 1}


@pytest.mark.parametrize(
    ("fields", "uid"),
    [
        pytest.param({"status": {"phase": "Ready", "assignedPodUID": "u"}}, "u", id="ready"),
        pytest.param(
            {
                "metadata": {"name": "r", "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"phase": "Ready", "assignedPodUID": "u"},
            },
            "u",
            id="deleting-still-holds",
        ),
        pytest.param({"status": {"phase": "Failed", "assignedPodUID": "u"}}, "", id="ended-keeps-its-history-only"),
        pytest.param({}, "", id="new"),
    ],
)
def test_whose_capacity_a_run_takes(fields: dict[str, Any], uid: str) -> None:
    assert read(**fields).occupies == uid
