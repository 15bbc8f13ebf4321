"""The one hop between runtimeds of a Runtime: gRPC on mTLS, InvokeFunction and nothing else (design §6 and §13).

Metadata: `x-kr-hop: 1`, the epoch that is expected, the caller's own credential, which the owner asks about again, and
`x-kr-cancel: 1` where the call of that id is to be cancelled instead. A request that comes over this hop never
goes on to another.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

import grpc

from kruntimes.common import clock
from kruntimes.common.access import bearer
from kruntimes.common.api import outcomes
from kruntimes.common.api.epoch import HEADER, HOP_HEADER, Epoch
from kruntimes.common.api.names import InvokePath, Role, pod_dns
from kruntimes.common.api.outcomes import Failure, Outcome
from kruntimes.common.tls import peer_of
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.pb import executor_v1_pb2_grpc as rpc
from kruntimes.runtimed.codes import PEER_CODES, describe, details_of, peer_outcome_of
from kruntimes.runtimed.dispatch import DEADLINE_GRACE_SECONDS
from kruntimes.runtimed.errorinfo import info_of, trailing
from kruntimes.runtimed.invocation import Answer, Invocation, failure
from kruntimes.runtimed.invoker import Invoker, Limits
from kruntimes.runtimed.metrics import Metrics
from kruntimes.runtimed.ownership import Asked, Peer
from kruntimes.runtimed.registration import OPTIONS

log = logging.getLogger(__name__)

CANCEL_HEADER = "x-kr-cancel"
MAX_CHANNELS = 64
"""Peers are the Pods of one Runtime; beyond this the one that was used least recently is closed."""
CONNECT_SECONDS = 1.0
"""As Envoy's connect time-out: an owner that cannot be reached in this time was not dispatched to."""
CHANNEL_GRACE_SECONDS = outcomes.MAX_DEADLINE_SECONDS + 5
"""A channel that is replaced lets its calls finish."""
STOP_SECONDS = 5.0


class PeerServer:
    """Serves the hop for Runs that are registered here."""

    def __init__(self, invoker: Invoker, *, limits: Limits, metrics: Metrics) -> None:
        self._invoker = invoker
        self._limits = limits
        self._metrics = metrics
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, credentials: grpc.ServerCredentials) -> int:
        """Listens on `HOST:PORT`; returns the port."""
        server = grpc.aio.server(options=(*OPTIONS, ("grpc.so_reuseport", 0)))
        method = grpc.unary_unary_rpc_method_handler(
            self.InvokeFunction,
            request_deserializer=pb.InvokeFunctionRequest.FromString,
            response_serializer=pb.InvokeFunctionResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("executor.v1.FunctionRuntime", {"InvokeFunction": method}),)
        )
        port = server.add_secure_port(address, credentials)
        await server.start()
        self._server = server
        return port

    async def stop(self) -> None:
        """Ends the listener; calls under way have a few seconds."""
        if self._server is not None:
            await self._server.stop(STOP_SECONDS)

    async def InvokeFunction(
        self,
        request: pb.InvokeFunctionRequest,
        context: grpc.aio.ServicerContext[pb.InvokeFunctionRequest, pb.InvokeFunctionResponse],
    ) -> pb.InvokeFunctionResponse:
        """One hop: an answer, or a status that names what came of it."""
        started = clock.monotonic()
        metadata = {str(key): value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        try:
            result = await self._answer(request, metadata, context)
        except asyncio.CancelledError:
            self._tell(request, started, 499, Outcome.CANCELLED)
            raise
        except Exception:
            log.exception("peer request failed", extra={"run_uid": request.registration.run_uid})
            result = failure(outcomes.OUTCOME_UNKNOWN, "an internal error", request.invocation_id)
        if isinstance(result, Failure):
            self._tell(request, started, result.kind.status, result.kind.outcome)
            await _abort(context, result)
            raise AssertionError("abort raises")
        self._tell(request, started, 200, Outcome.COMPLETED)
        response = pb.InvokeFunctionResponse(registration=request.registration, invocation_id=request.invocation_id)
        if result is not None:
            response.output, response.content_type = result.output, result.content_type
            response.outputs.update(result.outputs)
        return response

    async def _answer(
        self,
        request: pb.InvokeFunctionRequest,
        metadata: dict[str, str],
        context: grpc.aio.ServicerContext[pb.InvokeFunctionRequest, pb.InvokeFunctionResponse],
    ) -> Answer | Failure | None:
        own, invocation_id = self._invoker.own, request.invocation_id
        peer = peer_of(context.auth_context())
        if peer is None or (peer.role, peer.namespace, peer.owner) != (Role.RUNTIMED, own.namespace, own.runtime):
            return failure(outcomes.FORBIDDEN, "only runtimeds of this Runtime are served here", invocation_id)
        if metadata.get(HOP_HEADER) != "1" or not outcomes.valid_invocation_id(invocation_id):
            return failure(outcomes.BAD_REQUEST, "not a request of a peer", None)
        try:
            expected = Epoch.parse(metadata.get(HEADER, ""))
        except ValueError as error:
            return failure(outcomes.BAD_REQUEST, str(error), invocation_id)
        path = InvokePath(own.namespace, own.runtime, request.registration.run_uid, canonical=True)
        asked = Asked(path=path, expected=expected, hop=True)
        token = bearer(metadata.get("authorization"))
        refused = await self._invoker.admit(asked, token=token, invocation_id=invocation_id)
        if refused is not None:
            return refused
        assert token is not None, "admitted without a token"
        if metadata.get(CANCEL_HEADER) == "1":
            return await self._invoker.cancel(asked, invocation_id, token=token)
        if len(request.input) > outcomes.MAX_BODY_BYTES:
            return failure(outcomes.BODY_TOO_LARGE, "the body is too large", invocation_id)
        seconds = min(request.timeout_millis / 1000 or self._limits.default_timeout, self._limits.max_timeout)
        invocation = Invocation(
            id=invocation_id,
            body=request.input,
            content_type=request.content_type,
            seconds=seconds,
            trace=metadata.get("traceparent", ""),
        )
        return await self._invoker.invoke(asked, invocation, token=token)

    def _tell(self, request: pb.InvokeFunctionRequest, started: float, status: int, outcome: Outcome) -> None:
        seconds = clock.monotonic() - started
        self._metrics.answered(hop="peer", status=status, outcome=outcome, seconds=seconds)
        log.info(
            "peer invocation ended",
            extra={
                "runtime": self._invoker.own.key,
                "run_uid": request.registration.run_uid,
                "invocation_id": request.invocation_id,
                "status": status,
                "outcome": outcome.value,
                "ms": round(seconds * 1000, 2),
            },
        )


async def _abort(
    context: grpc.aio.ServicerContext[pb.InvokeFunctionRequest, pb.InvokeFunctionResponse], failed: Failure
) -> None:
    """Ends the RPC with a status that carries the failure: reason, message, and a function error's details."""
    code = grpc.StatusCode[PEER_CODES.get(failed.kind.status, "UNKNOWN")]
    details = {key: str(value) for key, value in failed.details.items()}
    metadata = {"text": failed.message} | details
    entry = trailing(code=code, message=failed.kind.reason, reason=failed.kind.reason, metadata=metadata)
    await context.abort(code, failed.kind.reason, (entry,))


class Peers:
    """Calls owners. credentials: makes channel credentials from the certificate as it is now."""

    def __init__(
        self,
        credentials: Callable[[], grpc.ChannelCredentials],
        *,
        tasks: asyncio.TaskGroup,
        on_unreachable: Callable[[Epoch], None] = lambda _: None,
    ) -> None:
        self._credentials = credentials
        self._tasks = tasks
        self._on_unreachable = on_unreachable
        self._channels: OrderedDict[tuple[str, str], grpc.aio.Channel] = OrderedDict()

    async def invoke(self, owner: Peer, invocation: Invocation, *, token: str) -> Answer | Failure:
        """Proxies one call to its owner; cancelled from outside, the call is cancelled there too."""
        started = clock.monotonic()
        result = await self._call(owner, invocation, token=token, cancel=False)
        if isinstance(result, Failure):
            return result
        return Answer(
            output=result.output,
            content_type=result.content_type or "application/octet-stream",
            outputs=dict(result.outputs),
            seconds=clock.monotonic() - started,
        )

    async def cancel(self, owner: Peer, invocation_id: str, *, token: str) -> Failure | None:
        """Passes a cancellation on; None once the owner has taken it."""
        asked = Invocation(id=invocation_id, body=b"", content_type="", seconds=CONNECT_SECONDS)
        result = await self._call(owner, asked, token=token, cancel=True)
        return result if isinstance(result, Failure) else None

    async def _call(
        self, owner: Peer, invocation: Invocation, *, token: str, cancel: bool
    ) -> pb.InvokeFunctionResponse | Failure:
        channel = self._channel(owner)
        if not await _connected(channel):
            self._on_unreachable(owner.epoch)
            return failure(outcomes.OWNER_UNREACHABLE, "the function's owner cannot be reached", invocation.id)
        request = pb.InvokeFunctionRequest(
            registration=pb.FunctionRegistration(run_uid=owner.epoch.run_uid),
            invocation_id=invocation.id,
            input=invocation.body,
            content_type=invocation.content_type,
            timeout_millis=max(1, round(invocation.seconds * 1000)),
        )
        metadata = [(HEADER, str(owner.epoch)), (HOP_HEADER, "1"), ("authorization", f"Bearer {token}")]
        if invocation.trace:
            metadata.append(("traceparent", invocation.trace))
        if cancel:
            metadata.append((CANCEL_HEADER, "1"))
        try:
            response: pb.InvokeFunctionResponse = await rpc.FunctionRuntimeStub(channel).InvokeFunction(
                request, timeout=invocation.seconds + 2 * DEADLINE_GRACE_SECONDS, metadata=tuple(metadata)
            )
        except grpc.aio.AioRpcError as error:
            info, text = info_of(error), error.details() or ""
            kind = peer_outcome_of(error.code().name, info, connected=True, text=text)
            if error.code() is grpc.StatusCode.UNAVAILABLE and info is None:
                self._on_unreachable(owner.epoch)
            message = info.metadata.get("text", "") if info is not None else ""
            return failure(kind, message or describe(info, "") or kind.reason, invocation.id, details_of(info))
        return response

    def _channel(self, owner: Peer) -> grpc.aio.Channel:
        """A channel to the Pod that must show the certificate of the epoch's Pod UID, whatever its address."""
        key = (owner.address, owner.epoch.pod_uid)
        if (known := self._channels.get(key)) is not None:
            self._channels.move_to_end(key)
            return known
        name = pod_dns(pod_uid=owner.epoch.pod_uid, role=Role.RUNTIMED)
        options = (*OPTIONS, ("grpc.ssl_target_name_override", name), ("grpc.enable_http_proxy", 0))
        channel = grpc.aio.secure_channel(owner.address, self._credentials(), options=options)
        self._channels[key] = channel
        while len(self._channels) > MAX_CHANNELS:
            self._retire(self._channels.popitem(last=False)[1])
        return channel

    def renew(self) -> None:
        """Lets new calls use new channels, with the certificate as it is now; those under way finish."""
        for channel in self._channels.values():
            self._retire(channel)
        self._channels.clear()

    def _retire(self, channel: grpc.aio.Channel) -> None:
        closing = channel.close(CHANNEL_GRACE_SECONDS)
        try:
            self._tasks.create_task(closing)
        except RuntimeError:  # the group is ending, and the process with it
            closing.close()

    async def close(self) -> None:
        """Closes every channel at once."""
        for channel in self._channels.values():
            await channel.close()


async def _connected(channel: grpc.aio.Channel) -> bool:
    """Whether the channel is connected, or becomes so in time. Nothing is ever sent before it is."""
    if channel.get_state() is grpc.ChannelConnectivity.READY:
        return True
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await channel.channel_ready()
    except TimeoutError:
        return False
    return True
