"""The operator's rights are what it uses: everything that it asks of a real API server, against its role.

That it may do what it does is proved by every other test here, which all run with this role; this one proves that
the role holds nothing else.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.controller_world import Json, World, eventually, world

from kruntimes.common.api import manifests
from kruntimes.common.api.names import FINALIZER, RUNTIMED_ROLE
from kruntimes.common.api.views import Runtime, condition
from kruntimes.common.kube import paths
from kruntimes.common.kube.csr import CertificateNames, CertificateRefused, request_certificate
from kruntimes.common.kube.transport import APPLY_PATCH, Kube
from kruntimes.controller.signer import ensure_authority

Right = tuple[str, str]
"""A verb and `group/resource[/subresource]`."""

NOT_SEEN: dict[Right, str] = {
    ("get", "kruntimes.io/runs"): "reads again what a write of unknown outcome has left",
    ("get", "apps/replicasets"): "looks whose ReplicaSet has the name that is wanted",
    ("patch", "/events"): "counts up an Event that repeats after ten seconds",
    ("get", "coordination.k8s.io/leases"): "the election, which these tests stand in for",
    ("create", "coordination.k8s.io/leases"): "the election",
    ("patch", "coordination.k8s.io/leases"): "the election",
    ("update", "kruntimes.io/runtimes/finalizers"): "asked by admission, for owners with blockOwnerDeletion",
    ("bind", "rbac.authorization.k8s.io/clusterroles"): "asked by the API server when the role is handed on",
    ("approve", "certificates.k8s.io/signers"): "asked by admission",
    ("sign", "certificates.k8s.io/signers"): "asked by admission",
    ("patch", "certificates.k8s.io/certificatesigningrequests/status"): "a certificate issued: the tests of the signer",
}
"""What this life does not come to, and what needs it."""


class Recording(Kube):
    """A client that notes what it asks, as an authorizer sees it."""

    asked: ClassVar[set[Right]]

    async def request(self, method: str, path: str, **more: Any) -> bytes:  # type: ignore[override]
        self._note(method, path, apply=more.get("content_type") == APPLY_PATCH)
        return await super().request(method, path, **more)

    @asynccontextmanager
    async def stream(self, path: str, **more: Any) -> AsyncIterator[AsyncIterator[bytes]]:  # type: ignore[override]
        self.asked.add(("watch", _resource(path)[0]))
        async with super().stream(path, **more) as pieces:
            yield pieces

    def _note(self, method: str, path: str, *, apply: bool) -> None:
        resource, named = _resource(path)
        verb = {"GET": "get" if named else "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]
        self.asked.add((verb, resource))
        if apply and not resource.endswith("/status"):
            self.asked.add(("create", resource))


def _resource(path: str) -> tuple[str, bool]:
    """`group/resource[/subresource]` of a path, and whether it names an object."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces":
        rest = rest[2:]
    return "/".join([group, rest[0], *rest[2:]]), len(rest) > 1


def granted() -> set[Right]:
    """What the role of the operator, and its role in its own namespace, give it."""
    roles = [obj for obj in manifests.rbac() if "rules" in obj and obj["metadata"]["name"] == "kruntimes-operator"]
    assert {obj["kind"] for obj in roles} == {"ClusterRole", "Role"}
    return {
        (verb, f"{group}/{resource}")
        for obj in roles
        for rule in obj["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.fixture
async def place(control_plane: Path, tmp_path: Path) -> AsyncIterator[World]:
    async with world(control_plane, tmp_path) as made:
        yield made


async def live(place: World) -> None:
    """What comes up in the life of an installation."""
    await place.runtime("python", replicas=2, runs=1)
    await place.ready_pods("python", 2)
    await place.create_run("held", "python")
    held = await place.until("held", lambda run: run.state.phase == "Scheduled")
    template = {"spec": {"containers": [{"name": "runtime", "image": "registry.test/py:2"}]}}
    await place.runtime("python", replicas=1, runs=1, template=template)
    old = {one.metadata.uid for one in await place.pods("python", 3) if one.ready}
    (pod,) = [one for one in await place.pods("python", 3) if one.metadata.uid not in old]
    await place.beat(pod)
    await place.make_ready(pod)
    kube = await place.client(await place.token(place.namespace, "kruntimes-runtimed", pod))
    try:
        with pytest.raises(CertificateRefused):
            await request_certificate(kube, signer="kruntimes.io/runtimed", names=CertificateNames(dns=("x.test",)))
    finally:
        await kube.close()
    path = paths.runs(place.namespace, "held")
    await place.admin.patch_merge(path, {"metadata": {"finalizers": [FINALIZER]}}, dict)
    gone = paths.pods(place.namespace, held.state.assigned_pod)
    await place.admin.delete(gone, grace_seconds=0)
    lost = held.state.assigned_pod_uid  # the other Pod may have it at once
    await place.until("held", lambda run: not run.holds_finalizer and run.state.assigned_pod_uid != lost)
    await place.create_run("ended", "nowhere", cancelRequested=True, ttlSecondsAfterFinished=1)
    await place.admin.create(
        paths.services(place.namespace), {"metadata": {"name": "other"}, "spec": {"ports": [{"port": 80}]}}, dict
    )
    await place.runtime("other")

    async def settled() -> bool:
        other = await place.admin.get(paths.runtimes(place.namespace, "other"), Runtime)
        told = condition(other.status.conditions, "Progressing")
        sets, _ = await place.admin.list(paths.replicasets(place.namespace), dict)
        return told is not None and told.reason == "ServiceExists" and len(sets) == 1 and not await place.run("ended")

    await eventually(settled)
    for name in ("python", "other"):
        await place.admin.delete(paths.runtimes(place.namespace, name))

    async def withdrawn() -> bool:
        bindings: list[Json]
        bindings, _ = await place.admin.list(paths.rolebindings(place.namespace), dict)
        return all(one["metadata"]["name"] != RUNTIMED_ROLE for one in bindings)

    await eventually(withdrawn)


async def test_the_operator_uses_every_right_that_it_has(place: World) -> None:
    class Noting(Recording):
        asked: ClassVar[set[Right]] = set()

    async with place.operator(Noting):
        await live(place)
    again = await Noting.connect(kubeconfig=place.kubeconfig(await place.token(place.system, "kruntimes-operator")))
    await ensure_authority(again, place.system)
    await again.close()
    assert granted() - Noting.asked - NOT_SEEN.keys() == set(), "granted, and used by nothing"
    assert Noting.asked - granted() == set(), "asked for, and not granted"
    assert NOT_SEEN.keys() & Noting.asked == set(), "seen after all"
