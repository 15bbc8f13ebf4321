"""What the manager answers by itself: codes, reasons, sentences, and their documents in either mode. Pure."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from kruntimes.functions.wire import documents
from kruntimes.functions.wire.documents import FailureBody
from kruntimes.functions.wire.events import Reason, Rejected

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Failure:
    """code: as an HTTP status. reason: one word for programs. message: a sentence for people, without any payload."""

    code: int
    reason: str
    message: str


CANCELLED = Failure(499, "Cancelled", "the call was cancelled")
CANCELLED_UNREAD = Failure(499, "Cancelled", "the call was cancelled before its payload was read")
CANCELLED_AT_STOP = Failure(499, "Cancelled", "the call was cancelled because the functions manager stops")
DEADLINE = Failure(504, "DeadlineExceeded", "the deadline passed before the call was answered")
STOPPING = Failure(503, "Stopping", "the functions manager is stopping")
QUEUE_FULL = Failure(503, "QueueFull", "the caller did not heed that the queue is full")
UNKNOWN_FUNCTION = Failure(501, "UnknownFunction", "no function of this name is registered")
NO_HANDLER = Failure(501, "NoHandler", "the function has no handler")
BUSY = Failure(429, "InvocationInFlight", "an invocation of this function is in flight")
NO_WORKER = Failure(429, "NoWorker", "every worker is busy")
PANIC = Failure(500, "FunctionError", "the function's handler failed")
NOT_AN_ANSWER = Failure(500, "FunctionError", "the function's handler returned something that is not an answer")
NOT_ENCODABLE = Failure(500, "FunctionError", "the function's answer cannot be put into a frame")

Format = Callable[[Failure], tuple[str, bytes]]
"""A failure as content type and body."""


def of_rejected(rejected: Rejected) -> Failure:
    """What a refused frame is answered."""
    reason = "PayloadTooLarge" if rejected.reason is Reason.PAYLOAD_TOO_LARGE else "MalformedCall"
    return Failure(rejected.code, reason, rejected.message)


def for_agents(failure: Failure) -> tuple[str, bytes]:
    """The document that agents show to people."""
    return JSON, json.dumps({"status": failure.code, "errorMessage": failure.message}).encode()


def for_link(failure: Failure) -> tuple[str, bytes]:
    """The document of the functions socket (design §13)."""
    return JSON, documents.encode(FailureBody(reason=failure.reason, message=failure.message))
