"""The client layer on the real API server: what the fakes of the other tests take for granted."""

import asyncio
from typing import Any

import pytest
from tests.kube.kube_faults import until

from kruntimes.common.api.views import Meta, Object
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.events import ObjectRef, Recorder
from kruntimes.common.kube.reflector import Reflector
from kruntimes.common.kube.transport import Kube


def _config(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_a_patch_that_no_longer_fits_is_a_conflict(real: Kube, namespace: str) -> None:
    made = await real.create(paths.configmaps(namespace), _config("a", attempt="1"), Object)
    path = paths.configmaps(namespace, "a")
    claim = [
        {"op": "test", "path": "/data/attempt", "value": "1"},
        {"op": "replace", "path": "/data/attempt", "value": "2"},
    ]
    await real.patch_json(path, claim, Object)
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"attempt": "9"}}
    for write in (
        lambda: real.patch_json(path, claim, Object),
        lambda: real.patch_json(path, [{"op": "test", "path": "/data/none", "value": "2"}], Object),
        lambda: real.patch_json(path, [{"op": "add", "path": "/none/at-all", "value": "2"}], Object),
        lambda: real.patch_merge(path, stale, Object),
        lambda: real.replace(path, _config("a") | stale | {"metadata": {"name": "a", **stale["metadata"]}}, Object),
        lambda: real.delete(path, uid="another"),
        lambda: real.delete(path, resource_version=made.metadata.resource_version),
    ):
        with pytest.raises(errors.Conflict):
            await write()
    assert (await real.get(path, dict))["data"] == {"attempt": "2"}


async def test_an_invalid_patch_is_not_a_conflict(real: Kube, namespace: str) -> None:
    await real.create(paths.configmaps(namespace), _config("a"), Object)
    with pytest.raises(errors.Invalid):
        await real.patch_json(
            paths.configmaps(namespace, "a"), [{"op": "add", "path": "/data", "value": {"x": 5}}], Object
        )


async def test_the_rest_of_the_table(real: Kube, namespace: str) -> None:
    path = paths.configmaps(namespace, "a")
    with pytest.raises(errors.Missing):
        await real.get(path, Object)
    await real.create(paths.configmaps(namespace), _config("a"), Object)
    with pytest.raises(errors.AlreadyExists):
        await real.create(paths.configmaps(namespace), _config("a"), Object)
    with pytest.raises(errors.BadRequest):
        await real.replace(path, _config("another"), Object)
    with pytest.raises(errors.Unauthorized):
        await real.request("GET", path, token="not-a-token")
    with pytest.raises(errors.Missing):
        await real.list(paths.crds("none") + "/none", Object)


async def test_apply_owns_its_fields(real: Kube, namespace: str) -> None:
    path = paths.configmaps(namespace, "a")
    await real.apply(path, _config("a", x="1", y="1"), Object, manager="one")
    await real.apply(path, _config("a", x="2"), Object, manager="one")
    assert (await real.get(path, dict))["data"] == {"x": "2"}
    with pytest.raises(errors.Conflict):
        await real.apply(path, _config("a", x="3"), Object, manager="two", force=False)
    await real.apply(path, _config("a", x="3"), Object, manager="two")
    assert (await real.get(path, dict))["data"] == {"x": "3"}


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata-only"])
async def test_a_reflector_follows(real: Kube, namespace: str, metadata_only: bool) -> None:
    await real.create(paths.configmaps(namespace), _config("before", {"ours": "yes"}), Object)
    reflected = Reflector(
        real, paths.configmaps(namespace), Object, label_selector="ours=yes", metadata_only=metadata_only
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflected.run())
        await reflected.synced.wait()
        assert list(reflected.store) == [f"{namespace}/before"]
        await real.create(paths.configmaps(namespace), _config("foreign"), Object)
        await real.create(paths.configmaps(namespace), _config("after", {"ours": "yes"}, large="<" * 200_000), Object)
        await until(lambda: f"{namespace}/after" in reflected.store)
        await real.patch_merge(paths.configmaps(namespace, "before"), {"metadata": {"labels": {"ours": "no"}}}, Object)
        await until(lambda: list(reflected.store) == [f"{namespace}/after"])
        await real.delete(paths.configmaps(namespace, "after"))
        await until(lambda: not reflected.store)
        assert reflected.healthy_since() is not None
        assert (reflected.relists, reflected.restarts, reflected.undecodable) == (1, 0, 0)
        task.cancel()


async def test_an_event_is_written_counted_up_and_never_fails(real: Kube, namespace: str) -> None:
    made = await real.create(paths.configmaps(namespace), _config("a"), Object)
    ref = ObjectRef(api_version="v1", kind="ConfigMap", namespace=namespace, name="a", uid=made.metadata.uid)
    recorder = Recorder(real, "kruntimes-test")
    for _ in range(3):
        await recorder.event(ref, type="Normal", reason="Tried", message="by a test")
    found, _ = await real.list(paths.events(namespace), dict, field_selector=f"involvedObject.uid={ref.uid}")
    assert [(event["reason"], event["count"], event["source"]["component"]) for event in found] == [
        ("Tried", 1, "kruntimes-test")
    ]
    for series in recorder._series.values():
        series.written = float("-inf")
    await recorder.event(ref, type="Normal", reason="Tried", message="by a test")
    found, _ = await real.list(paths.events(namespace), dict, field_selector=f"involvedObject.uid={ref.uid}")
    assert [event["count"] for event in found] == [4]
    await recorder.event(ref, type="Nonsense", reason="", message="refused by the API server")


def test_a_reference_comes_from_metadata() -> None:
    from kruntimes.common.kube.events import pod_ref, run_ref, runtime_ref

    meta = Meta(name="n", namespace="ns", uid="u")
    assert [(ref.api_version, ref.kind) for ref in (run_ref(meta), runtime_ref(meta), pod_ref(meta))] == [
        ("kruntimes.io/v1alpha1", "Run"),
        ("kruntimes.io/v1alpha1", "Runtime"),
        ("v1", "Pod"),
    ]
