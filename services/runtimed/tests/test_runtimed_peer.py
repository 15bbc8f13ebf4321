"""The one hop: to the owner and no further, authorized again, and with the outcome told as it was."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from tests.runtimed_pods import Authority, Pods, Tokens, opaque, owner_of, pod
from tests.runtimed_stub import until

from kruntimes.common.api import outcomes
from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import Role
from kruntimes.common.api.outcomes import Failure, Kind
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.pb import executor_v1_pb2_grpc as rpc
from kruntimes.runtimed import peer
from kruntimes.runtimed.invocation import Answer, Invocation
from kruntimes.runtimed.peer import Peers

pytestmark = pytest.mark.asyncio(loop_scope="session")

UID = "2c24c1f0-9f8f-4f80-82d5-3dd16a12d1e6"
GOOD, WRONG = opaque("good"), opaque("wrong")
EPOCH = Epoch(UID, 1, "pod-1")


def call(body: bytes = b"echo", *, id: str = "id-1") -> Invocation:
    return Invocation(id=id, body=body, content_type="text/plain", seconds=5.0)


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(may={GOOD: {("get", "hello")}})


@pytest_asyncio.fixture(loop_scope="session")
async def owner(authority: Authority, tokens: Tokens, tmp_path: Path) -> AsyncIterator[Pods]:
    async with pod(authority, tokens, tmp_path, pod_uid="pod-1") as made:
        made.caches.show(UID, pod_uid="pod-1")
        made.hold(UID)
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def other(authority: Authority, tokens: Tokens, tmp_path: Path) -> AsyncIterator[Pods]:
    async with pod(authority, tokens, tmp_path, pod_uid="pod-2") as made:
        made.caches.show(UID, pod_uid="pod-1")
        made.caches.show_pod("pod-1")
        yield made


async def test_a_call_through_the_hop(owner: Pods, other: Pods) -> None:
    got = await other.peers.invoke(owner_of(EPOCH, owner.peer_port), call(), token=GOOD)
    assert isinstance(got, Answer)
    assert (got.output, got.content_type, got.outputs) == (b"echo", "text/plain", {"k": "v"})
    assert owner.stub.last("invoke").registration.registration_id == f"{UID}/1"
    assert owner.count("peer", 200, "completed") == 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"raise", outcomes.FUNCTION_ERROR),
        (b"busy", outcomes.IN_FLIGHT),
        (b"deadline", outcomes.DEADLINE_EXCEEDED),
        (b"input", outcomes.BAD_INPUT),
    ],
)
async def test_outcomes_pass_the_hop(owner: Pods, other: Pods, body: bytes, kind: Kind) -> None:
    got = await other.peers.invoke(owner_of(EPOCH, owner.peer_port), call(body), token=GOOD)
    assert isinstance(got, Failure)
    assert got.kind is kind
    if kind is outcomes.FUNCTION_ERROR:
        assert (got.message, got.details["type"], got.details["message"]) == ("ValueError: bad", "ValueError", "bad")
        assert got.details["traceback"].startswith("ttt")


@pytest.mark.parametrize(
    ("epoch", "token", "kind"),
    [
        pytest.param(EPOCH, WRONG, outcomes.UNAUTHENTICATED, id="the-owner-asks-again"),
        pytest.param(Epoch(UID, 2, "pod-1"), GOOD, outcomes.NOT_READY, id="an-attempt-that-is-not-there-yet"),
        pytest.param(Epoch("run-2", 1, "pod-1"), GOOD, outcomes.FORBIDDEN, id="an-unknown-run"),
    ],
)
async def test_the_owner_refuses(owner: Pods, other: Pods, epoch: Epoch, token: str, kind: Kind) -> None:
    got = await other.peers.invoke(owner_of(epoch, owner.peer_port), call(), token=token)
    assert isinstance(got, Failure)
    assert got.kind is kind
    assert owner.stub.count("invoke") == 0


async def test_the_certificate_must_be_of_the_epoch_s_pod(owner: Pods, other: Pods) -> None:
    got = await other.peers.invoke(owner_of(Epoch(UID, 1, "pod-9"), owner.peer_port), call(), token=GOOD)
    assert isinstance(got, Failure)
    assert got.kind is outcomes.OWNER_UNREACHABLE
    assert owner.stub.count("invoke") == 0


async def test_an_owner_that_is_not_there_was_not_dispatched_to(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "CONNECT_SECONDS", 0.2)
    dead: list[Epoch] = []
    workload = authority.workload(Role.RUNTIMED, pod_uid="pod-2")
    async with asyncio.TaskGroup() as tasks:
        peers = Peers(workload.grpc_channel_credentials, tasks=tasks, on_unreachable=dead.append)
        got = await peers.invoke(owner_of(EPOCH, 1), call(), token=GOOD)
        await peers.close()
    assert isinstance(got, Failure)
    assert (got.kind, got.kind.outcome.retry_safe, got.retry_after) == (outcomes.OWNER_UNREACHABLE, True, 1)
    assert dead == [EPOCH]


async def test_leaving_cancels_the_owner_s_work(owner: Pods, other: Pods) -> None:
    owner.stub.linger = True
    async with asyncio.TaskGroup() as group:
        first = group.create_task(other.peers.invoke(owner_of(EPOCH, owner.peer_port), call(b"hang"), token=GOOD))
        await owner.stub.started.wait()
        first.cancel()
    await until(lambda: owner.count("peer", 499, "cancelled") == 1)
    assert len(owner.dispatcher.slots) == 1
    owner.stub.release.set()
    await until(lambda: len(owner.dispatcher.slots) == 0)


async def test_a_call_is_cancelled_through_the_hop(owner: Pods, other: Pods) -> None:
    where = owner_of(EPOCH, owner.peer_port)
    missing = await other.peers.cancel(where, "id-1", token=GOOD)
    assert isinstance(missing, Failure)
    assert missing.kind is outcomes.INVOCATION_NOT_FOUND
    async with asyncio.TaskGroup() as group:
        first = group.create_task(other.peers.invoke(where, call(b"hang"), token=GOOD))
        await owner.stub.started.wait()
        assert await other.peers.cancel(where, "id-1", token=GOOD) is None
        got = await first
        assert isinstance(got, Failure)
        assert got.kind is outcomes.CANCELLED


async def test_a_renewed_certificate_lets_calls_finish(owner: Pods, other: Pods) -> None:
    where = owner_of(EPOCH, owner.peer_port)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(other.peers.invoke(where, call(b"hang"), token=GOOD))
        await owner.stub.started.wait()
        other.peers.renew()
        busy = await other.peers.invoke(where, call(id="id-2"), token=GOOD)
        assert isinstance(busy, Failure)
        assert busy.kind is outcomes.IN_FLIGHT
        owner.stub.release.set()
        assert isinstance(await first, Answer)


@pytest.mark.parametrize(
    ("role", "runtime"), [(Role.GATEWAY, "kruntimes"), (Role.ROUTER, "kruntimes"), (Role.RUNTIMED, "bash")]
)
async def test_only_peers_of_the_runtime_are_served(
    authority: Authority, owner: Pods, role: Role, runtime: str
) -> None:
    workload = authority.workload(role, pod_uid="x", owner=runtime)
    async with asyncio.TaskGroup() as tasks:
        peers = Peers(workload.grpc_channel_credentials, tasks=tasks)
        got = await peers.invoke(owner_of(EPOCH, owner.peer_port), call(), token=GOOD)
        await peers.close()
    assert isinstance(got, Failure)
    assert got.kind is outcomes.FORBIDDEN


async def test_nothing_but_invocations_and_nothing_without_the_marker(authority: Authority, owner: Pods) -> None:
    workload = authority.workload(Role.RUNTIMED, pod_uid="pod-2")
    options = [("grpc.ssl_target_name_override", "pod-1.runtimed.kruntimes.internal")]
    channel = grpc.aio.secure_channel(f"127.0.0.1:{owner.peer_port}", workload.grpc_channel_credentials(), options)
    stub = rpc.FunctionRuntimeStub(channel)
    try:
        with pytest.raises(grpc.aio.AioRpcError) as unregister:
            await stub.UnregisterFunction(pb.UnregisterFunctionRequest(), timeout=5)
        assert unregister.value.code() is grpc.StatusCode.UNIMPLEMENTED
        request = pb.InvokeFunctionRequest(
            registration=pb.FunctionRegistration(run_uid=UID), invocation_id="id-1", input=b"echo"
        )
        with pytest.raises(grpc.aio.AioRpcError) as bare:
            await stub.InvokeFunction(
                request, metadata=(("x-kr-epoch", str(EPOCH)), ("authorization", f"Bearer {GOOD}")), timeout=5
            )
        assert bare.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    finally:
        await channel.close()
    assert owner.stub.count("invoke") == 0
