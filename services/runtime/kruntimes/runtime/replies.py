"""Answers and refusals as results of the functions socket (design §13). Pure; `faults` is its counterpart for gRPC."""

from kruntimes.functions.wire import documents
from kruntimes.functions.wire.documents import AnswerMeta, FailureBody
from kruntimes.functions.wire.events import Rejected, Result
from kruntimes.runtime import answers, bounds
from kruntimes.runtime.answers import Answer
from kruntimes.runtime.host.protocol import ERROR_TYPE, ErrorDocument
from kruntimes.runtime.registry import Code, Refused

BUSY, UNKNOWN_REGISTRATION, TOO_LARGE = 429, 501, 413

_REFUSALS = {
    Code.INVALID_ARGUMENT: answers.BAD_INPUT,
    Code.NOT_FOUND: UNKNOWN_REGISTRATION,
    Code.FAILED_PRECONDITION: answers.NOT_DISPATCHED,
    Code.ALREADY_EXISTS: answers.NOT_DISPATCHED,
    Code.RESOURCE_EXHAUSTED: BUSY,
}
_FAILED = ErrorDocument(reason="FunctionError", message="the function failed")


def of_answer(tx: str, answer: Answer, *, seconds: float) -> Result:
    """The result of a call that had its slot for *seconds*."""
    meta = documents.encode(
        AnswerMeta(outputs=answer.outputs, log_tail=answer.log_tail, duration_ms=round(seconds * 1000, 3))
    )
    if answer.code == answers.OK:
        return Result(uid=tx, code=answer.code, content_type=answer.content_type, body=answer.body, meta=meta)
    return _failure(tx, answer.code, answer.error or _FAILED, meta)


def of_refusal(tx: str, refused: Refused) -> Result:
    """The result of a call that was not taken."""
    return _failure(tx, _REFUSALS[refused.code], ErrorDocument(reason=refused.reason, message=refused.message))


def of_rejected(tx: str, rejected: Rejected) -> Result:
    """The result of a frame that the decoder did not keep."""
    reason = "PayloadTooLarge" if rejected.code == TOO_LARGE else "MalformedCall"
    return _failure(tx, rejected.code, ErrorDocument(reason=reason, message=rejected.message))


def _failure(tx: str, code: int, document: ErrorDocument, meta: bytes = b"") -> Result:
    body = FailureBody(
        reason=document.reason,
        message=bounds.head(document.message, bounds.MAX_MESSAGE_BYTES),
        type=bounds.head(document.type, bounds.MAX_TYPE_CHARS),
        traceback=bounds.tail(document.traceback, bounds.MAX_TRACEBACK_BYTES),
    )
    return Result(uid=tx, code=code, content_type=ERROR_TYPE, body=documents.encode(body), meta=meta)
