"""Unregistering what its owner has lost the id of."""

import grpc
import pytest
from tests.runtime_process import Client

from kruntimes.pb import executor_v1_pb2 as pb


async def test_without_an_id_whatever_is_registered_for_the_run_goes(python: Client) -> None:
    lost = await python.register("globals", "main.counter", uid="lost")
    other = await python.register("globals", "main.counter", uid="other")
    for _ in range(2):
        nameless = pb.FunctionRegistration(run_uid="lost")
        await python.stub.UnregisterFunction(pb.UnregisterFunctionRequest(registration=nameless))
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await python.stub.FunctionStatus(pb.FunctionStatusRequest(registration=lost.registration))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert await other.output() == b"1"
