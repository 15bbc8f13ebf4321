"""A task's life under runtimed, on a real kube-apiserver, with a Runtime Server that can be told to fail."""

from pathlib import Path
from typing import Any

import pytest
from tests.runtimed_stub import Stub, serving, until
from tests.runtimed_world import Cluster, World, in_phase, reason, runtimed

from kruntimes.common.api.names import FINALIZER
from kruntimes.common.api.views import Run
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtimed import taskoutputs
from kruntimes.runtimed.source import Home, found

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]

CODE = "#!/bin/sh\necho done\n"
TWICE = {"maxAttempts": 2}


async def begun(place: Cluster, world: World, stub: Stub, **spec: Any) -> Run:
    """A task Run that the Runtime Server executes."""
    given: dict[str, Any] = {"mode": {"task": {}}, "source": {"inline": CODE}}
    run = await place.assign(await place.create(**(given | spec)), world.pod_uid)
    await until(lambda: run.metadata.uid in stub.tasks, what="executed")
    return run


async def test_from_assignment_to_success(place: Cluster, world: World, stub: Stub) -> None:
    mode, env = {"task": {"args": ["-v", "x y"]}}, [{"name": "GREETING", "value": "hi"}]
    run = await begun(place, world, stub, mode=mode, env=env, timeout="90s")
    seen = await place.until(run, in_phase("Running"))
    assert reason(seen) == ("False", "TaskRunning")
    assert seen.metadata.finalizers == (FINALIZER,)
    sent: pb.ExecuteRequest = stub.last("execute")
    assert (sent.id, list(sent.args), sent.entrypoint, sent.timeout_seconds) == (
        run.metadata.uid, ["-v", "x y"], "script", 90,
    )  # fmt: skip
    assert sent.env["GREETING"] == "hi"
    assert (Path(sent.working_dir) / "script").read_text() == CODE
    Path(sent.env[taskoutputs.VARIABLE]).write_text("result=ok\nempty=\nresult=a=b\n")
    stub.finish(run.metadata.uid)
    ended = await place.until(run, in_phase("Succeeded"))
    assert (ended.status.outputs, ended.status.attempt) == ({"result": "a=b", "empty": ""}, 1)
    assert reason(ended) == ("False", "TaskSucceeded")
    assert ended.status.completion_time
    assert ended.metadata.finalizers == ()
    assert ended.status.endpoint is None
    await until(lambda: len(world.registry) == 0)
    assert stub.tasks == {}, "forgotten once it was written"
    assert found(Home(world.workspace, world.pod_uid)) == frozenset()
    assert len(world.kube.writes) == 5, "claim, finalizer, begin, finalizer, end"


async def test_a_failure_is_retried_and_then_final(place: Cluster, world: World, stub: Stub) -> None:
    run = await begun(place, world, stub, retryPolicy=TWICE, mode={"task": {"entrypoint": "./main.sh"}})
    assert stub.last("execute").entrypoint == "main.sh"
    stub.finish(run.metadata.uid, exit_code=3, message="the task exited with status 3")
    pending = await place.until(run, in_phase("Pending"))
    assert (reason(pending), reason(pending, "Backoff")) == (("False", "TaskFailed"), ("True", "TaskFailed"))
    assert pending.status.assigned_pod_uid == ""
    await until(lambda: stub.tasks == {})
    await place.assign(run, world.pod_uid)
    await until(lambda: run.metadata.uid in stub.tasks)
    stub.finish(run.metadata.uid, exit_code=4)
    failed = await place.until(run, in_phase("Failed"))
    assert failed.status.message == "attempt 2 of 2: TaskFailed: the task ended with exit code 4"
    assert failed.status.outputs == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"no separator\n", "line 1 of $KRUNTIME_OUTPUTS is not KEY=VALUE"),
        (b"k=" + b"v" * 9000, "the value of output 1 has 9000 bytes"),
        (b"k=\xff\n", "$KRUNTIME_OUTPUTS is not UTF-8"),
        (b"", "$KRUNTIME_OUTPUTS is not a file any more"),
    ],
)
async def test_outputs_that_cannot_be_kept_fail_the_task(
    place: Cluster, world: World, stub: Stub, text: bytes, message: str
) -> None:
    run = await begun(place, world, stub)
    path = Path(stub.last("execute").env[taskoutputs.VARIABLE])
    if text:
        path.write_bytes(text)
    else:
        path.mkdir()
    stub.finish(run.metadata.uid)
    failed = await place.until(run, in_phase("Failed"))
    assert message in failed.status.message
    await until(lambda: found(Home(world.workspace, world.pod_uid)) == frozenset(), what="cleaned, whatever it left")


async def test_cancellation_stops_it(place: Cluster, world: World, stub: Stub) -> None:
    run = await begun(place, world, stub)
    await place.patch(run, {"spec": {"cancelRequested": True}})
    ended = await place.until(run, in_phase("Cancelled"))
    assert reason(ended) == ("False", "Cancelled")
    assert (stub.tasks, stub.count("cancel"), ended.metadata.finalizers) == ({}, 1, ())


async def test_deletion_waits_for_its_end(place: Cluster, world: World, stub: Stub) -> None:
    stub.stubborn = True
    run = await begun(place, world, stub)
    await place.delete(run)
    await until(lambda: stub.count("cancel") == 1)
    assert await place.get(run) is not None, "it still runs"
    stub.finish(run.metadata.uid, exit_code=137)
    await place.until(run, lambda seen: seen is None)
    await until(lambda: len(world.registry) == 0)
    assert stub.tasks == {}


async def test_a_lifetime_ends(place: Cluster, world: World, stub: Stub) -> None:
    run = await place.assign(
        await place.create(mode={"task": {}}, source={"inline": CODE}, timeout="2s"), world.pod_uid
    )
    ended = await place.until(run, in_phase("Timeout"))
    assert reason(ended) == ("False", "LifetimeTimeout")
    assert stub.tasks == {}


async def test_an_uncertain_execution_is_repeated_and_runs_once(place: Cluster, world: World, stub: Stub) -> None:
    stub.execute = ["UNAVAILABLE", "lose"]
    run = await begun(place, world, stub)
    await until(lambda: stub.count("execute") == 3)
    asked = [request for name, request in stub.calls if name == "execute"]
    assert asked[0] == asked[1] == asked[2]
    stub.finish(run.metadata.uid)
    assert (await place.until(run, in_phase("Succeeded"))).status.attempt == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("UNIMPLEMENTED", "TaskUnsupported: the Runtime Server does not offer"),
        ("INVALID_ARGUMENT", "TaskFailed: told to"),
    ],
)
async def test_a_server_that_refuses_it_says_why(
    place: Cluster, world: World, stub: Stub, code: str, message: str
) -> None:
    stub.execute = [code]
    run = await place.create(mode={"task": {}}, source={"inline": CODE})
    await place.assign(run, world.pod_uid)
    assert message in (await place.until(run, in_phase("Failed"))).status.message


async def test_a_task_that_its_server_lost_is_not_begun_anew_in_the_same_attempt(
    place: Cluster, world: World, stub: Stub
) -> None:
    run = await begun(place, world, stub)
    stub.tasks.clear()
    failed = await place.until(run, in_phase("Failed"))
    assert "RuntimeServerFailed: the Runtime Server was restarted" in failed.status.message
    assert stub.count("execute") == 1


async def test_a_draining_pod_lets_it_end(place: Cluster, world: World, stub: Stub) -> None:
    run = await begun(place, world, stub)
    await place.until(run, in_phase("Running"))
    await until(lambda: stub.count("task status") > 0, what="watched: what has only just begun may be given back")
    world.flags["draining"] = True
    world.reconciler.look_at_all()
    asked = stub.count("task status")
    await until(lambda: stub.count("task status") > asked)
    stub.finish(run.metadata.uid)
    await place.until(run, in_phase("Succeeded"))


async def test_the_self_fence_stops_it_and_the_attempt_is_lost(place: Cluster, world: World, stub: Stub) -> None:
    run = await begun(place, world, stub, retryPolicy=TWICE)
    world.flags["fenced"] = world.flags["stale"] = True
    world.reconciler.look_at_all()
    await until(lambda: stub.count("cancel") == 1)
    world.flags["fenced"] = world.flags["stale"] = False
    world.reconciler.look_at_all()
    assert reason(await place.until(run, in_phase("Pending"))) == ("False", "RuntimePodLost")


@pytest.mark.parametrize("meanwhile", ["it runs", "it ends", "it is lost"])
async def test_a_restarted_runtimed_finds_its_task(
    place: Cluster, stub: Stub, tmp_path: Path, workspace: Path, meanwhile: str
) -> None:
    socket = tmp_path / "executor.sock"
    async with serving(stub, socket):
        async with runtimed(place, socket, workspace) as first:
            run = await begun(place, first, stub)
            outputs = Path(stub.last("execute").env[taskoutputs.VARIABLE])
            outputs.write_text("k=v\n")
        if meanwhile == "it ends":
            stub.finish(run.metadata.uid)
        elif meanwhile == "it is lost":
            stub.tasks.clear()
        async with runtimed(place, socket, workspace, pod_uid=first.pod_uid) as second:
            if meanwhile == "it runs":
                await until(lambda: second.registry.get(run.metadata.uid) is not None)
                stub.finish(run.metadata.uid)
            if meanwhile == "it is lost":
                await place.until(run, in_phase("Failed"))
            else:
                assert (await place.until(run, in_phase("Succeeded"))).status.outputs == {"k": "v"}
            await until(lambda: len(second.registry) == 0)
        assert stub.count("execute") == 1
        assert found(Home(workspace, first.pod_uid)) == frozenset()


async def test_what_an_earlier_attempt_left_is_stopped_until_that_is_certain(
    place: Cluster, world: World, stub: Stub
) -> None:
    stub.execute, stub.faults = ["ALREADY_EXISTS", "ALREADY_EXISTS"], {"cancel": ["UNAVAILABLE"]}
    run = await begun(place, world, stub)
    stub.finish(run.metadata.uid)
    seen = await place.until(run, in_phase("Succeeded"))
    assert seen.status.attempt == 1
    assert stub.count("execute") == 3
