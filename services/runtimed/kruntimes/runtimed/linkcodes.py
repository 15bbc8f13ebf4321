"""Calls and results of the functions socket as values of this service (design §13); pure.

The counterpart of `codes`, which reads gRPC's. Every result proves that no work of its call is left.
"""

from kruntimes.common.api import outcomes
from kruntimes.common.api.outcomes import Failure, Kind
from kruntimes.functions.wire.documents import FailureBody, decode_failure, decode_meta
from kruntimes.functions.wire.events import Result
from kruntimes.functions.wire.invocations import invocation_frame
from kruntimes.runtimed.codes import MESSAGES, Info, describe, details_of, violation
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.invocation import Answer, Invocation, failure

OK = 200
_KINDS: dict[int, Kind] = {
    400: outcomes.BAD_INPUT,
    413: outcomes.BODY_TOO_LARGE,
    429: outcomes.IN_FLIGHT,
    499: outcomes.CANCELLED,
    500: outcomes.FUNCTION_ERROR,
    501: outcomes.NOT_READY,
    503: outcomes.NOT_READY,
    504: outcomes.DEADLINE_EXCEEDED,
}
_LOST = frozenset({501, 503})


def link_outcome(code: int) -> Kind:
    """What came of a call whose result has *code*, which is not 200; a code of no meaning excludes nothing."""
    return _KINDS.get(code, outcomes.OUTCOME_UNKNOWN)


def link_lost(code: int) -> bool:
    """Whether the registration should be looked at now: its server does not know it, or does not serve it."""
    return code in _LOST


def frame_of(held: Held, invocation: Invocation, *, tx: str) -> bytes:
    """*invocation* of the function *held*, as transaction *tx*. Raises ValueError for what cannot stand in a line."""
    return invocation_frame(
        tx=tx,
        registration=held.registration_id,
        invocation_id=invocation.id,
        attempt=held.epoch.attempt,
        millis=max(1, round(invocation.seconds * 1000)),
        payload=invocation.body,
        content_type=invocation.content_type,
    )


def answer_of(result: Result, *, invocation_id: str) -> Answer | Failure:
    """What *result* says; documents that cannot be read are the function's error, since its process is of our own."""
    if result.code != OK:
        return _failure(result, invocation_id)
    try:
        meta = decode_meta(result.meta)
    except ValueError:
        return failure(outcomes.FUNCTION_ERROR, "the answer's description cannot be read", invocation_id)
    if (broken := violation(result.body, meta.outputs)) is not None:
        return failure(outcomes.FUNCTION_ERROR, broken, invocation_id)
    return Answer(
        output=result.body,
        content_type=result.content_type or "application/octet-stream",
        outputs=meta.outputs,
        seconds=meta.duration_ms / 1000,
        log_tail=meta.log_tail,
    )


def _failure(result: Result, invocation_id: str) -> Failure:
    kind = link_outcome(result.code)
    try:
        body = decode_failure(result.body)
    except ValueError:
        body = FailureBody()
    parts = {"type": body.type, "message": body.message, "traceback": body.traceback}
    info = Info(reason=body.reason, metadata={name: text for name, text in parts.items() if text})
    message = MESSAGES.get(kind) or describe(info, "") or "the function failed"
    return failure(kind, message, invocation_id, details_of(info))
