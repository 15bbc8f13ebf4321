"""ReplicaSets: how many Pods, which go first, what the status says; and the loop, run by hand."""

import itertools
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver.plane import POD, START, Json, Loops, Plane

from kruntimes.local.apiserver.loops import replicas
from kruntimes.local.apiserver.loops.collector import Collector
from kruntimes.local.apiserver.loops.replicasets import ReplicaSets


def pod(
    name: str,
    *,
    node: str = "n",
    phase: str = "Running",
    ready: float | None = 100,
    cost: str | None = None,
    age: float = 200,
    restarts: int = 0,
) -> Json:
    """A Pod; ready and age: seconds ago, ready None for not Ready."""

    def ago(seconds: float) -> str:
        return (START - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    conditions = [] if ready is None else [{"type": "Ready", "status": "True", "lastTransitionTime": ago(ready)}]
    meta: Json = {"name": name, "creationTimestamp": ago(age), "labels": {"a": "b"}}
    if cost is not None:
        meta["annotations"] = {replicas.DELETION_COST: cost}
    status: Json = {"phase": phase, "conditions": conditions, "containerStatuses": [{"restartCount": restarts}]}
    return {"metadata": meta, "spec": {"nodeName": node} if node else {}, "status": status}


def replica_set(count: int, **spec: Any) -> Json:
    """A ReplicaSet of that many."""
    return {"metadata": {"name": "r", "generation": 3}, "spec": {"replicas": count, "template": {}, **spec}}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param({"node": "", "cost": "9"}, {}, id="unassigned"),
        pytest.param({"phase": "Pending", "cost": "9"}, {}, id="pending"),
        pytest.param(
            {"phase": "Pending", "ready": None}, {"phase": "Unknown", "ready": None}, id="pending-then-unknown"
        ),
        pytest.param({"ready": None, "cost": "9"}, {}, id="not-ready"),
        pytest.param({"cost": "-1"}, {}, id="cheap"),
        pytest.param({}, {"cost": "5"}, id="no-cost-is-zero"),
        pytest.param({"cost": "much"}, {"cost": "1"}, id="no-number-is-zero"),
        pytest.param({"node": "crowded"}, {}, id="on-a-crowded-node"),
        pytest.param({"ready": 10}, {"ready": 50}, id="ready-for-less-long"),
        pytest.param({"restarts": 3}, {}, id="restarted"),
        pytest.param({"age": 20}, {"age": 30}, id="younger"),
    ],
)
def test_who_goes_first(first: dict[str, Any], then: dict[str, Any]) -> None:
    crowd = [pod("x", node="crowded", cost="1000"), pod("y", node="crowded", cost="1000")]
    pods = [pod("then", **then), *crowd, pod("first", **first)]
    found = replicas.plan(replica_set(2), pods).delete
    assert found == ("first", "then")


def test_finished_and_going_pods_are_no_replicas() -> None:
    going = pod("going")
    going["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:30Z"
    pods = [going, pod("done", phase="Succeeded"), pod("failed", phase="Failed"), pod("one")]
    assert replicas.plan(replica_set(3), pods) == replicas.Plan(create=2)
    assert replicas.plan(replica_set(1), pods) == replicas.Plan()


@given(wanted=st.integers(0, 12), there=st.lists(st.sampled_from(["Pending", "Running", "Failed"]), max_size=12))
def test_a_plan_leads_to_the_number_that_is_wanted(wanted: int, there: list[str]) -> None:
    pods = [pod(str(i), phase=phase) for i, phase in enumerate(there)]
    plan = replicas.plan(replica_set(wanted), pods)
    alive = sum(phase != "Failed" for phase in there)
    assert alive + plan.create - len(plan.delete) == wanted
    assert not (plan.create and plan.delete)


def test_a_status_counts_ready_pods_and_those_ready_for_long_enough() -> None:
    pods = [pod("old", ready=60), pod("new", ready=10), pod("not", ready=None)]
    made, wait = replicas.status(replica_set(3, minReadySeconds=30), pods, now=START, failure=None)
    assert made == {
        "replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 2, "availableReplicas": 1, "observedGeneration": 3,
        "terminatingReplicas": 0,
    }  # fmt: skip
    assert wait == 20


class Case:
    """A control plane with the loop and the garbage collector."""

    def __init__(self) -> None:
        self.plane = Plane()
        self.plane.make("serviceaccounts", "default")
        self.loops = Loops(self.plane, ReplicaSets(self.plane.api), Collector(self.plane.api))

    def declare(self, name: str, count: int) -> Json:
        """A ReplicaSet of Pods labelled with its name."""
        template = {"metadata": {"labels": {"app": name}, "annotations": {"k": "v"}}, "spec": POD}
        spec = {"replicas": count, "selector": {"matchLabels": {"app": name}}, "template": template}
        made = self.plane.make("replicasets", name, spec=spec)
        self.loops.settle()
        return made

    def scale(self, name: str, count: int) -> None:
        def edit(obj: Json) -> Json:
            obj["spec"]["replicas"] = count
            return obj

        self.plane.api.change(self.plane.of("replicasets"), "default", name, edit)
        self.loops.settle()

    @property
    def status(self) -> Json:
        found = self.plane.found("replicasets", "r")
        assert found is not None
        return dict(found["status"])


@pytest.fixture
def case() -> Case:
    """Nothing declared yet."""
    return Case()


def test_pods_are_made_with_their_owner_and_told_about(case: Case) -> None:
    made = case.declare("r", 3)
    pods = case.plane.all("pods")
    assert len(pods) == 3
    for one in pods:
        meta = one["metadata"]
        assert meta["name"].startswith("r-")
        assert (meta["labels"], meta["annotations"]) == ({"app": "r"}, {"k": "v"})
        assert meta["ownerReferences"] == [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": made["metadata"]["uid"],
             "controller": True, "blockOwnerDeletion": True}
        ]  # fmt: skip
    assert case.status == {
        "replicas": 3, "fullyLabeledReplicas": 3, "observedGeneration": 1, "terminatingReplicas": 0,
    }  # fmt: skip
    reasons = [event["reason"] for event in case.plane.all("events")]
    assert reasons == ["SuccessfulCreate"] * 3


def test_scaling_makes_and_deletes(case: Case) -> None:
    case.declare("r", 1)
    for count in (4, 2, 0, 1):
        case.scale("r", count)
        assert len(case.plane.all("pods")) == count
        assert case.status["replicas"] == count


def test_a_pod_that_is_gone_is_made_again(case: Case) -> None:
    case.declare("r", 2)
    lost = case.plane.all("pods")[0]["metadata"]["name"]
    case.plane.remove("pods", lost)
    case.loops.settle()
    names = [one["metadata"]["name"] for one in case.plane.all("pods")]
    assert len(names) == 2
    assert lost not in names


def test_pods_go_with_their_replicaset(case: Case) -> None:
    case.declare("r", 2)
    case.declare("other", 1)
    case.plane.remove("replicasets", "r")
    case.loops.settle()
    assert [one["metadata"]["labels"]["app"] for one in case.plane.all("pods")] == ["other"]


def test_a_fitting_pod_without_owner_is_taken_and_one_that_no_longer_fits_let_go(case: Case) -> None:
    case.plane.make("pods", "mine", metadata={"labels": {"app": "r"}}, spec=POD)
    case.declare("r", 2)
    assert len(case.plane.all("pods")) == 2

    def relabel(obj: Json) -> Json:
        obj["metadata"]["labels"] = {"app": "else"}
        return obj

    case.plane.api.change(case.plane.of("pods"), "default", "mine", relabel)
    case.loops.settle()
    mine = case.plane.found("pods", "mine")
    assert mine is not None
    assert not mine["metadata"].get("ownerReferences")
    assert len(case.plane.all("pods")) == 3


def test_a_refusal_becomes_a_condition_and_is_tried_again(case: Case) -> None:
    case.plane.remove("serviceaccounts", "default")
    case.declare("r", 2)
    (condition,) = case.status["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    assert "serviceaccount" in condition["message"]
    assert case.loops.waits
    case.plane.make("serviceaccounts", "default")
    case.plane.pass_time(1)
    case.loops.look(("default", "r"))
    case.loops.settle()
    assert len(case.plane.all("pods")) == 2
    assert "conditions" not in case.status


def test_the_status_follows_the_pods(case: Case) -> None:
    case.declare("r", 2)
    name = case.plane.all("pods")[0]["metadata"]["name"]
    for status, count in itertools.product(("True", "False"), (1,)):

        def report(obj: Json, status: str = status) -> Json:
            condition = {"type": "Ready", "status": status, "lastTransitionTime": "2026-03-01T11:00:00Z"}
            obj["status"] |= {"phase": "Running", "conditions": [condition]}
            return obj

        case.plane.api.change(case.plane.of("pods"), "default", name, report, subresource="status")
        case.loops.settle()
        assert case.status.get("readyReplicas", 0) == (count if status == "True" else 0)
