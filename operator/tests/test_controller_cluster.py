"""The operator on a real kube-apiserver, with the roles of an installation and no more."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.controller_world import Json, World, eventually, world

from kruntimes.common.api.names import FINALIZER, READINESS_GATE, SERVING_SIGNER, Role, pod_dns, runtime_dns, spiffe_id
from kruntimes.common.api.views import Pod, Runtime, condition
from kruntimes.common.errors import Terminal
from kruntimes.common.kube import paths
from kruntimes.common.kube.csr import CertificateNames, CertificateRefused, request_certificate
from kruntimes.common.kube.errors import Forbidden
from kruntimes.controller import scheduler
from kruntimes.controller.signer import ensure_authority
from kruntimes.controller.views import ControlledRun


@pytest.fixture
async def place(control_plane: Path, tmp_path: Path) -> AsyncIterator[World]:
    async with world(control_plane, tmp_path) as made:
        yield made


def reason(run: ControlledRun) -> str:
    held = run.condition("Ready")
    return held.reason if held is not None else ""


async def test_a_runtime_becomes_a_replica_set_and_a_service(place: World) -> None:
    async with place.operator():
        runtime = await place.runtime("python", replicas=2)
        pods = await place.pods("python", 2)
        service: Json = await place.admin.get(paths.services(place.namespace, "python"), dict)
        assert [port["port"] for port in service["spec"]["ports"]] == [9443, 9444, 9090]
        assert service["metadata"]["ownerReferences"][0]["uid"] == runtime.metadata.uid
        assert pods[0].metadata.annotations["kruntimes.io/capacity.runs"] == "2"
        bundle: Json = await place.admin.get(paths.configmaps(place.namespace, "kruntimes-ca"), dict)
        assert bundle["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
        for pod in pods:
            await place.beat(pod)

        async def gates_open() -> bool:
            found, _ = await place.admin.list(paths.pods(place.namespace), Pod)
            held = [condition(pod.status.conditions, READINESS_GATE) for pod in found]
            return all(one is not None and one.status == "True" for one in held)

        await eventually(gates_open)
        for pod in pods:
            await place.make_ready(pod)

        async def complete() -> Runtime | None:
            found = await place.admin.get(paths.runtimes(place.namespace, "python"), Runtime)
            progressing = condition(found.status.conditions, "Progressing")
            done = progressing is not None and progressing.reason == "Complete"
            return found if done and found.status.ready_replicas == 2 else None

        found = await eventually(complete)
        available = condition(found.status.conditions, "Available")
        assert available is not None
        assert available.status == "True"


async def test_runs_are_scheduled_oldest_first_and_spread(place: World) -> None:
    async with place.operator():
        await place.runtime("python", replicas=2, runs=2)
        await place.create_run("first", "python")
        explained = await place.until("first", lambda run: reason(run) == "NoReadyPod")
        assert explained.state.phase == "Pending"
        pods = await place.ready_pods("python", 2)
        first = await place.until("first", lambda run: run.state.phase == "Scheduled")
        assert first.state.assigned_pod_uid in {pod.metadata.uid for pod in pods}
        assert reason(first) == "Scheduled"
        for number in range(4):
            await place.create_run(f"more-{number}", "python")
        taken = [first] + [
            await place.until(f"more-{number}", lambda run: run.state.phase == "Scheduled") for number in range(3)
        ]
        last = await place.until("more-3", lambda run: reason(run) == "InsufficientCapacity")
        assert last.state.phase == "Pending"
        held = sorted(run.state.assigned_pod_uid for run in taken)
        assert held == sorted(pod.metadata.uid for pod in pods for _ in range(2))
        assert len({run.state.assigned_pod_uid for run in taken[:2]}) == 2
        # A Run that goes makes room for the one that waits.
        await place.admin.delete(paths.runs(place.namespace, "first"))
        await place.until("more-3", lambda run: run.state.phase == "Scheduled")


async def test_a_burst_never_takes_more_than_there_is(place: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "PASS_WRITES", 4)
    async with place.operator():
        await place.runtime("python", replicas=2, runs=5)
        await place.ready_pods("python", 2)
        await asyncio.gather(*(place.create_run(f"run-{number}", "python") for number in range(30)))

        async def settled() -> list[ControlledRun] | None:
            runs, _ = await place.admin.list(paths.runs(place.namespace), ControlledRun)
            return runs if all(reason(run) for run in runs) else None

        runs = await eventually(settled)
        placed = [run.state.assigned_pod_uid for run in runs if run.state.phase == "Scheduled"]
        assert len(placed) == 10
        assert sorted(placed.count(uid) for uid in set(placed)) == [5, 5]


async def test_a_pending_run_is_cancelled_before_assignment(place: World) -> None:
    async with place.operator():
        await place.create_run("r", "nowhere")
        await place.until("r", lambda run: reason(run) == "RuntimeNotFound")
        await place.admin.patch_merge(paths.runs(place.namespace, "r"), {"spec": {"cancelRequested": True}}, dict)
        ended = await place.until("r", lambda run: run.state.phase == "Cancelled")
        assert reason(ended) == "Cancelled"
        whole: Json = await place.admin.get(paths.runs(place.namespace, "r"), dict)
        assert whole["status"]["completionTime"]


async def test_a_run_whose_pod_is_gone_is_withdrawn_fenced_and_scheduled_again(place: World) -> None:
    async with place.operator():
        await place.runtime("python", replicas=1)
        (pod,) = await place.ready_pods("python", 1)
        await place.create_run("kept", "python", retryPolicy={"maxAttempts": 2})
        await place.create_run("spent", "python")
        for name in ("kept", "spent"):
            await place.until(name, lambda run: run.state.phase == "Scheduled")
            await place.admin.patch_merge(
                paths.runs(place.namespace, name), {"metadata": {"finalizers": [FINALIZER]}}, dict
            )
            now = "2026-01-01T00:00:00Z"
            ready = {"type": "Ready", "status": "True", "reason": "FunctionRegistered", "message": ""}
            await place.write_status(
                name,
                {
                    "phase": "Ready",
                    "attempt": 1,
                    "startTime": now,
                    "conditions": [ready | {"lastTransitionTime": now}],
                },
            )
        await place.admin.delete(paths.pods(place.namespace, pod.metadata.name), grace_seconds=0)
        spent = await place.until("spent", lambda run: run.state.phase == "Failed")
        assert reason(spent) == "RetriesExhausted"
        kept = await place.until("kept", lambda run: run.state.phase == "Pending")
        assert not kept.state.assigned_pod_uid
        assert not kept.holds_finalizer
        (other,) = await place.ready_pods("python", 1)
        again = await place.until("kept", lambda run: run.state.phase == "Scheduled")
        assert again.state.assigned_pod_uid == other.metadata.uid
        assert again.state.attempt == 1


async def test_a_run_on_an_evicted_pod_is_scheduled_again_though_the_object_stays(place: World) -> None:
    async with place.operator():
        await place.runtime("python")
        (pod,) = await place.ready_pods("python", 1)
        await place.create_run("r", "python")
        await place.until("r", lambda run: run.state.phase == "Scheduled")
        evicted = {"status": {"phase": "Failed", "reason": "Evicted"}}
        await place.admin.patch_merge(paths.pods(place.namespace, pod.metadata.name, "status"), evicted, dict)
        await place.until("r", lambda run: run.state.phase == "Pending")

        async def replaced() -> Pod | None:
            pods, _ = await place.admin.list(paths.pods(place.namespace), Pod, label_selector="runtime=python")
            return next((one for one in pods if one.metadata.uid != pod.metadata.uid), None)

        other = await eventually(replaced)
        await place.beat(other)
        await place.make_ready(other)
        again = await place.until("r", lambda run: run.state.phase == "Scheduled")
        assert again.state.assigned_pod_uid == other.metadata.uid


async def test_an_ended_run_that_is_deleted_is_let_go_once_its_pod_is_gone(place: World) -> None:
    async with place.operator():
        await place.runtime("python")
        (pod,) = await place.ready_pods("python", 1)
        await place.create_run("r", "python")
        await place.until("r", lambda run: run.state.phase == "Scheduled")
        path = paths.runs(place.namespace, "r")
        await place.admin.patch_merge(path, {"metadata": {"finalizers": [FINALIZER]}}, dict)
        await place.write_status("r", {"phase": "Cancelled"})
        await place.admin.delete(path)
        await place.until("r", lambda run: run.metadata.deleting)
        await place.admin.delete(paths.pods(place.namespace, pod.metadata.name), grace_seconds=0)

        async def gone() -> bool:
            return await place.run("r") is None

        await eventually(gone)


async def test_a_run_that_has_ended_is_deleted_when_its_time_to_live_is_over(place: World) -> None:
    async with place.operator():
        for name, ttl in (("short", 1), ("long", 3600), ("zero", 0)):
            await place.create_run(name, "nowhere", ttlSecondsAfterFinished=ttl, cancelRequested=True)
        for name in ("long", "zero"):
            ended = await place.until(name, lambda run: run.state.phase == "Cancelled")
            assert ended.state.completion_time

        async def gone() -> bool:
            return await place.run("short") is None

        await eventually(gone)
        assert await place.run("long") is not None
        assert await place.run("zero") is not None
        # It may be changed after the end.
        shorter = {"spec": {"ttlSecondsAfterFinished": 1}}
        await place.admin.patch_merge(paths.runs(place.namespace, "long"), shorter, dict)

        async def gone_as_well() -> bool:
            return await place.run("long") is None

        await eventually(gone_as_well)


async def test_a_deleting_run_without_assignment_loses_its_finalizer(place: World) -> None:
    async with place.operator():
        await place.create_run("r", "nowhere")
        path = paths.runs(place.namespace, "r")
        await place.admin.patch_merge(path, {"metadata": {"finalizers": [FINALIZER]}}, dict)
        await place.admin.delete(path)

        async def gone() -> bool:
            return await place.run("r") is None

        await eventually(gone)


async def test_a_new_template_takes_over_as_the_old_pods_fall_free(place: World) -> None:
    async with place.operator():
        await place.runtime("python", replicas=2, runs=1)
        await place.ready_pods("python", 2)
        await place.create_run("busy", "python")
        busy = await place.until("busy", lambda run: run.state.phase == "Scheduled")
        template = {"spec": {"containers": [{"name": "runtime", "image": "registry.test/py:2"}]}}
        await place.runtime("python", replicas=2, runs=1, template=template)
        for pod in await place.pods("python", 4):
            await place.beat(pod)
            await place.make_ready(pod)
        left = await place.pods("python", 3)
        assert busy.state.assigned_pod_uid in {pod.metadata.uid for pod in left}
        await place.admin.delete(paths.runs(place.namespace, "busy"))
        left = await place.pods("python", 2)
        assert busy.state.assigned_pod_uid not in {pod.metadata.uid for pod in left}

        async def one_replica_set() -> bool:
            found, _ = await place.admin.list(paths.replicasets(place.namespace), Runtime)
            return len(found) == 1

        await eventually(one_replica_set)


async def test_kubectl_scale_takes_the_free_pod(place: World) -> None:
    async with place.operator():
        await place.runtime("python", replicas=2, runs=1)
        await place.ready_pods("python", 2)
        await place.create_run("busy", "python")
        busy = await place.until("busy", lambda run: run.state.phase == "Scheduled")
        scale = paths.runtimes(place.namespace, "python", "scale")
        await place.admin.patch_merge(scale, {"spec": {"replicas": 1}}, dict)
        (left,) = await place.pods("python", 1)
        assert left.metadata.uid == busy.state.assigned_pod_uid

        async def counted() -> bool:
            found: Json = await place.admin.get(scale, dict)
            return bool(found["status"]["replicas"] == 1)

        await eventually(counted)


async def test_a_template_that_no_pod_can_be_made_of_says_so(place: World) -> None:
    async with place.operator():
        broken = {"spec": {"containers": [{"name": "runtime", "image": "x", "ports": [{"containerPort": 0}]}]}}
        await place.runtime("broken", template=broken)

        async def refused() -> str | None:
            found = await place.admin.get(paths.runtimes(place.namespace, "broken"), Runtime)
            held = condition(found.status.conditions, "Progressing")
            return held.message if held is not None and held.reason == "TemplateRefused" else None

        assert "containerPort" in await eventually(refused)


async def test_a_pod_gets_its_own_certificate_and_no_other(place: World) -> None:
    async with place.operator():
        await place.runtime("python", replicas=2)
        one, other = await place.pods("python", 2)
        kube = await place.client(await place.token(place.namespace, "kruntimes-runtimed", one))

        def names(pod: Pod) -> CertificateNames:
            uid = pod.metadata.uid
            return CertificateNames(
                uris=(
                    spiffe_id(
                        trust_domain="cluster.local",
                        namespace=place.namespace,
                        role=Role.RUNTIMED,
                        owner="python",
                        pod_uid=uid,
                    ),
                ),
                dns=(
                    pod_dns(pod_uid=uid, role=Role.RUNTIMED),
                    runtime_dns(namespace=place.namespace, runtime="python"),
                ),
            )

        try:
            issued = await request_certificate(kube, signer="kruntimes.io/runtimed", names=names(one), seconds=600)
            assert issued.not_after - issued.not_before == 600 + 300
            with pytest.raises(CertificateRefused, match="URI of this Pod"):
                await request_certificate(kube, signer="kruntimes.io/runtimed", names=names(other))
            with pytest.raises(CertificateRefused, match="kruntimes-gateway"):
                await request_certificate(kube, signer=SERVING_SIGNER, names=CertificateNames(dns=("gateway.test",)))
        finally:
            await kube.close()


async def test_two_that_make_the_authority_at_once_make_one(place: World) -> None:
    made = await asyncio.gather(*(ensure_authority(place.admin, place.system) for _ in range(4)))
    assert len({one.certificate_pem() for one in made}) == 1
    broken = {"data": {"tls.crt": "", "tls.key": ""}}
    await place.admin.patch_merge(paths.secrets(place.system, "kruntimes-ca"), broken, dict)
    with pytest.raises(Terminal, match="no certificate authority"):
        await ensure_authority(place.admin, place.system)


async def test_a_bundle_that_was_deleted_comes_back(place: World) -> None:
    async with place.operator():
        await place.runtime("python")
        await place.pods("python", 1)
        for namespace in (place.system, place.namespace):
            path = paths.configmaps(namespace, "kruntimes-ca")
            first: Json = await place.admin.get(path, dict)
            await place.admin.delete(path)

            async def back(path: str = path, uid: str = first["metadata"]["uid"]) -> Json | None:
                found, _ = await place.admin.list(path.rpartition("/")[0], dict)
                others = [one for one in found if one["metadata"]["name"] == "kruntimes-ca"]
                return next((one for one in others if one["metadata"]["uid"] != uid), None)

            assert (await eventually(back))["data"] == first["data"]


async def test_the_service_account_that_a_template_names_may_do_a_runtimeds_work(place: World) -> None:
    async with place.operator():
        account = {"metadata": {"name": "mine"}}
        await place.admin.create(paths.serviceaccounts(place.namespace), account, dict)
        containers = [{"name": "runtime", "image": "registry.test/py:1"}]
        template = {"spec": {"serviceAccountName": "mine", "containers": containers}}
        await place.runtime("python", template=template)
        (pod,) = await place.pods("python", 1)
        assert pod.spec.service_account_name == "mine"
        kube = await place.client(await place.token(place.namespace, "mine", pod))
        try:
            runs, _ = await kube.list(paths.runs(place.namespace), ControlledRun)
            assert runs == []
            with pytest.raises(Forbidden):
                await kube.list(paths.runs(place.system), ControlledRun)
        finally:
            await kube.close()


async def test_a_foreign_service_is_left_alone_and_named(place: World) -> None:
    async with place.operator():
        body = {"metadata": {"name": "python"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "mine"}}}
        await place.admin.create(paths.services(place.namespace), body, dict)
        await place.runtime("python")

        async def told() -> bool:
            found = await place.admin.get(paths.runtimes(place.namespace, "python"), Runtime)
            held = condition(found.status.conditions, "Progressing")
            return held is not None and held.reason == "ServiceExists"

        await eventually(told)
        kept: Json = await place.admin.get(paths.services(place.namespace, "python"), dict)
        assert kept["spec"]["selector"] == {"app": "mine"}
        await place.admin.delete(paths.services(place.namespace, "python"))
        await place.pods("python", 1)
