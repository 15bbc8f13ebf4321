"""Refusals as the end of a gRPC call (shell)."""

from typing import Any, NoReturn

import grpc
import grpc.aio

from kruntimes.runtime import faults
from kruntimes.runtime.host.protocol import ErrorDocument
from kruntimes.runtime.registry import Refused

Context = grpc.aio.ServicerContext[Any, Any]


async def refuse(context: Context, refused: Refused) -> NoReturn:
    """Ends the call with *refused* as its status."""
    document = ErrorDocument(reason=refused.reason, message=refused.message)
    await abort(context, *faults.of(grpc.StatusCode[refused.code.name], document))


async def abort(context: Context, code: grpc.StatusCode, message: str, metadata: faults.Metadata) -> NoReturn:
    """Ends the call with that status."""
    await context.abort(code, message, metadata)
    raise AssertionError("abort raises")
