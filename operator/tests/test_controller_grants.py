"""Who may do a runtimed's work, and for how long: on a real API server, and the reading of bindings by itself."""

from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest
from tests.controller_world import Json, World, eventually, world

from kruntimes.common.api.names import RUNTIMED_ROLE, RUNTIMED_SERVICE_ACCOUNT
from kruntimes.common.api.views import Meta, Runtime, condition
from kruntimes.common.kube import paths
from kruntimes.controller.grants import standing
from kruntimes.controller.views import RoleBinding, RoleRef, Subject


@pytest.fixture
async def place(control_plane: Path, tmp_path: Path) -> AsyncIterator[World]:
    async with world(control_plane, tmp_path) as made:
        yield made


async def bound(place: World, names: Collection[str]) -> None:
    """Waits until exactly *names* have a runtimed's rights; with no name, until there is no binding at all."""

    async def found() -> bool:
        held, _ = await place.admin.list(
            paths.rolebindings(place.namespace), RoleBinding, field_selector=f"metadata.name={RUNTIMED_ROLE}"
        )
        return [sorted(standing(one)) for one in held] == ([sorted(names)] if names else [])

    await eventually(found)


def template(account: str) -> Json:
    containers = [{"name": "runtime", "image": "registry.test/py:1"}]
    return {"spec": {"serviceAccountName": account, "containers": containers}}


async def test_a_binding_and_an_account_that_were_deleted_come_back(place: World) -> None:
    async with place.operator():
        await place.runtime("python")
        await bound(place, [RUNTIMED_SERVICE_ACCOUNT])
        await place.admin.delete(paths.rolebindings(place.namespace, RUNTIMED_ROLE))
        await bound(place, [RUNTIMED_SERVICE_ACCOUNT])
        stripped = {"subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": place.namespace}]}
        await place.admin.patch_merge(paths.rolebindings(place.namespace, RUNTIMED_ROLE), stripped, dict)
        await bound(place, [RUNTIMED_SERVICE_ACCOUNT])
        path = paths.serviceaccounts(place.namespace, RUNTIMED_SERVICE_ACCOUNT)
        first: Json = await place.admin.get(path, dict)
        await place.admin.delete(path)

        async def back() -> bool:
            found, _ = await place.admin.list(paths.serviceaccounts(place.namespace), dict)
            made: list[Json] = [one for one in found if one["metadata"]["name"] == RUNTIMED_SERVICE_ACCOUNT]
            return bool(made) and made[0]["metadata"]["uid"] != first["metadata"]["uid"]

        await eventually(back)


async def test_an_account_keeps_its_rights_as_long_as_a_runtime_or_a_pod_uses_it(place: World) -> None:
    async with place.operator():
        await place.admin.create(paths.serviceaccounts(place.namespace), {"metadata": {"name": "mine"}}, dict)
        await place.runtime("python", template=template("mine"))
        await bound(place, ["mine"])
        (pod,) = await place.pods("python", 1)
        held = {"metadata": {"finalizers": ["test.kruntimes.io/drains"]}}
        await place.admin.patch_merge(paths.pods(place.namespace, pod.metadata.name), held, dict)
        await place.runtime("other")
        await bound(place, ["mine", RUNTIMED_SERVICE_ACCOUNT])
        await place.admin.delete(paths.runtimes(place.namespace, "python"))
        await place.pods("python", 0)
        await bound(place, ["mine", RUNTIMED_SERVICE_ACCOUNT])
        freed = {"metadata": {"finalizers": None}}
        await place.admin.patch_merge(paths.pods(place.namespace, pod.metadata.name), freed, dict)
        await bound(place, [RUNTIMED_SERVICE_ACCOUNT])
        await place.admin.delete(paths.runtimes(place.namespace, "other"))
        await bound(place, [])


async def test_a_foreign_binding_of_the_name_is_left_alone_and_told(place: World) -> None:
    path = paths.rolebindings(place.namespace, RUNTIMED_ROLE)
    foreign = {
        "metadata": {"name": RUNTIMED_ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "somebody", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await place.admin.create(path.rpartition("/")[0], foreign, dict)
    async with place.operator():
        await place.runtime("python")

        async def told() -> bool:
            found = await place.admin.get(paths.runtimes(place.namespace, "python"), Runtime)
            held = condition(found.status.conditions, "Progressing")
            return held is not None and held.reason == "RoleBindingExists"

        await eventually(told)
        kept: Json = await place.admin.get(path, dict)
        assert kept["roleRef"]["name"] == "view"
        await place.admin.delete(path)
        await bound(place, [RUNTIMED_SERVICE_ACCOUNT])
        await place.pods("python", 1)


def binding(*subjects: Subject, role: str = RUNTIMED_ROLE, **meta: str) -> RoleBinding:
    metadata = Meta(name=RUNTIMED_ROLE, namespace="a", **meta)
    return RoleBinding(metadata=metadata, role_ref=RoleRef(kind="ClusterRole", name=role), subjects=subjects)


@pytest.mark.parametrize(
    ("held", "names"),
    [
        pytest.param(None, set(), id="no-binding"),
        pytest.param(binding(), set(), id="nobody"),
        pytest.param(binding(Subject("ServiceAccount", "x", "a")), {"x"}, id="of-its-own-namespace"),
        pytest.param(binding(Subject("ServiceAccount", "x")), {"x"}, id="namespace-unnamed"),
        pytest.param(binding(Subject("ServiceAccount", "x", "b")), set(), id="of-another-namespace"),
        pytest.param(binding(Subject("User", "x")), set(), id="a-user"),
        pytest.param(binding(Subject("ServiceAccount", "x", "a"), role="edit"), set(), id="another-role"),
        pytest.param(
            binding(Subject("ServiceAccount", "x", "a"), deletion_timestamp="2026-01-01T00:00:00Z"), set(), id="going"
        ),
    ],
)
def test_what_a_binding_gives(held: RoleBinding | None, names: set[str]) -> None:
    assert standing(held) == names
