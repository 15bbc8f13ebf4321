"""executor.v1 from the outside: generations, states, slots, disconnects, deaths (notes of the public contract)."""

import asyncio
import os
import random
import signal
import stat
from pathlib import Path

import grpc
import grpc.aio
import pytest
from tests.runtime_process import (
    FAILED,
    Client,
    Registered,
    Server,
    alive,
    connect,
    failure_of,
    until,
    wait_until,
)

from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtime.proc import tree

SLEEPY = "import time\ndef handler(event):\n    time.sleep(event)\n    return event\n"


@pytest.fixture
def sleepy(tmp_path: Path) -> Path:
    (tmp_path / "main.py").write_text(SLEEPY)
    return tmp_path


async def refused(call: grpc.aio.UnaryUnaryCall) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return str(error.value.code().name)


async def test_the_same_registration_again_is_the_same(python: Client) -> None:
    first = await python.register("globals", "main.counter", uid="same")
    assert await first.output() == b"1"
    again = await python.register("globals", "main.counter", uid="same")
    assert again.registration == first.registration
    assert await again.output() == b"2"


async def test_another_digest_and_a_lower_attempt_are_refused(python: Client) -> None:
    await python.register("globals", "main.counter", uid="digest", attempt=2)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await python.register("globals", "main.counter", uid="digest", attempt=2, digest="1" * 64)
    assert failure_of(error.value).code == "ALREADY_EXISTS"
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await python.register("globals", "main.counter", uid="digest", attempt=1)
    assert failure_of(error.value).code == "FAILED_PRECONDITION"


async def test_a_higher_attempt_is_a_new_generation_and_the_old_id_is_stale(python: Client, sleepy: Path) -> None:
    old = await python.register(sleepy, "main.handler", uid="generation", attempt=1)
    running = old.call(b"300")
    await until_in_flight(old)
    new = await python.register("globals", "main.counter", uid="generation", attempt=2)
    assert await refused(running) == "CANCELLED"
    for call in (old.invoke(), old.status()):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        assert failure_of(error.value).reason == "StaleRegistration"
    await old.unregister()
    assert await new.output() == b"1"


async def test_unknown_registrations(python: Client) -> None:
    nobody = pb.FunctionRegistration(run_uid="nobody", registration_id="x")
    ghost = Registered(python, pb.RegisterFunctionResponse(registration=nobody))
    assert (await ghost.fails()).code == "NOT_FOUND"
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await ghost.status()
    assert failure_of(error.value).code == "NOT_FOUND"
    await ghost.unregister()


async def test_bad_requests_name_the_field(python: Client) -> None:
    function = await python.register("globals", "main.counter", isolation=pb.FUNCTION_ISOLATION_WORKER)
    assert (await function.fails(millis=900_001)).code == "INVALID_ARGUMENT"
    assert (await function.fails(b"1" * (1024 * 1024 + 1))).code == "INVALID_ARGUMENT"
    assert (await function.fails(invocation_id="a b")).code == "INVALID_ARGUMENT"


async def test_status_tells_state_activity_and_flight(python: Client, sleepy: Path) -> None:
    function = await python.register(sleepy, "main.handler")
    status = await function.status()
    assert (status.in_flight, status.last_activity_unix_nano, status.fatal_error) == (0, 0, "")
    running = function.call(b"0.2")
    await until_in_flight(function)
    began = (await function.status()).last_activity_unix_nano
    assert began > 0
    overlap = await function.fails(b"0")
    assert (overlap.code, overlap.reason) == ("RESOURCE_EXHAUSTED", "InvocationInFlight")
    assert (await function.status()).last_activity_unix_nano == began
    await running
    status = await function.status()
    assert status.in_flight == 0
    assert status.last_activity_unix_nano > began


async def test_unregister_drains_a_running_call(python: Client, sleepy: Path) -> None:
    function = await python.register(sleepy, "main.handler")
    running = function.call(b"0.3")
    await until_in_flight(function)
    ending = asyncio.ensure_future(function.unregister(cancel=False, drain=10_000))
    await until_refused(function)
    assert (await running).output == b"0.3"
    await ending
    assert (await function.fails()).code == "NOT_FOUND"


@pytest.mark.parametrize(("cancel", "drain"), [(True, 10_000), (False, 100)])
async def test_unregister_cancels_what_does_not_end(
    python: Client, python_server: Server, sleepy: Path, cancel: bool, drain: int
) -> None:
    function = await python.register(sleepy, "main.handler")
    below = python_server.processes()
    running = function.call(b"300")
    await until_in_flight(function)
    await function.unregister(cancel=cancel, drain=drain)
    assert await refused(running) == "CANCELLED"
    assert not [pid for pid in below if alive(pid) and _comm(pid).startswith("kr-python-host")]
    await function.unregister()


async def test_a_caller_that_leaves_cancels_and_the_slot_waits_for_the_end(python: Client) -> None:
    function = await python.register("never_ends", "main.cooperates")
    call = function.call()
    await until_in_flight(function)
    call.cancel()
    await until_idle(function)
    stubborn = await python.register("never_ends", "main.awaits")
    call = stubborn.call()
    await until_in_flight(stubborn)
    call.cancel()
    await until_idle(stubborn)


async def test_slots_are_exact_after_three_hundred_random_disconnects(
    python: Client, python_server: Server, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text(
        "import time\ndef handler(event, context):\n    end = time.monotonic() + event\n"
        "    while time.monotonic() < end and not context.cancelled:\n        time.sleep(0.001)\n    return event\n"
    )
    functions = [await python.register(tmp_path, "main.handler") for _ in range(6)]
    below = sorted(python_server.processes())
    chance = random.Random(7)

    async def disturb(function: Registered) -> None:
        for _ in range(50):
            call = function.call(b"%f" % chance.uniform(0, 0.02), millis=chance.choice([5, 15, 1000]))
            await asyncio.sleep(chance.uniform(0, 0.015))
            call.cancel()

    await asyncio.gather(*map(disturb, functions))
    for function in functions:
        await until_idle(function)
        assert await function.output(b"0") == b"0"
    await until(lambda: sorted(python_server.processes()) == below, "processes came or went")
    assert not python_server.zombies()


async def test_kill_9_of_a_host_in_a_call(python: Client, python_server: Server) -> None:
    function = await python.register("never_ends", "main.sleep")
    (host,) = [pid for pid in python_server.processes() if _comm(pid).startswith("kr-python-host")]
    call = function.call()
    await until_in_flight(function)
    os.kill(host, signal.SIGKILL)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    failure = failure_of(error.value)
    assert (failure.code, failure.type) == ("UNKNOWN", "ProcessEnded")
    assert "SIGKILL" in failure.message
    assert (await function.fails(millis=100)).code == "DEADLINE_EXCEEDED"
    assert (await function.status()).fatal_error == ""


async def test_kill_9_of_a_warden_ends_its_host_too(python: Client, python_server: Server) -> None:
    function = await python.register("never_ends", "main.sleep")
    (warden,) = [pid for pid in python_server.processes() if _comm(pid) == "kr-warden"]
    (host,) = tree.children(warden)
    call = function.call()
    await until_in_flight(function)
    os.kill(warden, signal.SIGKILL)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert "its warden" in failure_of(error.value).message
    await until(lambda: not alive(host), "the host outlived its warden")
    assert (await function.fails(millis=100)).code == "DEADLINE_EXCEEDED"


async def test_user_code_that_stops_what_stands_above_it(python: Client, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import os, signal\n"
        "def handler(event):\n"
        "    if event == 'leave':\n        os._exit(0)\n"
        "    warden = os.getppid()\n"
        "    nursery = int(open(f'/proc/{warden}/stat').read().rsplit(')', 1)[1].split()[1])\n"
        "    for pid in {'warden': [warden], 'both': [nursery, warden]}.get(event, []):\n"
        "        os.kill(pid, signal.SIGSTOP)\n"
        "    return event\n"
    )
    function = await python.register(tmp_path, "main.handler")
    for stopped in ("warden", "both"):
        assert await function.output(f'"{stopped}"'.encode()) == stopped.encode()
        assert (await function.fails(b'"leave"')).type == "ProcessEnded"
        assert await function.output(b"7") == b"7", "no new process took the old one's place"
    assert await function.output(b'"both"') == b"both"
    await function.unregister()


async def test_a_stopped_warden_holds_up_no_deadline(python: Client, python_server: Server) -> None:
    function = await python.register("never_ends", "main.sleep")
    (warden,) = [pid for pid in python_server.processes() if _comm(pid) == "kr-warden"]
    (host,) = tree.children(warden)
    os.kill(warden, signal.SIGSTOP)
    assert (await function.fails(millis=100)).code == "DEADLINE_EXCEEDED"
    await until(lambda: not alive(host), "the host outlived its deadline")


async def test_a_host_that_cannot_start_again_fails_its_registration(python: Client, tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    main.write_text("import os\ndef handler(event): os._exit(1)\n")
    function = await python.register(tmp_path, "main.handler")
    main.write_text("raise RuntimeError('gone')\n")
    assert (await function.fails()).type == "ProcessEnded"
    give_up = asyncio.get_running_loop().time() + 20
    while (status := await function.status()).state != FAILED:
        assert asyncio.get_running_loop().time() < give_up
        await asyncio.sleep(0.01)
    assert "RuntimeError: gone (main.py, line 1)" in status.fatal_error
    assert (await function.fails()).code == "FAILED_PRECONDITION"


async def test_health(python: Client) -> None:
    assert (await python.runtime.Health(pb.HealthRequest())).healthy


def test_the_socket_is_the_pods_own(python_server: Server) -> None:
    wait_until(python_server.socket.exists, "no socket")
    assert stat.S_IMODE(python_server.socket.stat().st_mode) == 0o660


async def test_slow_imports_a_stale_socket_and_a_drained_end(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(SLEEPY)
    stale = tmp_path / "executor.sock"
    os.mknod(stale, stat.S_IFSOCK | 0o600)
    server = Server(tmp_path, "python", init_seconds=0.5)
    try:
        async with connect(server) as client:
            slow = await client.register("imports", "slow.handler", expect=FAILED)
            assert "did not end within 0.5 s" in (await slow.status()).fatal_error
            function = await client.register(tmp_path, "main.handler")
            running = function.call(b"0.5")
            await until_in_flight(function)
            server.process.send_signal(signal.SIGTERM)
            assert (await running).output == b"0.5"
            client._registered.clear()
        assert server.process.wait(20) == 0
        assert not stale.exists()
    finally:
        server.process.kill()


async def test_no_process_survives_a_killed_server(tmp_path: Path) -> None:
    server = Server(tmp_path, "python")
    try:
        async with connect(server) as client:
            children = await client.register("never_ends", "main.with_children")
            call = children.call()
            await until_in_flight(children)
            await until(lambda: len(server.processes()) >= 8, "the handler's children did not come")
            below = server.processes()
            server.process.kill()
            with pytest.raises(grpc.aio.AioRpcError):
                await call
            client._registered.clear()
        await until(lambda: not any(map(alive, below)), "processes outlive a killed server")
    finally:
        server.process.kill()
        server.process.wait()


async def test_kill_9_of_the_server_in_a_call_is_told_and_the_next_one_serves_again(tmp_path: Path) -> None:
    first = Server(tmp_path, "python")
    try:
        async with connect(first) as client:
            function = await client.register("never_ends", "main.sleep", uid="u")
            call = function.call()
            await until_in_flight(function)
            first.process.kill()
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call
            failure = failure_of(error.value)
            # Without our ErrorInfo, which only a server that lives can give: whether it ran is not known.
            assert (failure.code, failure.reason) == ("UNAVAILABLE", "")
            client.forget_all()
        first.process.wait()
        second = Server(tmp_path, "python")
        try:
            async with connect(second) as client:
                ghost = Registered(client, pb.RegisterFunctionResponse(registration=function.registration))
                assert (await ghost.fails()).code == "NOT_FOUND"
                again = await client.register("globals", "main.counter", uid="u")
                assert await again.output() == b"1"
            assert second.stop() == 0
        finally:
            second.process.kill()
    finally:
        first.process.kill()
        first.process.wait()


async def test_without_its_nursery_the_server_ends(tmp_path: Path) -> None:
    server = Server(tmp_path, "python")
    try:
        async with connect(server) as client:
            await client.register("globals", "main.counter")
            client._registered.clear()
        (nursery,) = [pid for pid in server.processes() if _comm(pid) == "kr-nursery"]
        below = server.processes()
        os.kill(nursery, signal.SIGKILL)
        assert server.process.wait(20) == 1
        await until(lambda: not any(map(alive, below)), "processes outlive their server")
    finally:
        server.process.kill()


async def until_in_flight(function: Registered) -> None:
    await _until_flight(function, 1)


async def until_idle(function: Registered) -> None:
    await _until_flight(function, 0)


async def until_refused(function: Registered) -> None:
    for _ in range(2000):
        if (await function.status()).state == pb.FUNCTION_REGISTRATION_STATE_DRAINING:
            assert (await function.fails()).code == "FAILED_PRECONDITION"
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never drained")


async def _until_flight(function: Registered, count: int) -> None:
    for _ in range(5000):
        if (await function.status()).in_flight == count:
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"never {count} in flight")


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
