"""The client of the Pod's Runtime Server: executor.v1 over its unix socket, or its TCP port (design §13).

Whichever answers first is used from then on. Nothing here retries a call: gRPC's own retries are off, and who may
repeat what is decided elsewhere.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import grpc

from kruntimes.common import clock
from kruntimes.common.api.outcomes import MAX_BODY_BYTES, MAX_OUTPUT_BYTES
from kruntimes.common.errors import NotReady
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.pb import executor_v1_pb2_grpc as rpc
from kruntimes.runtimed.codes import describe
from kruntimes.runtimed.errorinfo import info_of
from kruntimes.runtimed.executor import Executor
from kruntimes.runtimed.link import FunctionsLink
from kruntimes.runtimed.observed import Function, FunctionState

log = logging.getLogger(__name__)

MESSAGE_BYTES = max(MAX_BODY_BYTES, MAX_OUTPUT_BYTES) + 128 * 1024
"""A body or output of 1 MiB, and beside it outputs of 64 KiB and the rest of the message."""
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_metadata_size", 32 * 1024),
    ("grpc.absolute_max_metadata_size", 32 * 1024),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
)
"""What every channel and server of ours sets: statuses of 6 KiB must pass, and nothing may run twice."""
LOCAL_OPTIONS = (
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 250),
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
"""Beside them, for a server in the same Pod: it is soon back, and never too far away to stay connected."""
CALL_SECONDS = 5.0
"""FunctionStatus and Health answer from memory."""
SEARCH_SECONDS = 0.1
"""Between two looks for a server that is not there yet: it starts after us, by design."""
CONNECT_SECONDS = 1.0
"""A call waits this long for a server that is just coming back, then it was not dispatched."""
UNREGISTER_SECONDS = 15.0
"""Above the 10 s in which the server has killed what it must."""

_STATES = {
    pb.FUNCTION_REGISTRATION_STATE_REGISTERING: FunctionState.REGISTERING,
    pb.FUNCTION_REGISTRATION_STATE_READY: FunctionState.READY,
    pb.FUNCTION_REGISTRATION_STATE_DRAINING: FunctionState.DRAINING,
    pb.FUNCTION_REGISTRATION_STATE_FAILED: FunctionState.FAILED,
}


class RuntimeServer:
    """A connection to the Runtime Server, once `connect` has found it.

    on_back: called when the server can be reached again after it could not. link: to its functions socket, if it turns
    out to be one of ours.
    """

    def __init__(self, *, on_back: Callable[[], None] = lambda: None, link: FunctionsLink | None = None) -> None:
        self.link = link
        self._on_back = on_back
        self._channel: grpc.aio.Channel | None = None
        self._functions: rpc.FunctionRuntimeAsyncStub | None = None
        self._executor: Executor | None = None

    @property
    def connected(self) -> bool:
        """Whether the channel is connected at this moment."""
        return self._channel is not None and self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def connect(self, *, socket: Path | None, port: int) -> None:
        """Waits, without end, until a Runtime Server answers on its unix socket or on its port of our own loopback."""
        targets = ([f"unix:{socket}"] if socket is not None else []) + [f"127.0.0.1:{port}"]
        channels = {target: grpc.aio.insecure_channel(target, options=LOCAL_OPTIONS) for target in targets}
        try:
            while self._channel is None:
                for target, channel in channels.items():
                    if await _answers(channel):
                        self._channel, self._functions = channel, rpc.FunctionRuntimeStub(channel)
                        self._executor = Executor(channel)
                        log.info("runtime server found", extra={"target": target})
                        break
                else:
                    await asyncio.sleep(SEARCH_SECONDS)
        finally:
            for channel in channels.values():
                if channel is not self._channel:
                    await channel.close()

    async def watch(self) -> None:
        """Keeps the channel connected, and tells when the server is back; until cancelled."""
        channel = self._channel
        assert channel is not None, "connect comes first"
        away = False
        while True:
            state = channel.get_state(try_to_connect=True)
            if state is grpc.ChannelConnectivity.READY and away:
                away = False
                log.info("runtime server is back")
                self._on_back()
            elif state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and not away:
                away = True
                log.warning("runtime server is away")
            elif state is grpc.ChannelConnectivity.IDLE:
                away = True
            await channel.wait_for_state_change(state)

    async def ready(self, seconds: float = CONNECT_SECONDS) -> bool:
        """Whether the channel is connected, or becomes so within *seconds*."""
        if self.connected:
            return True
        if self._channel is None:
            return False
        try:
            async with asyncio.timeout(seconds):
                await self._channel.channel_ready()
        except TimeoutError:
            return False
        return True

    async def register(self, request: pb.RegisterFunctionRequest, *, timeout: float) -> pb.RegisterFunctionResponse:
        """One RegisterFunction. Raises AioRpcError; an uncertain one may be repeated with the same request."""
        response: pb.RegisterFunctionResponse = await self._stub.RegisterFunction(request, timeout=timeout)
        return response

    async def status(self, *, run_uid: str, registration_id: str) -> Function:
        """One FunctionStatus. Raises NotReady where the server gave no answer."""
        request = pb.FunctionStatusRequest(
            registration=pb.FunctionRegistration(run_uid=run_uid, registration_id=registration_id)
        )
        try:
            answer: pb.FunctionStatusResponse = await self._stub.FunctionStatus(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
                return Function(state=FunctionState.FORGOTTEN, read_at=clock.monotonic())
            text = describe(info_of(error), error.details() or "")
            raise NotReady(f"the Runtime Server gave no status: {error.code().name}: {text}") from error
        return Function(
            state=_STATES.get(answer.state, FunctionState.FAILED),
            in_flight=answer.in_flight,
            last_activity=answer.last_activity_unix_nano / 1e9,
            fatal_error=answer.fatal_error,
            read_at=clock.monotonic(),
        )

    async def unregister(self, *, run_uid: str, registration_id: str) -> None:
        """One UnregisterFunction, cancelling what is still in flight. An absent registration is no error.

        Without an id a server of ours removes whatever is registered for that Run; others find nothing to remove.
        Raises NotReady where it is not known to have been done; it may be repeated.
        """
        request = pb.UnregisterFunctionRequest(
            registration=pb.FunctionRegistration(run_uid=run_uid, registration_id=registration_id),
            cancel_in_flight=True,
        )
        try:
            await self._stub.UnregisterFunction(request, timeout=UNREGISTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            absent = error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED)
            if absent or (not registration_id and error.code() is grpc.StatusCode.INVALID_ARGUMENT):
                return
            text = describe(info_of(error), error.details() or "")
            raise NotReady(f"the function could not be unregistered: {error.code().name}: {text}") from error

    def invoke(
        self, request: pb.InvokeFunctionRequest, *, timeout: float, metadata: tuple[tuple[str, str], ...]
    ) -> grpc.aio.UnaryUnaryCall[pb.InvokeFunctionRequest, pb.InvokeFunctionResponse]:
        """Starts one InvokeFunction; await the call, or cancel it."""
        call: grpc.aio.UnaryUnaryCall[pb.InvokeFunctionRequest, pb.InvokeFunctionResponse]
        call = self._stub.InvokeFunction(request, timeout=timeout, metadata=metadata)
        return call

    def offered(self, functions_socket: str) -> bool:
        """Whether calls may go to the *functions_socket* that a registration's answer names; empty names none."""
        return bool(functions_socket) and self.link is not None and self.link.offer(functions_socket)

    async def close(self) -> None:
        """Closes the connection."""
        if self._channel is not None:
            await self._channel.close()

    @property
    def executor(self) -> Executor:
        """Its one-shot half. Raises NotReady before the server was found."""
        if self._executor is None:
            raise NotReady("the Runtime Server has not been found yet")
        return self._executor

    @property
    def _stub(self) -> "rpc.FunctionRuntimeAsyncStub":
        if self._functions is None:
            raise NotReady("the Runtime Server has not been found yet")
        return self._functions


async def _answers(channel: grpc.aio.Channel) -> bool:
    """Whether a Runtime Server speaks on *channel*; one that offers functions only, without Health, counts."""
    try:
        health: pb.HealthResponse = await rpc.RuntimeStub(channel).Health(pb.HealthRequest(), timeout=CALL_SECONDS)
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.UNIMPLEMENTED
    return health.healthy
