"""Answers and refusals as results of the functions socket (design §13). Pure; `faults` is its counterpart for gRPC."""

from kruntimes.functions.wire import documents
from kruntimes.functions.wire.documents import AnswerMeta, FailureBody
from kruntimes.functions.wire.events import Result
from kruntimes.runtime import answers, bounds
from kruntimes.runtime.answers import Answer
from kruntimes.runtime.host.protocol import ERROR_TYPE, ErrorDocument
from kruntimes.runtime.registry import Code, Refused

BUSY, UNKNOWN_REGISTRATION = 429, 501

_REFUSALS = {
    Code.INVALID_ARGUMENT: answers.BAD_INPUT,
    Code.NOT_FOUND: UNKNOWN_REGISTRATION,
    Code.FAILED_PRECONDITION: answers.NOT_DISPATCHED,
    Code.ALREADY_EXISTS: answers.NOT_DISPATCHED,
    Code.RESOURCE_EXHAUSTED: BUSY,
}
_FAILED = ErrorDocument(reason="FunctionError", message="the function failed")


def of_answer(tx: str, answer: Answer, *, seconds: float) -> Result:
    """The result of a call that had its slot for *seconds*; its origin is *answer*."""
    meta = documents.encode(
        AnswerMeta(outputs=answer.outputs, log_tail=answer.log_tail, duration_ms=round(seconds * 1000, 3))
    )
    if answer.code == answers.OK:
        body, content_type = answer.body, answer.content_type
    else:
        body, content_type = _document(answer.error or _FAILED), ERROR_TYPE
    return Result(uid=tx, code=answer.code, content_type=content_type, body=body, meta=meta, origin=answer)


def of_result(result: Result) -> Answer:
    """The answer that *result* says: that of a call that ran, or the manager's own."""
    if isinstance(result.origin, Answer):
        return result.origin
    failure = documents.decode_failure(result.body)
    return Answer(code=result.code, error=ErrorDocument(reason=failure.reason, message=failure.message))


def of_refusal(tx: str, refused: Refused) -> Result:
    """The result of a call that was not taken."""
    document = ErrorDocument(reason=refused.reason, message=refused.message)
    return Result(uid=tx, code=_REFUSALS[refused.code], content_type=ERROR_TYPE, body=_document(document))


def _document(document: ErrorDocument) -> bytes:
    return documents.encode(
        FailureBody(
            reason=document.reason,
            message=bounds.head(document.message, bounds.MAX_MESSAGE_BYTES),
            type=bounds.head(document.type, bounds.MAX_TYPE_CHARS),
            traceback=bounds.tail(document.traceback, bounds.MAX_TRACEBACK_BYTES),
        )
    )
