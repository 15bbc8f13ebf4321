"""Refusals and errors as a gRPC status with google.rpc.ErrorInfo (executor.v1; design §13).

The whole status stays under 6 KiB: gRPC drops trailers over 8 KiB at random.
"""

import grpc
from google.rpc import error_details_pb2, status_pb2

from kruntimes.runtime import answers, bounds, replies
from kruntimes.runtime.answers import Answer
from kruntimes.runtime.host.protocol import ErrorDocument

DOMAIN = "kruntimes.io"
DETAILS_KEY = "grpc-status-details-bin"
MAX_DETAIL_TEXT_BYTES = 512
"""The plain message, which gRPC sends percent-encoded beside the details."""

_CODES = {
    answers.BAD_INPUT: grpc.StatusCode.INVALID_ARGUMENT,
    answers.CANCELLED: grpc.StatusCode.CANCELLED,
    replies.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    answers.FUNCTION_ERROR: grpc.StatusCode.UNKNOWN,
    replies.UNKNOWN_REGISTRATION: grpc.StatusCode.NOT_FOUND,
    answers.NOT_DISPATCHED: grpc.StatusCode.UNAVAILABLE,
    answers.TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
}

Metadata = tuple[tuple[str, bytes], ...]


def of_answer(answer: Answer) -> tuple[grpc.StatusCode, str, Metadata]:
    """The status of an answer that is not 200: code, plain message, trailing metadata."""
    document = answer.error or ErrorDocument(reason="FunctionError", message="the function failed")
    more = {"stage": answer.stage.value} if answer.stage is not None else {}
    return of(_CODES[answer.code], document, more)


def of(
    code: grpc.StatusCode, document: ErrorDocument, more: dict[str, str] | None = None
) -> tuple[grpc.StatusCode, str, Metadata]:
    """The status that says *document*: its reason, and type, message and traceback as metadata."""
    message = bounds.head(document.message, bounds.MAX_MESSAGE_BYTES)
    metadata = {
        "type": bounds.head(document.type, bounds.MAX_TYPE_CHARS),
        "message": message,
        "traceback": bounds.tail(document.traceback, bounds.MAX_TRACEBACK_BYTES),
        **(more or {}),
    }
    info = error_details_pb2.ErrorInfo(
        reason=document.reason, domain=DOMAIN, metadata={key: value for key, value in metadata.items() if value}
    )
    plain = bounds.head(_ascii(message), MAX_DETAIL_TEXT_BYTES)
    status = status_pb2.Status(code=code.value[0], message=plain)
    status.details.add().Pack(info)
    return code, plain, ((DETAILS_KEY, status.SerializeToString()),)


def _ascii(text: str) -> str:
    """Percent-encoding would treble what is not ASCII; the full text is in the details."""
    return text.encode("ascii", "replace").decode()
