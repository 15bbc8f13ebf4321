"""A Run's life under runtimed, on a real kube-apiserver, with a Runtime Server that can be told to fail."""

import asyncio
import base64
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.runtimed_git import commit, serving_git
from tests.runtimed_stub import READY, Stub, serving, until
from tests.runtimed_world import Cluster, World, in_phase, reason, runtimed

from kruntimes.common.api import outcomes
from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.outcomes import Failure
from kruntimes.common.api.views import Run
from kruntimes.common.kube import paths
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.invocation import Answer, Invocation
from kruntimes.runtimed.source import Home, found, materialise

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]


async def ready(place: Cluster, world: World, **spec: object) -> tuple[Run, Held]:
    made = await place.assign(await place.create(**spec), world.pod_uid)
    run = await place.until(made, in_phase("Ready"))
    held = world.registry.get(run.metadata.uid)
    assert held is not None
    return run, held


async def test_from_assignment_to_ready_in_three_writes(place: Cluster, world: World, stub: Stub) -> None:
    run, _ = await ready(place, world, env=[{"name": "GREETING", "value": "hi"}])
    assert len(world.kube.writes) == 3
    assert run.metadata.finalizers == (FINALIZER,)
    assert run.status.attempt == 1
    assert run.status.start_time
    assert reason(run) == ("True", "FunctionRegistered")
    assert run.status.endpoint is not None
    path = f"/v1/namespaces/{place.namespace}/runtimes/python/functions/{run.metadata.uid}:invoke"
    assert (run.status.endpoint.protocol, run.status.endpoint.url) == ("HTTPS", f"https://gateway:8443{path}")
    sent: pb.RegisterFunctionRequest = stub.last("register")
    assert (sent.run_uid, sent.registration_attempt, sent.handler) == (run.metadata.uid, 1, "handler.main")
    assert dict(sent.env) == {"GREETING": "hi"}
    assert (Path(sent.working_dir) / "handler.py").read_text().startswith("def main")


async def test_what_a_registration_warns_of_is_told_in_one_event(place: Cluster, world: World, stub: Stub) -> None:
    stub.warning = "importing the module started threads (2)" + "x" * 2000
    run, _ = await ready(place, world)

    async def told() -> list[dict[str, Any]]:
        query = {"fieldSelector": f"involvedObject.uid={run.metadata.uid},reason=FunctionWarning"}
        return json.loads(await place.kube.request("GET", paths.events(place.namespace), query=query))["items"]  # type: ignore[no-any-return]

    async with asyncio.timeout(15):
        while not (events := await told()):
            await asyncio.sleep(0.02)
    assert [(event["type"], event["count"]) for event in events] == [("Warning", 1)]
    assert events[0]["message"] == stub.warning[:1000]


async def test_deletion_unregisters_cleans_and_lets_go(place: Cluster, world: World, stub: Stub) -> None:
    run, _ = await ready(place, world)
    await place.delete(run)
    await place.until(run, lambda seen: seen is None)
    await until(lambda: len(world.registry) == 0)
    assert stub.functions == {}
    assert found(Home(world.workspace, world.pod_uid)) == frozenset()


async def test_deletion_waits_for_a_call_and_no_new_one_comes(place: Cluster, world: World, stub: Stub) -> None:
    run, held = await ready(place, world)
    call = Invocation(id="i", body=b"hang", content_type="text/plain", seconds=30)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.dispatcher.invoke(held, call))
        await stub.started.wait()
        await place.delete(run)
        await until(lambda: not held.open)
        assert not held.serving
        assert await place.get(run) is not None
        stub.release.set()
        assert isinstance(await first, Answer)
    await place.until(run, lambda seen: seen is None)


async def test_cancellation_ends_calls_and_then_the_run(place: Cluster, world: World, stub: Stub) -> None:
    run, held = await ready(place, world)
    call = Invocation(id="i", body=b"hang", content_type="text/plain", seconds=30)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.dispatcher.invoke(held, call))
        await stub.started.wait()
        await place.patch(run, {"spec": {"cancelRequested": True}})
        assert not isinstance(await first, Answer)
    ended = await place.until(run, in_phase("Cancelled"))
    assert reason(ended) == ("False", "Cancelled")
    assert ended.status.completion_time
    assert ended.metadata.finalizers == ()
    assert stub.functions == {}


async def test_a_failed_registration_goes_back_and_then_fails(place: Cluster, world: World, stub: Stub) -> None:
    stub.register = ["INVALID_ARGUMENT", "UNKNOWN"]
    run = await place.create(retryPolicy={"maxAttempts": 2, "backoff": "1s"})
    await place.assign(run, world.pod_uid)
    pending = await place.until(run, in_phase("Pending"))
    assert pending.status.assigned_pod == pending.status.assigned_pod_uid == ""
    assert pending.status.attempt == 1
    assert pending.metadata.finalizers == ()
    assert reason(pending) == ("False", "RegistrationFailed")
    assert reason(pending, "Backoff") == ("True", "RegistrationFailed")
    start = pending.status.start_time
    await place.assign(run, world.pod_uid)
    failed = await place.until(run, in_phase("Failed"))
    assert (failed.status.attempt, failed.status.start_time) == (2, start)
    assert reason(failed) == ("False", "RetriesExhausted")
    assert reason(failed, "Backoff")[0] == "False"
    assert "told to answer UNKNOWN" in failed.status.message


async def test_an_uncertain_registration_is_repeated_under_the_same_attempt(
    place: Cluster, world: World, stub: Stub
) -> None:
    stub.register = ["UNAVAILABLE", "lose"]
    run, _ = await ready(place, world)
    assert run.status.attempt == 1
    asked = [request for name, request in stub.calls if name == "register"]
    assert len(asked) == 3
    assert asked[0] == asked[1] == asked[2]


async def test_a_cancel_does_not_wait_for_a_registration_and_leaves_nothing_there(
    place: Cluster, world: World, stub: Stub
) -> None:
    stub.register = ["lose"] + ["UNAVAILABLE"] * 3
    run = await place.create()
    await place.assign(run, world.pod_uid)
    await until(lambda: stub.count("register") >= 1)
    await place.patch(run, {"spec": {"cancelRequested": True}})
    await place.until(run, in_phase("Cancelled"))
    assert stub.functions == {}


async def test_a_status_that_does_not_come_while_a_function_initialises_uses_up_no_attempt(
    place: Cluster, world: World, stub: Stub
) -> None:
    stub.state, stub.faults = pb.FUNCTION_REGISTRATION_STATE_REGISTERING, {"status": ["UNAVAILABLE"] * 2}
    run = await place.create()
    await place.assign(run, world.pod_uid)
    await until(lambda: stub.count("status") >= 3)
    stub.state = READY
    seen = await place.until(run, in_phase("Ready"))
    assert (seen.status.attempt, stub.count("register")) == (1, 1)


async def test_a_server_that_fails_to_initialise_says_why(place: Cluster, world: World, stub: Stub) -> None:
    stub.state, stub.fatal_error = pb.FUNCTION_REGISTRATION_STATE_FAILED, "SyntaxError: handler.py line 3"
    run = await place.create()
    await place.assign(run, world.pod_uid)
    failed = await place.until(run, in_phase("Failed"))
    assert "RegistrationFailed: SyntaxError: handler.py line 3" in failed.status.message
    assert stub.functions == {}, "it was unregistered"


async def test_a_server_that_forgot_is_registered_again_under_the_same_attempt(
    place: Cluster, world: World, stub: Stub
) -> None:
    run, held = await ready(place, world)
    stub.functions.clear()
    answer = await world.dispatcher.invoke(held, Invocation(id="i", body=b"echo", content_type="text/plain", seconds=5))
    assert not isinstance(answer, Answer)
    await until(lambda: bool(stub.functions) and held.serving)
    again = await place.until(run, in_phase("Ready"))
    assert again.status.attempt == 1
    assert stub.count("register") == 2
    assert len(world.kube.writes) == 5, "Running and Ready once more"


async def test_a_function_that_idles_times_out(place: Cluster, world: World, stub: Stub) -> None:
    run, _ = await ready(place, world, mode={"function": {"handler": "handler.main", "idleTimeoutSeconds": 1}})
    ended = await place.until(run, in_phase("Timeout"))
    assert reason(ended) == ("False", "IdleTimeout")
    assert stub.functions == {}


async def test_a_lifetime_ends(place: Cluster, world: World) -> None:
    run, _ = await ready(place, world, timeout="1s")
    ended = await place.until(run, in_phase("Timeout"))
    assert reason(ended) == ("False", "LifetimeTimeout")


async def test_a_draining_pod_acknowledges(place: Cluster, world: World, stub: Stub) -> None:
    run, _ = await ready(place, world, retryPolicy={"maxAttempts": 2})
    world.flags["draining"] = True
    world.reconciler.look_at_all()
    ended = await place.until(run, in_phase("Pending"))
    assert reason(ended) == ("False", "FencedUnregistered")
    assert ended.status.assigned_pod_uid == ""
    assert ended.status.endpoint is not None
    assert stub.functions == {}


async def test_the_self_fence_ends_calls_and_nothing_else(place: Cluster, world: World, stub: Stub) -> None:
    run, held = await ready(place, world)
    call = Invocation(id="i", body=b"hang", content_type="text/plain", seconds=30)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.dispatcher.invoke(held, call))
        await stub.started.wait()
        world.flags["fenced"] = world.flags["stale"] = True
        world.reconciler.look_at_all()
        got = await first
        assert isinstance(got, Failure)
        assert got.kind is outcomes.CANCELLED
    await until(lambda: len(world.dispatcher.slots) == 0)
    world.flags["fenced"] = world.flags["stale"] = False
    world.reconciler.look_at_all()
    await until(lambda: held.cancelled_at is None)
    assert held.serving
    stub.release.set()
    assert isinstance(await world.dispatcher.invoke(held, call), Answer)
    assert (await place.until(run, in_phase("Ready"))).status.attempt == 1
    assert stub.count("register") == 1


async def test_a_rotated_bundle_reaches_ready_runs(place: Cluster, stub: Stub, tmp_path: Path, workspace: Path) -> None:
    socket, bundle = tmp_path / "executor.sock", tmp_path / "ca.crt"
    bundle.write_text("OLD")
    async with serving(stub, socket), runtimed(place, socket, workspace, bundle=bundle) as world:
        runs = [(await ready(place, world))[0] for _ in range(2)]
        bundle.write_text("NEW")
        assert world.endpoints.refresh()
        world.reconciler.look_at_all()
        for run in runs:
            seen = await place.until(run, lambda now: base64.b64decode(now.status.endpoint.ca_bundle) == b"NEW")
            assert reason(seen) == ("True", "FunctionRegistered")


async def test_a_deleted_run_is_never_registered(place: Cluster, world: World, stub: Stub) -> None:
    run = await place.create()
    await place.patch(run, {"metadata": {"finalizers": ["tests/hold"]}})
    await place.delete(run)
    await place.assign(run, world.pod_uid)
    await until(lambda: f"{place.namespace}/{run.metadata.name}" in world.reconciler.runs.store)
    await until(lambda: len(world.reconciler.queue) == 0)
    assert stub.count("register") == 0
    await place.patch(run, {"metadata": {"finalizers": []}})
    await place.until(run, lambda seen: seen is None)


async def test_a_restarted_runtimed_finds_its_functions(
    place: Cluster, stub: Stub, tmp_path: Path, workspace: Path
) -> None:
    socket = tmp_path / "executor.sock"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(stub, socket))
        async with runtimed(place, socket, workspace) as first:
            run, held = await ready(place, first)
        async with runtimed(place, socket, workspace, pod_uid=first.pod_uid) as second:
            await until(lambda: (now := second.registry.get(run.metadata.uid)) is not None and now.serving)
            again = second.registry.get(run.metadata.uid)
            assert again is not None
            assert again.registration_id == held.registration_id
            assert second.kube.writes == []


async def test_two_that_claim_the_same_run_count_one_attempt(
    place: Cluster, stub: Stub, tmp_path: Path, workspace: Path
) -> None:
    socket = tmp_path / "executor.sock"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(stub, socket))
        one = await stack.enter_async_context(runtimed(place, socket, workspace))
        two = await stack.enter_async_context(runtimed(place, socket, workspace, pod_uid=one.pod_uid))
        made = [await place.create() for _ in range(3)]
        for run in made:
            await place.assign(run, one.pod_uid)
        for run in made:
            got = await place.until(run, in_phase("Ready"))
            assert got.status.attempt == 1
            assert got.metadata.finalizers == (FINALIZER,)
            for world in (one, two):
                await until(lambda w=world, r=run: (h := w.registry.get(r.metadata.uid)) is not None and h.serving)
        for run in made:
            await place.delete(run)
            await place.until(run, lambda seen: seen is None)


@pytest.mark.parametrize("asked", ["delete", "cancel"])
async def test_what_was_asked_while_no_runtimed_was_there_still_unregisters_first(
    place: Cluster, stub: Stub, tmp_path: Path, workspace: Path, asked: str
) -> None:
    socket = tmp_path / "executor.sock"
    async with serving(stub, socket):
        async with runtimed(place, socket, workspace) as first:
            run, _ = await ready(place, first)
        await (place.delete(run) if asked == "delete" else place.patch(run, {"spec": {"cancelRequested": True}}))
        async with runtimed(place, socket, workspace, pod_uid=first.pod_uid) as second:
            await place.until(run, (lambda seen: seen is None) if asked == "delete" else in_phase("Cancelled"))
            assert stub.functions == {}
            await until(lambda: len(second.registry) == 0)
            assert found(Home(workspace, first.pod_uid)) == frozenset()


async def test_orphans_go_and_what_others_keep_on_the_volume_stays(
    place: Cluster, stub: Stub, tmp_path: Path, workspace: Path
) -> None:
    socket, home = tmp_path / "executor.sock", Home(workspace, "pod-with-orphans")
    (workspace / "model.bin").write_text("kept")
    theirs = materialise(Home(workspace, "another-pod"), uid="gone", attempt=1, inline="x", path="handler.py")
    materialise(home, uid="gone", attempt=1, inline="x", path="handler.py")
    stub.functions["gone"] = "gone/1"
    stub.tasks["lost"] = pb.StatusResponse(id="lost", state=pb.EXECUTION_STATE_RUNNING)
    async with serving(stub, socket), runtimed(place, socket, workspace, pod_uid=home.pod_uid) as world:
        await until(lambda: not stub.functions and not stub.tasks and not found(home), what="orphans removed")
        run, _ = await ready(place, world)
        assert found(home) == {run.metadata.uid}
    assert (workspace / "model.bin").read_text() == "kept"
    assert (theirs / "handler.py").exists()


async def test_a_function_from_a_repository(place: Cluster, world: World, stub: Stub, tmp_path: Path) -> None:
    sha = commit(tmp_path / "served" / "app", {"handler.py": b"x = 1\n"})
    async with serving_git(tmp_path / "served") as server:
        await ready(place, world, source={"repoURL": f"{server.url}/app", "commitSHA": sha})
        assert (Path(stub.last("register").working_dir) / "handler.py").read_text() == "x = 1\n"
        absent = await place.create(source={"repoURL": f"{server.url}/app", "commitSHA": "0" * 40})
        await place.assign(absent, world.pod_uid)
        failed = await place.until(absent, in_phase("Failed"))
        assert "SourceFailed: the repository has no such commit" in failed.status.message


async def test_a_cancel_does_not_wait_for_a_fetch(place: Cluster, world: World, tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    async with serving_git(tmp_path / "served") as server:
        run = await place.create(source={"repoURL": f"{server.url}/slow/x", "commitSHA": "0" * 40})
        await place.assign(run, world.pod_uid)
        await until(lambda: bool(server.asked), seconds=30)
        await place.patch(run, {"spec": {"cancelRequested": True}})
        await place.until(run, in_phase("Cancelled"))
    await until(lambda: len(world.registry) == 0)
    assert found(Home(world.workspace, world.pod_uid)) == frozenset()
