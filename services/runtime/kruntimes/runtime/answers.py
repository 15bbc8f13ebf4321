"""What came of one call to a function, decided from what its host said and why it was stopped, if it was.

Pure. The codes are those of the functions protocol (design §13); gRPC codes are the server's business.
"""

import msgspec

from kruntimes.functions.wire.events import Result
from kruntimes.runtime import bounds
from kruntimes.runtime.host.protocol import ErrorDocument, Meta
from kruntimes.runtime.ladder import Action, Why

OK, BAD_INPUT, CANCELLED, FUNCTION_ERROR, NOT_DISPATCHED, TIMEOUT = 200, 400, 499, 500, 503, 504

_STAGES = {
    None: "before it was asked to",
    Action.ASK: "when it was asked to",
    Action.TERM: "by SIGTERM",
    Action.KILL: "by SIGKILL",
}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """code and, for 200, body, content type and outputs; otherwise error.

    recycle: why the host must not serve another call, empty for none. log_tail: what the call printed, bounded.
    stage: for 504 and 499, the last step that was taken to end the work.
    """

    code: int
    body: bytes = b""
    content_type: str = ""
    outputs: dict[str, str] = {}
    error: ErrorDocument | None = None
    recycle: str = ""
    stage: Action | None = None
    log_tail: str = ""


def from_result(result: Result, why: Why | None, stage: Action | None, *, log_tail: str = "") -> Answer:
    """What a host's *result* means, given *why* it was being stopped and how far that went, and what it printed.

    A passed deadline is a time-out whatever the handler made of its last moment. A cancelled call that still
    completed has completed. What a host says is checked again: user code shares its process.
    """
    try:
        meta = Meta.decode(result.meta)
        outputs = bounds.check_outputs(meta.outputs)
        document = ErrorDocument.decode(result.body) if result.code != OK else None
    except (ValueError, TypeError, RecursionError):
        return Answer(
            code=FUNCTION_ERROR,
            error=ErrorDocument(reason="FunctionError", message="the host's answer is not readable"),
            recycle="the host's answer is not readable",
            log_tail=log_tail,
        )
    if why is Why.DEADLINE:
        return Answer(code=TIMEOUT, error=_timed_out(stage), recycle=meta.recycle, stage=stage, log_tail=log_tail)
    if result.code == OK:
        return Answer(
            code=OK, body=result.body, content_type=result.content_type, outputs=outputs, recycle=meta.recycle,
            stage=stage, log_tail=log_tail,
        )  # fmt: skip
    if result.code == CANCELLED and why is not None:
        return Answer(code=CANCELLED, error=_cancelled(), recycle=meta.recycle, stage=stage, log_tail=log_tail)
    code = BAD_INPUT if result.code == BAD_INPUT else FUNCTION_ERROR
    return Answer(code=code, error=document, recycle=meta.recycle, stage=stage, log_tail=log_tail)


def from_end(how: str, why: Why | None, stage: Action | None, *, log_tail: str = "") -> Answer:
    """What it means that the host *how* (such as `exited with status 0`) instead of answering."""
    if why is Why.DEADLINE:
        return Answer(code=TIMEOUT, error=_timed_out(stage), stage=stage, log_tail=log_tail)
    if why is not None:
        return Answer(code=CANCELLED, error=_cancelled(), stage=stage, log_tail=log_tail)
    document = ErrorDocument(
        reason="FunctionError", message=f"the function's process {how} before it answered", type="ProcessEnded"
    )
    return Answer(code=FUNCTION_ERROR, error=document, log_tail=log_tail)


def not_started(why: Why) -> Answer:
    """The call was stopped while it still waited for its host: nothing ran."""
    if why is Why.DEADLINE:
        message = "the deadline passed while the function's process was being started"
        return Answer(code=TIMEOUT, error=ErrorDocument(reason="DeadlineExceeded", message=message))
    return Answer(code=CANCELLED, error=_cancelled())


def not_dispatched(message: str) -> Answer:
    """There is no host to run the call, for a reason that is not the call's."""
    return Answer(code=NOT_DISPATCHED, error=ErrorDocument(reason="HostUnavailable", message=message))


def _timed_out(stage: Action | None) -> ErrorDocument:
    message = f"the deadline passed; the function ended {_STAGES[stage]}"
    return ErrorDocument(reason="DeadlineExceeded", message=message)


def _cancelled() -> ErrorDocument:
    return ErrorDocument(reason="Cancelled", message="the invocation was cancelled")
