"""Namespaces: what they come with, and how they end."""

import pytest
from tests.apiserver.plane import POD, Json, Loops, Plane

from kruntimes.local.apiserver.loops.namespaces import Emptier, Furnisher
from kruntimes.local.apiserver.status import StatusError


class Case:
    """A control plane with both loops."""

    def __init__(self) -> None:
        self.plane = Plane()
        self.loops = Loops(self.plane, Furnisher(self.plane.api, ca="the CA"), Emptier(self.plane.api))
        self.plane.make("namespaces", "demo")
        self.loops.settle()

    def delete(self) -> None:
        """Deletes the namespace and lets the loops work."""
        self.plane.remove("namespaces", "demo")
        self.loops.settle()


@pytest.fixture
def case() -> Case:
    """With Namespace `demo`."""
    return Case()


def test_it_comes_with_an_account_and_the_ca(case: Case) -> None:
    assert case.plane.found("serviceaccounts", "default", namespace="demo")
    bundle = case.plane.found("configmaps", "kube-root-ca.crt", namespace="demo")
    assert bundle is not None
    assert bundle["data"] == {"ca.crt": "the CA"}


def test_both_come_back(case: Case) -> None:
    case.plane.remove("serviceaccounts", "default", namespace="demo")
    case.plane.remove("configmaps", "kube-root-ca.crt", namespace="demo")
    case.loops.settle()
    assert case.plane.found("serviceaccounts", "default", namespace="demo")
    assert case.plane.found("configmaps", "kube-root-ca.crt", namespace="demo")


def test_a_changed_bundle_is_put_right(case: Case) -> None:
    maps = case.plane.of("configmaps")
    case.plane.api.change(maps, "demo", "kube-root-ca.crt", lambda obj: {**obj, "data": {"ca.crt": "another"}})
    case.loops.settle()
    bundle = case.plane.found("configmaps", "kube-root-ca.crt", namespace="demo")
    assert bundle is not None
    assert bundle["data"] == {"ca.crt": "the CA"}


def test_it_goes_with_everything_in_it(case: Case) -> None:
    case.plane.make("configmaps", "a", namespace="demo")
    case.plane.make("pods", "p", namespace="demo", spec=POD)
    case.plane.make("roles", "r", namespace="demo", rules=[])
    case.delete()
    assert case.plane.found("namespaces", "demo") is None
    assert [obj for plural in ("configmaps", "pods", "roles") for obj in case.plane.all(plural, "demo")] == []


def test_what_is_held_holds_it_and_is_named(case: Case) -> None:
    case.plane.make("configmaps", "a", namespace="demo", metadata={"finalizers": ["example.com/hold"]})
    case.delete()
    namespace = case.plane.found("namespaces", "demo")
    assert namespace is not None
    assert namespace["status"]["phase"] == "Terminating"
    said = {c["type"]: (c["status"], c["message"]) for c in namespace["status"]["conditions"]}
    assert said["NamespaceContentRemaining"] == (
        "True", "Some resources are remaining: configmaps. has 1 resource instances",
    )  # fmt: skip
    assert said["NamespaceFinalizersRemaining"][0] == "True"
    with pytest.raises(StatusError) as refused:
        case.plane.make("configmaps", "b", namespace="demo")
    assert refused.value.code == 403

    def release(obj: Json) -> Json:
        obj["metadata"]["finalizers"] = []
        return obj

    case.plane.api.change(case.plane.of("configmaps"), "demo", "a", release)
    case.loops.settle()
    assert case.plane.found("namespaces", "demo") is None


def test_a_pod_on_a_node_holds_it_until_the_node_has_ended_it(case: Case) -> None:
    case.plane.make("pods", "p", namespace="demo", spec={**POD, "nodeName": "n"})
    case.plane.make("secrets", "s", namespace="demo")
    case.delete()
    assert case.plane.found("namespaces", "demo") is not None
    assert case.plane.found("secrets", "s", namespace="demo"), "its Pods may need it until they have ended"
    pods = case.plane.of("pods")
    pod = case.plane.found("pods", "p", namespace="demo")
    assert pod is not None
    assert "deletionTimestamp" in pod["metadata"]
    case.plane.api.store.remove(pods, "demo", "p")
    case.loops.settle()
    assert case.plane.found("namespaces", "demo") is None
