"""google.rpc.ErrorInfo in a gRPC status: read from an error, written for a peer (design §13)."""

from collections.abc import Mapping

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from kruntimes.runtimed.codes import DOMAIN, Info

KEY = "grpc-status-details-bin"
"""The trailing metadata that carries a whole google.rpc.Status."""
VALUE_BYTES = 4096
"""Of one ErrorInfo value this much is passed on: the whole status must stay below 6 KiB (design §13)."""
STATUS_BYTES = 6 * 1024


def info_of(error: grpc.aio.AioRpcError) -> Info | None:
    """The ErrorInfo of our own domain, or None where the status carries none."""
    for key, value in error.trailing_metadata() or ():
        if key != KEY:
            continue
        try:
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.domain == DOMAIN:
                    return Info(reason=info.reason, metadata=dict(info.metadata))
        except DecodeError:
            return None
    return None


def trailing(*, code: grpc.StatusCode, message: str, reason: str, metadata: Mapping[str, str]) -> tuple[str, bytes]:
    """The metadata entry that gives a status our ErrorInfo; long values are cut, or dropped where no room is left."""
    info = error_details_pb2.ErrorInfo(domain=DOMAIN, reason=reason)
    left = STATUS_BYTES - len(message.encode()) - 256
    for key, value in metadata.items():
        cut = value.encode()[: min(VALUE_BYTES, left)].decode("utf-8", "ignore")
        left -= len(cut.encode()) + len(key) + 16
        if left <= 0:
            break
        info.metadata[key] = cut
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(code=code.value[0], message=message, details=[detail])
    return KEY, status.SerializeToString()
