"""A discovery client over grpc.aio that sends and reads envoy-data-plane's messages: for the tests of the router."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from tests.router_gateway import LIMIT_SECONDS
from tests.xds_messages import DeltaDiscoveryRequest, DeltaDiscoveryResponse, Node

from kruntimes.common.api.names import ROUTER_DNS
from kruntimes.common.kube.csr import Certificate
from kruntimes.router.ads import METHOD, SERVICE


@dataclass
class Client:
    """One stream; `world` is what was received and acknowledged: type URL → name → body."""

    call: Any
    world: dict[str, dict[str, bytes]] = field(default_factory=dict)

    async def send(self, type_url: str, **fields: Any) -> None:
        await self.send_bytes(bytes(DeltaDiscoveryRequest(node=Node(id="test"), type_url=type_url, **fields)))

    async def send_bytes(self, data: bytes) -> None:
        await self.call.write(data)

    async def receive(self) -> DeltaDiscoveryResponse:
        """The next response, acknowledged."""
        async with asyncio.timeout(LIMIT_SECONDS):
            data = await self.call.read()
        assert isinstance(data, bytes), "the stream has ended"
        response = DeltaDiscoveryResponse.parse(data)
        held = self.world.setdefault(response.type_url, {})
        for resource in response.resources:
            assert resource.resource is not None
            held[resource.name] = resource.resource.value
        for name in response.removed_resources:
            held.pop(name, None)
        await self.send(response.type_url, response_nonce=response.nonce)
        return response

    async def until(self, type_url: str, name: str, part: bytes | None) -> None:
        """Receives until the resource *name* contains *part*, or is gone where *part* is None."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                body = self.world.get(type_url, {}).get(name)
                if (body is None) if part is None else (body is not None and part in body):
                    return
                await self.receive()

    async def code(self) -> grpc.StatusCode:
        """How the stream ended; what still came before that is passed over."""
        async with asyncio.timeout(LIMIT_SECONDS):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while isinstance(await self.call.read(), bytes):
                    pass
            return await self.call.code()


@contextlib.asynccontextmanager
async def connected(target: str, certificate: Certificate, ca: bytes) -> AsyncIterator[Client]:
    """A stream to the router at *target*, with that certificate."""
    credentials = grpc.ssl_channel_credentials(
        root_certificates=ca, private_key=certificate.key_pem, certificate_chain=certificate.chain_pem
    )
    options = [("grpc.ssl_target_name_override", ROUTER_DNS), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
        call = channel.stream_stream(f"/{SERVICE}/{METHOD}")()
        try:
            yield Client(call)
        finally:
            call.cancel()
