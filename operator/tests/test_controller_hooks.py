"""What the hooks of an installation do around its life, on a control plane of their own: they end all that is on it.

No operator runs here, so that what it would do is missing where a case wants that; where one wants it done, the test
is the operator.
"""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.controller_world import eventually

from kruntimes.common.api import manifests
from kruntimes.common.api.names import CA_NAME, FINALIZER, RUNTIMED_SERVICE_ACCOUNT
from kruntimes.common.api.views import Object
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import Missing
from kruntimes.common.kube.transport import Kube
from kruntimes.controller.hooks.definitions import apply_definitions, remove_definitions
from kruntimes.controller.hooks.leave import Leaving
from kruntimes.controller.hooks.remains import remove_remains
from kruntimes.controller.main import LEASE
from kruntimes.controller.podtemplate import MANAGED_BY

Json = dict[str, Any]
SYSTEM, PLACE = "kruntimes-system", "default"
START_SECONDS = 30.0
RELEASE = "app.kubernetes.io/managed-by=Helm,app.kubernetes.io/instance=kruntimes"
LABELS = dict(part.split("=") for part in RELEASE.split(","))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An administrator's kubeconfig of a control plane that nobody else uses."""
    state = tmp_path_factory.mktemp("plane")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "kruntimes.local.apiserver", "--listen", address, "--state", str(state)]
    with open(state / "output", "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield state / "admin.kubeconfig"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
async def kube(plane: Path) -> AsyncIterator[Kube]:
    """A client, and the definitions in force."""

    async def written() -> bool:
        return plane.exists()

    await eventually(written, START_SECONDS)
    client = await Kube.connect(kubeconfig=plane)

    async def answers() -> bool:
        with contextlib.suppress(Exception):
            await client.request("GET", "/readyz")
            return True
        return False

    try:
        await eventually(answers, START_SECONDS)
        await apply_definitions(client)
        with contextlib.suppress(Missing):
            await client.apply(paths.namespaces(SYSTEM), _object("v1", "Namespace", SYSTEM), dict, manager="test")
        yield client
        await Leaving(client, runtimes="", seconds=0.0).run()
    finally:
        await client.close()


def _object(version: str, kind: str, name: str, namespace: str = "", **more: Any) -> Json:
    metadata: Json = {"name": name, **more.pop("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


async def _run(kube: Kube, name: str, *, finalizer: bool) -> Object:
    """A Run as it stands in its first moment, or, with our finalizer, as a runtimed holds it."""
    spec = {
        "runtime": "python",
        "source": {"inline": "def handler(e): return e", "inlinePath": "f.py"},
        "mode": {"function": {"handler": "f.handler"}},
    }
    metadata = {"finalizers": [FINALIZER]} if finalizer else {}
    body = _object("kruntimes.io/v1alpha1", "Run", name, PLACE, metadata=metadata, spec=spec)
    return await kube.create(paths.runs(PLACE), body, Object)


async def _runtime(kube: Kube, name: str, labels: dict[str, str]) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "runtime", "image": "none"}]}}}
    body = _object("kruntimes.io/v1alpha1", "Runtime", name, PLACE, metadata={"labels": labels}, spec=spec)
    await kube.create(paths.runtimes(PLACE), body, dict)


async def _pod(kube: Kube, name: str, runtime: str) -> None:
    labels = {**MANAGED_BY, "runtime": runtime}
    spec = {"containers": [{"name": "runtime", "image": "none"}], "nodeName": "nowhere"}
    await kube.create(
        paths.pods(PLACE), _object("v1", "Pod", name, PLACE, metadata={"labels": labels}, spec=spec), dict
    )


async def _names(kube: Kube, path: str) -> set[str]:
    try:
        found, _ = await kube.list(path, Object)
    except Missing:
        return set()
    return {one.metadata.name for one in found}


class TestLeave:
    async def test_runs_and_the_releases_runtimes_end(self, kube: Kube) -> None:
        await _run(kube, "waiting", finalizer=False)
        await _runtime(kube, "ours", LABELS)
        await _runtime(kube, "theirs", {})
        await Leaving(kube, runtimes=RELEASE, seconds=20).run()
        assert await _names(kube, paths.runs(None)) == set()
        assert await _names(kube, paths.runtimes(None)) == {"theirs"}

    async def test_everybodys_runtimes_end_where_their_kind_will_go(self, kube: Kube) -> None:
        await _runtime(kube, "theirs", {})
        await Leaving(kube, runtimes="", seconds=20).run()
        assert await _names(kube, paths.runtimes(None)) == set()

    async def test_a_finalizer_is_left_to_whom_it_belongs_while_there_is_time(self, kube: Kube) -> None:
        held = await _run(kube, "held", finalizer=True)
        path = paths.runs(PLACE, "held")
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(Leaving(kube, runtimes=RELEASE, seconds=30).run())

            async def deleting() -> Object | None:
                found = await kube.get(path, Object)
                return found if found.metadata.deleting else None

            found = await eventually(deleting)
            assert found.metadata.uid == held.metadata.uid
            assert FINALIZER in found.metadata.finalizers
            assert not leaving.done()
            await kube.patch_merge(path, {"metadata": {"finalizers": None}}, Object)
        assert await _names(kube, paths.runs(None)) == set()

    async def test_a_finalizer_that_nobody_takes_off_is_taken_off(
        self, kube: Kube, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nobody of ours will be left who could; what somebody else wants to be told of stays his."""
        await _run(kube, "held", finalizer=True)
        await _run(kube, "theirs", finalizer=True)
        both = {"metadata": {"finalizers": [FINALIZER, "example.com/theirs"]}}
        await kube.patch_merge(paths.runs(PLACE, "theirs"), both, Object)
        leaving = Leaving(kube, runtimes=RELEASE, seconds=0.0, finalizer_seconds=0.5)
        await leaving.run()
        found, _ = await kube.list(paths.runs(None), Object)
        assert [(run.metadata.name, run.metadata.finalizers) for run in found] == [("theirs", ("example.com/theirs",))]
        assert caplog.text.count("finalizer taken off without proof") == 2
        await kube.patch_merge(paths.runs(PLACE, "theirs"), {"metadata": {"finalizers": None}}, Object)

    async def test_the_pods_of_a_runtime_that_went_are_waited_for(self, kube: Kube) -> None:
        """They drain, and need their roles for it."""
        await _pod(kube, "drains", "gone")
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(Leaving(kube, runtimes=RELEASE, seconds=30).run())
            done, _ = await asyncio.wait({leaving}, timeout=1.0)
            assert not done
            await kube.delete(paths.pods(PLACE, "drains"), grace_seconds=0)

    async def test_the_pods_of_others_are_not_waited_for(self, kube: Kube) -> None:
        await _runtime(kube, "theirs", {})
        await _pod(kube, "works", "theirs")
        async with asyncio.timeout(20):
            await Leaving(kube, runtimes=RELEASE, seconds=30).run()
        await kube.delete(paths.pods(PLACE, "works"), grace_seconds=0)

    async def test_nothing_to_end_is_an_end(self, kube: Kube) -> None:
        """A release whose definitions somebody has deleted can be uninstalled."""
        await remove_definitions(kube)
        async with asyncio.timeout(20):
            await Leaving(kube, runtimes=RELEASE, seconds=30).run()


class TestRemains:
    async def _leave_behind(self, kube: Kube) -> None:
        labels = {"metadata": {"labels": MANAGED_BY}}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": RUNTIMED_SERVICE_ACCOUNT}
        rbac = "rbac.authorization.k8s.io/v1"
        for path, body in (
            (paths.serviceaccounts(PLACE), _object("v1", "ServiceAccount", RUNTIMED_SERVICE_ACCOUNT, PLACE, **labels)),
            (
                paths.rolebindings(PLACE),
                _object(rbac, "RoleBinding", "kruntimes-runtimed", PLACE, roleRef=role, **labels),
            ),
            (paths.configmaps(PLACE), _object("v1", "ConfigMap", CA_NAME, PLACE, **labels)),
            (paths.configmaps(SYSTEM), _object("v1", "ConfigMap", CA_NAME, SYSTEM, **labels)),
            (paths.secrets(SYSTEM), _object("v1", "Secret", CA_NAME, SYSTEM, **labels)),
            (paths.leases(SYSTEM), _object("coordination.k8s.io/v1", "Lease", LEASE, SYSTEM)),
        ):
            await kube.apply(f"{path}/{body['metadata']['name']}", body, dict, manager="test")

    async def _left(self, kube: Kube) -> set[str]:
        places = {
            "account": (paths.serviceaccounts(PLACE), RUNTIMED_SERVICE_ACCOUNT),
            "binding": (paths.rolebindings(PLACE), "kruntimes-runtimed"),
            "bundle": (paths.configmaps(PLACE), CA_NAME),
            "system bundle": (paths.configmaps(SYSTEM), CA_NAME),
            "key": (paths.secrets(SYSTEM), CA_NAME),
            "lease": (paths.leases(SYSTEM), LEASE),
        }
        return {what for what, (path, name) in places.items() if name in await _names(kube, path)}

    async def test_what_the_operator_made_goes(self, kube: Kube) -> None:
        await self._leave_behind(kube)
        await remove_remains(kube, namespace=SYSTEM)
        assert await self._left(kube) == set()
        await remove_remains(kube, namespace=SYSTEM)  # a repeat after a failure finds nothing to do

    async def test_what_a_runtime_of_somebody_else_needs_stays(self, kube: Kube) -> None:
        await self._leave_behind(kube)
        await _runtime(kube, "theirs", {})
        await remove_remains(kube, namespace=SYSTEM)
        assert await self._left(kube) == {"account", "binding", "bundle"}

    async def test_what_only_has_our_name_stays(self, kube: Kube) -> None:
        body = _object("v1", "ConfigMap", CA_NAME, PLACE)
        await kube.apply(paths.configmaps(PLACE, CA_NAME), {**body, "data": {"a": "b"}}, dict, manager="test")
        await kube.patch_merge(paths.configmaps(PLACE, CA_NAME), {"metadata": {"labels": None}}, Object)
        await remove_remains(kube, namespace=SYSTEM)
        assert await self._left(kube) == {"bundle"}
        await kube.delete(paths.configmaps(PLACE, CA_NAME))


class TestDefinitions:
    async def test_an_older_definition_is_brought_up_to_date(self, kube: Kube) -> None:
        name = "runs.kruntimes.io"
        old = {"spec": {"names": {"shortNames": ["old"]}}}
        await kube.patch_merge(paths.crds(name), old, dict)
        await apply_definitions(kube)
        held = await kube.get(paths.crds(name), dict)
        assert held["spec"]["names"]["shortNames"] == ["rn"]

    async def test_they_go_with_what_they_define(self, kube: Kube) -> None:
        await _run(kube, "last", finalizer=False)
        await remove_definitions(kube)
        found, _ = await kube.list(paths.crds(), Object)
        assert not {one.metadata.name for one in found} & {crd["metadata"]["name"] for crd in manifests.crds()}
