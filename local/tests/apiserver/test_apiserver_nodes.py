"""Nodes that fall silent, come back and go, and what becomes of their Pods."""

from datetime import timedelta
from typing import Any

import pytest
from tests.apiserver.plane import POD, START, Json, Loops, Plane

from kruntimes.local.apiserver.loops import node_life
from kruntimes.local.apiserver.loops.nodes import Nodes

GRACE = node_life.GRACE_SECONDS


def taint(key: str = node_life.UNREACHABLE, effect: str = "NoExecute", **more: Any) -> Json:
    return {"key": key, "effect": effect, "timeAdded": "2026-03-01T12:00:00Z", **more}


FOREVER: Json = {"operator": "Exists"}
SHORT: Json = {"key": node_life.UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}


@pytest.mark.parametrize(
    ("tolerations", "taints", "after"),
    [
        pytest.param([], [taint()], 0, id="tolerates-nothing"),
        pytest.param([], [taint(effect="NoSchedule")], None, id="not-an-eviction"),
        pytest.param([FOREVER], [taint()], None, id="tolerates-all"),
        pytest.param([SHORT], [taint()], 30, id="for-a-time"),
        pytest.param([FOREVER, SHORT], [taint()], 30, id="the-shortest-counts"),
        pytest.param([{**SHORT, "effect": ""}], [taint()], 30, id="any-effect"),
        pytest.param([{**SHORT, "key": "other"}], [taint()], 0, id="another-taint"),
        pytest.param([{**SHORT, "tolerationSeconds": -1}], [taint()], 0, id="negative"),
        pytest.param([{"key": "k", "value": "v"}], [taint("k", value="v")], None, id="equal-value"),
        pytest.param([{"key": "k", "value": "w"}], [taint("k", value="v")], 0, id="other-value"),
        pytest.param([SHORT], [taint(), taint("k")], 0, id="two-taints"),
    ],
)
def test_when_a_pod_has_to_go(tolerations: list[Json], taints: list[Json], after: float | None) -> None:
    found = node_life.evicted_at({"spec": {"tolerations": tolerations}}, taints)
    assert found == (None if after is None else START + timedelta(seconds=after))


class Case:
    """A node that reports, with a Pod that tolerates its silence for 30 s."""

    def __init__(self) -> None:
        self.plane = Plane()
        self.loops = Loops(self.plane, Nodes(self.plane.api))
        self.plane.make("serviceaccounts", "default")
        self.plane.make("nodes", "n")
        self.plane.make("leases", "n", namespace="kube-node-lease", spec={"holderIdentity": "n"})
        self.plane.make("pods", "p", spec={**POD, "nodeName": "n", "tolerations": [SHORT]})
        self.report()
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T11:00:00Z"}]
        self.write("pods", "p", conditions=conditions, phase="Running")

    def write(self, plural: str, name: str, **status: Any) -> None:
        def edit(obj: Json) -> Json:
            obj["status"] = {**obj.get("status", {}), **status}
            return obj

        kind = self.plane.of(plural)
        namespace = "default" if kind.namespaced else ""
        self.plane.api.change(kind, namespace, name, edit, subresource="status")
        self.loops.settle()

    def report(self) -> None:
        """The node says that it is ready."""
        self.write(
            "nodes",
            "n",
            conditions=[{"type": "Ready", "status": "True", "lastHeartbeatTime": self.plane.now.isoformat()}],
        )

    def renew(self) -> None:
        """The node renews its Lease."""
        leases = self.plane.of("leases")

        def edit(obj: Json) -> Json:
            obj["spec"]["renewTime"] = self.plane.now.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
            return obj

        self.plane.api.change(leases, "kube-node-lease", "n", edit)
        self.loops.settle()

    def later(self, seconds: float) -> None:
        """That much later, as the loop's own timer would have it."""
        self.plane.pass_time(seconds)
        self.loops.look("n")
        self.loops.settle()

    @property
    def ready(self) -> str:
        node = self.plane.found("nodes", "n")
        assert node is not None
        return next(str(c["status"]) for c in node["status"]["conditions"] if c["type"] == "Ready")

    @property
    def taints(self) -> set[tuple[str, str]]:
        node = self.plane.found("nodes", "n")
        assert node is not None
        return {(t["key"], t["effect"]) for t in node["spec"].get("taints") or ()}

    @property
    def pod(self) -> Json | None:
        return self.plane.found("pods", "p")


@pytest.fixture
def case() -> Case:
    """All well."""
    return Case()


BOTH = {(node_life.UNREACHABLE, "NoSchedule"), (node_life.UNREACHABLE, "NoExecute")}


def test_a_node_that_reports_is_ready_and_untainted(case: Case) -> None:
    assert (case.ready, case.taints) == ("True", set())
    assert case.loops.waits == {"n": GRACE}


def test_a_lease_alone_keeps_it_alive(case: Case) -> None:
    for _ in range(5):
        case.later(GRACE - 1)
        case.renew()
    assert (case.ready, case.taints) == ("True", set())


def test_silence_makes_it_unknown_and_its_pods_unready_and_then_they_go(case: Case) -> None:
    case.later(GRACE)
    assert (case.ready, case.taints) == ("Unknown", BOTH)
    assert case.pod is not None
    (condition,) = (c for c in case.pod["status"]["conditions"] if c["type"] == "Ready")
    assert (condition["status"], condition["reason"]) == ("False", "NodeNotReady")
    assert case.loops.waits == {"n": 30}
    case.later(29)
    assert "deletionTimestamp" not in case.pod["metadata"]
    case.later(1)
    assert "deletionTimestamp" in case.pod["metadata"]


def test_it_comes_back_with_its_next_report(case: Case) -> None:
    case.later(GRACE)
    case.renew()
    case.report()
    assert (case.ready, case.taints) == ("True", set())
    case.later(35)
    assert case.pod is not None
    assert "deletionTimestamp" not in case.pod["metadata"]


def test_a_node_that_says_it_is_not_ready_is_tainted(case: Case) -> None:
    case.write("nodes", "n", conditions=[{"type": "Ready", "status": "False"}])
    assert case.taints == {(node_life.NOT_READY, "NoSchedule"), (node_life.NOT_READY, "NoExecute")}


def test_the_pods_of_a_node_that_is_gone_are_removed(case: Case) -> None:
    case.plane.remove("nodes", "n")
    case.loops.settle()
    assert case.loops.waits == {"n": node_life.ORPHAN_SECONDS}
    case.later(node_life.ORPHAN_SECONDS - 1)
    assert case.pod
    case.later(1)
    assert case.pod is None


def test_a_node_that_is_back_keeps_its_pods(case: Case) -> None:
    case.plane.remove("nodes", "n")
    case.loops.settle()
    case.later(node_life.ORPHAN_SECONDS - 1)
    case.plane.make("nodes", "n")
    case.later(1)
    assert case.pod


def test_a_pod_of_no_node_is_removed(case: Case) -> None:
    case.plane.make("pods", "lost", spec={**POD, "nodeName": "none"})
    case.loops.settle()
    case.plane.pass_time(node_life.ORPHAN_SECONDS)
    case.loops.look("none")
    case.loops.settle()
    assert case.plane.found("pods", "lost") is None
    case.plane.make("pods", "later", spec={**POD, "nodeName": "none"})
    case.loops.settle()
    assert case.plane.found("pods", "later"), "its own time counts"
