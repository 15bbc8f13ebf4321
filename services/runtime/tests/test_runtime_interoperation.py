"""A client that knows the public contract's table and nothing else: no generated code, bytes made and read by hand."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from tests.runtime_process import PATIENCE_SECONDS, Server, connect

from kruntimes.pb import executor_v1_pb2 as pb

CONTRACT = {
    "ExecuteRequest": "1 id, 2 args*, 3 env*, 4 timeout_seconds, 5 working_dir, 6 entrypoint, 7 handler",
    "ExecuteResponse": "1 id",
    "StatusRequest": "1 id",
    "StatusResponse": "1 id, 2 state, 3 exit_code, 4 stdout, 5 stderr, 6 error_message",
    "ListRequest": "",
    "ListResponse": "1 entries*",
    "CancelRequest": "1 id",
    "CancelResponse": "",
    "ForgetRequest": "1 id",
    "ForgetResponse": "",
    "HealthRequest": "",
    "HealthResponse": "1 healthy, 2 message",
    "FunctionRegistration": "1 run_uid, 2 registration_id",
    "RegisterFunctionRequest": "1 run_uid, 2 registration_attempt, 3 working_dir, 4 handler, 5 env*, "
    "6 idle_timeout_seconds, 7 registration_digest",
    "RegisterFunctionResponse": "1 registration, 2 state",
    "FunctionStatusRequest": "1 registration",
    "FunctionStatusResponse": "1 registration, 2 state, 3 in_flight, 4 last_activity_unix_nano, 5 fatal_error",
    "InvokeFunctionRequest": "1 registration, 2 invocation_id, 3 input, 4 content_type, 5 timeout_millis",
    "InvokeFunctionResponse": "1 registration, 2 invocation_id, 3 output, 4 content_type, 5 outputs*",
    "UnregisterFunctionRequest": "1 registration, 2 cancel_in_flight, 3 drain_timeout_millis",
    "UnregisterFunctionResponse": "1 registration",
}
"""Names and numbers; a star marks what may repeat."""
OURS_FROM = 100

VECTORS = [
    (
        pb.RegisterFunctionRequest(
            run_uid="u", registration_attempt=1, working_dir="/w", handler="m.f", env={"A": "b"},
            idle_timeout_seconds=60, registration_digest="d",
        ),
        "0a017510011a022f7722036d2e662a060a014112016230" "3c3a0164",
    ),
    (
        pb.InvokeFunctionRequest(
            registration=pb.FunctionRegistration(run_uid="u", registration_id="r"), invocation_id="i",
            input=b"\x00\xff", content_type="a/b", timeout_millis=300,
        ),
        "0a060a017512017212016" "91a0200ff2203612f6228ac02",
    ),
    (pb.StatusResponse(id="t", state=pb.EXECUTION_STATE_FAILED, exit_code=-1), "0a01741004" "18ffffffffffffffffff01"),
    (pb.UnregisterFunctionRequest(cancel_in_flight=True, drain_timeout_millis=8000), "100118c03e"),
]  # fmt: skip


@pytest.mark.parametrize("name", CONTRACT)
def test_names_and_numbers_are_the_contracts(name: str) -> None:
    fields = pb.DESCRIPTOR.message_types_by_name[name].fields
    told = ", ".join(
        f"{field.number} {field.name}{'*' * field.is_repeated}" for field in fields if field.number < OURS_FROM
    )
    assert told == CONTRACT[name]


@pytest.mark.parametrize(("message", "hexadecimal"), VECTORS, ids=lambda value: type(value).__name__)
def test_golden_bytes(message: pb.RegisterFunctionRequest, hexadecimal: str) -> None:
    assert message.SerializeToString(deterministic=True).hex() == hexadecimal
    assert type(message).FromString(bytes.fromhex(hexadecimal)) == message


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def data(field: int, value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def fields(message: bytes) -> dict[int, list[int | bytes]]:
    """Every field by number; varints and length-delimited ones are all that the contract has."""
    found: dict[int, list[int | bytes]] = {}
    at = 0

    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = take()
        if key & 7 == 0:
            found.setdefault(key >> 3, []).append(take())
        else:
            size = take()
            found.setdefault(key >> 3, []).append(message[at : at + size])
            at += size
    return found


class Stranger:
    """Calls methods by their names."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def __call__(self, method: str, *parts: bytes) -> dict[int, list[int | bytes]]:
        call = self._channel.unary_unary(f"/executor.v1.{method}")
        return fields(await call(b"".join(parts), timeout=PATIENCE_SECONDS))


@pytest.fixture
async def stranger(python_server: Server) -> AsyncIterator[Stranger]:
    async with (
        connect(python_server),
        grpc.aio.insecure_channel(f"unix:{python_server.socket}") as channel,
    ):
        yield Stranger(channel)


async def test_a_function_from_register_to_unregister(stranger: Stranger, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import os\ndef handler(event): return [event, os.environ['A']]\n")
    digest = hashlib.sha256(b"inputs").hexdigest()
    register = (
        data(1, "uid-stranger"), number(2, 1), data(3, str(tmp_path)), data(4, "main.handler"),
        data(5, data(1, "A") + data(2, "b")), number(6, 60), data(7, digest),
    )  # fmt: skip
    answer = await stranger("FunctionRuntime/RegisterFunction", *register)
    while answer[2] == [1]:
        answer = await stranger("FunctionRuntime/RegisterFunction", *register)
    assert answer[2] == [2]  # READY
    (registration,) = answer[1]
    assert isinstance(registration, bytes)
    assert fields(registration)[1] == [b"uid-stranger"]
    called = await stranger(
        "FunctionRuntime/InvokeFunction",
        data(1, registration), data(2, "inv-7"), data(3, '{"k":1}'), data(4, "application/json"), number(5, 5000),
    )  # fmt: skip
    assert (called[1], called[2], called[3], called[4]) == (
        [registration], [b"inv-7"], [b'[{"k":1},"b"]'], [b"application/json"],
    )  # fmt: skip
    status = await stranger("FunctionRuntime/FunctionStatus", data(1, registration))
    assert (status[1], status[2], status.get(3)) == ([registration], [2], None)
    assert isinstance(status[4][0], int)
    assert status[4][0] > 1_600_000_000_000_000_000
    removed = await stranger("FunctionRuntime/UnregisterFunction", data(1, registration), number(2, 1))
    assert removed[1] == [registration]
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stranger("FunctionRuntime/FunctionStatus", data(1, registration))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_task_from_execute_to_forget(stranger: Stranger, tmp_path: Path) -> None:
    (tmp_path / "main.sh").write_text('echo "$1 $A"; echo no >&2; exit 3\n')
    execute = (
        data(1, "t-stranger"), data(2, "one"), data(3, data(1, "A") + data(2, "b")), number(4, 60),
        data(5, str(tmp_path)), data(6, "main.sh"),
    )  # fmt: skip
    assert await stranger("Runtime/Execute", *execute) == {1: [b"t-stranger"]}
    while (status := await stranger("Runtime/Status", data(1, "t-stranger")))[2] == [2]:
        pass
    assert (status[2], status[3], status[4], status[5]) == ([4], [3], [b"one b\n"], [b"no\n"])
    listed = await stranger("Runtime/List")
    assert b"t-stranger" in [fields(entry)[1][0] for entry in listed[1] if isinstance(entry, bytes)]
    assert await stranger("Runtime/Cancel", data(1, "t-stranger")) == {}
    assert await stranger("Runtime/Forget", data(1, "t-stranger")) == {}
    assert (await stranger("Runtime/Health"))[1] == [1]
