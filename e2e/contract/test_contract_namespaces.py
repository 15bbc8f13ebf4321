"""Namespaces: what appears in a new one, and how one ends."""

from collections.abc import Callable
from functools import partial

import pytest
from contract.client import Api, Json, at, eventually
from contract.conftest import Server
from contract.objects import make, obj

HELD = "contract.example/held"


def gone(api: Api, ns: str) -> bool:
    """Whether the namespace is no longer there."""
    return api.get(at("namespaces", None, ns)).code == 404


def test_a_new_namespace(api: Api, name: str) -> None:
    made = api.create(at("namespaces"), {"metadata": {"name": name}}).ok(201)
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    api.delete(at("namespaces", None, name)).ok(200)


def test_the_label_of_its_name_comes_back(api: Api, new_namespace: Callable[[], str]) -> None:
    ns = new_namespace()
    patch = {"metadata": {"labels": {"kubernetes.io/metadata.name": None, "a": "b"}}}
    labels = api.patch(at("namespaces", None, ns), patch).ok(200)["metadata"]["labels"]
    assert labels == {"kubernetes.io/metadata.name": ns, "a": "b"}


def test_what_appears_in_a_new_namespace(api: Api, new_namespace: Callable[[], str]) -> None:
    ns = new_namespace()
    account = api.get(at("serviceaccounts", ns, "default")).ok(200)
    assert "secrets" not in account
    bundle = eventually(
        "CA bundle", lambda: a.body if (a := api.get(at("configmaps", ns, "kube-root-ca.crt"))).code == 200 else None
    )
    assert bundle["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----\n")
    assert list(bundle["data"]) == ["ca.crt"]


@pytest.mark.parametrize(("resource", "name"), [("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")])
def test_both_come_back_when_deleted(api: Api, new_namespace: Callable[[], str], resource: str, name: str) -> None:
    path = at(resource, new_namespace(), name)
    eventually(f"{name} first", lambda: api.exists(path))
    uid = api.get(path).ok(200)["metadata"]["uid"]
    api.delete(path).ok(200)

    def again() -> bool:
        answer = api.get(path)
        return answer.code == 200 and answer.body["metadata"]["uid"] != uid

    eventually(f"{name} again", again)


def test_the_bundle_cannot_be_changed_for_long(api: Api, new_namespace: Callable[[], str]) -> None:
    ns = new_namespace()
    path = at("configmaps", ns, "kube-root-ca.crt")
    before = eventually("CA bundle", lambda: a.body["data"] if (a := api.get(path)).code == 200 else None)
    api.patch(path, {"data": {"ca.crt": "changed"}}).ok(200)
    eventually("CA bundle restored", lambda: api.get(path).ok(200)["data"] == before)


FULL = ("configmaps", "secrets", "pods", "leases", "runs", "widgets", "roles", "replicasets", "services")
ON_A_NODE: Json = {
    "nodeName": "no-such-node",
    "tolerations": [{"operator": "Exists"}],
    "terminationGracePeriodSeconds": 1,
}


def prepare(api: Api, purpose: str, ns: str) -> None:
    """Fills the namespace of `ended` for *purpose*."""
    if purpose == "full":
        for resource in FULL:
            make(api, resource, ns, "a")
    elif purpose == "held":
        api.patch(at("namespaces", None, ns), {"metadata": {"finalizers": [HELD]}}).ok(200)
    else:
        for resource in ("configmaps", "runs"):
            make(api, resource, ns, "held", meta={"finalizers": [HELD]})
        make(api, "configmaps", ns, "free")
        make(api, "pods", ns, "on-a-node", spec=ON_A_NODE)


@pytest.fixture
def ended(server: Server) -> dict[str, str]:
    """Namespaces whose deletion was begun together, since each takes a real server five seconds: by purpose.

    full: with an object of many kinds. held: with a finalizer of its own. waits: with objects that finalizers hold,
    and a Pod on a node.
    """
    api, found = server.admin, {}
    for purpose in ("full", "held", "waits"):
        key = f"ended-{purpose}"
        if key not in server.namespaces:
            prepare(api, purpose, server.namespace(key))
            body = api.delete(at("namespaces", None, server.namespaces[key])).ok(200)
            assert body["status"]["phase"] == "Terminating"
            assert "deletionTimestamp" in body["metadata"]
            assert "deletionGracePeriodSeconds" not in body["metadata"]
        found[purpose] = server.namespaces[key]
    return found


def test_a_namespace_is_emptied_and_then_goes(api: Api, ended: dict[str, str]) -> None:
    eventually("namespace gone", lambda: gone(api, ended["full"]))
    for resource in FULL:
        assert api.get(at(resource, ended["full"])).ok(200)["items"] == []


def test_a_finalizer_of_the_namespace_itself(api: Api, ended: dict[str, str]) -> None:
    path = at("namespaces", None, ended["held"])
    eventually("emptied", lambda: "finalizers" not in api.get(path).ok(200)["spec"])
    api.patch(path, {"metadata": {"finalizers": None}}).ok(200)
    eventually("namespace gone", lambda: gone(api, ended["held"]))


@pytest.fixture
def ending(api: Api, new_namespace: Callable[[], str]) -> str:
    """A namespace that is being deleted and cannot end, since a finalizer holds a ConfigMap."""
    ns = new_namespace()
    make(api, "configmaps", ns, "held", meta={"finalizers": [HELD]})
    api.delete(at("namespaces", None, ns)).ok(200)
    return ns


def test_what_holds_a_namespace_and_what_it_says_meanwhile(api: Api, ended: dict[str, str]) -> None:
    """Pods go first, with their grace; everything else is left alone until none is there, and then finalizers hold it.

    One test, since the real namespace controller looks again only after some seconds.
    """
    ns = ended["waits"]
    paths = {r: at(r, ns, n) for r, n in (("configmaps", "held"), ("runs", "held"), ("pods", "on-a-node"))}

    def deleting(resource: str) -> bool:
        return "deletionTimestamp" in api.get(paths[resource]).ok(200)["metadata"]

    eventually("Pod deleting", lambda: deleting("pods"))
    assert api.get(paths["pods"]).ok(200)["metadata"]["deletionGracePeriodSeconds"] == 1
    assert not deleting("runs")
    api.delete(paths["pods"], {"gracePeriodSeconds": 0}).ok(200)
    eventually("the free object gone", lambda: api.get(at("configmaps", ns, "free")).code == 404)
    for resource in ("configmaps", "runs"):
        eventually("deleting", partial(deleting, resource))
    assert api.get(paths["runs"]).ok(200)["metadata"]["finalizers"] == [HELD]

    def told() -> Json | None:
        body = api.get(at("namespaces", None, ns)).ok(200)
        assert body["status"]["phase"] == "Terminating"
        conditions = {c["type"]: c for c in body["status"].get("conditions", [])}
        return conditions if conditions.get("NamespaceFinalizersRemaining", {}).get("status") == "True" else None

    conditions = eventually("conditions", told)
    assert f"{HELD} in 2 resource instances" in conditions["NamespaceFinalizersRemaining"]["message"]
    assert conditions["NamespaceContentRemaining"]["status"] == "True"
    assert conditions["NamespaceDeletionDiscoveryFailure"]["status"] == "False"
    for resource in ("configmaps", "runs"):
        api.patch(paths[resource], {"metadata": {"finalizers": None}}).ok(200)
    eventually("namespace gone", lambda: gone(api, ns), 60)


@pytest.mark.parametrize("resource", ["configmaps", "pods", "runs", "leases"])
def test_nothing_can_be_made_in_a_namespace_that_ends(api: Api, ending: str, resource: str) -> None:
    """403 with the cause NamespaceTerminating, which tells it from a missing right."""
    ns = ending
    answer = api.create(at(resource, ns), obj(resource, "new"))
    group = {"runs": ".kruntimes.io", "leases": ".coordination.k8s.io"}.get(resource, "")
    answer.refused(
        403,
        "Forbidden",
        f'{resource}{group} "new" is forbidden: unable to create new content in namespace {ns} because it is being '
        "terminated",
    )
    assert answer.causes == [("metadata.namespace", "NamespaceTerminating")]
    assert answer.cause_messages["metadata.namespace"] == f"namespace {ns} is being terminated"
    # What is there can still be written.
    api.patch(at("configmaps", ns, "held"), {"data": {"b": "2"}}).ok(200)
    api.patch(at("configmaps", ns, "held"), {"metadata": {"finalizers": None}}).ok(200)


def test_a_second_deletion_changes_nothing(api: Api, ending: str) -> None:
    ns = ending
    first, second = (api.delete(at("namespaces", None, ns)).ok(200)["metadata"] for _ in range(2))
    assert first["deletionTimestamp"] == second["deletionTimestamp"]
    api.patch(at("configmaps", ns, "held"), {"metadata": {"finalizers": None}}).ok(200)


def test_spec_finalizers_are_written_by_their_subresource_only(api: Api, new_namespace: Callable[[], str]) -> None:
    ns = new_namespace()
    path = at("namespaces", None, ns)
    assert api.patch(path, {"spec": {"finalizers": []}}).ok(200)["spec"] == {"finalizers": ["kubernetes"]}
    body = api.get(path).ok(200)
    body["spec"]["finalizers"] = ["kubernetes", HELD]
    assert api.replace(f"{path}/finalize", body).ok(200)["spec"]["finalizers"] == ["kubernetes", HELD]
    body = api.get(path).ok(200)
    body["spec"]["finalizers"] = ["kubernetes"]
    api.replace(f"{path}/finalize", body).ok(200)


@pytest.mark.parametrize("ns", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_namespaces_that_are_always_there(api: Api, ns: str) -> None:
    assert api.get(at("namespaces", None, ns)).ok(200)["status"]["phase"] == "Active"


@pytest.mark.parametrize("ns", ["default", "kube-system", "kube-public"])
def test_namespaces_that_cannot_be_deleted(api: Api, ns: str) -> None:
    api.delete(at("namespaces", None, ns)).refused(
        403, "Forbidden", f'namespaces "{ns}" is forbidden: this namespace may not be deleted'
    )
