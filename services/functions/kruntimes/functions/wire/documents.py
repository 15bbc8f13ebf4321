"""The two JSON documents in a result on the functions socket (design §13): beside an answer, and for a failure."""

import msgspec


class AnswerMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Beside every result. log_tail: what the call printed, bounded. duration_ms: from its start to its end."""

    outputs: dict[str, str] = {}
    log_tail: str = ""
    duration_ms: float = 0.0


class FailureBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every result that is not 200. type: of an exception; traceback: bounded."""

    reason: str = ""
    message: str = ""
    type: str = ""
    traceback: str = ""


encode = msgspec.json.Encoder().encode
"""Either document as bytes. Raises UnicodeEncodeError for a lone surrogate."""
_meta = msgspec.json.Decoder(AnswerMeta)
_failure = msgspec.json.Decoder(FailureBody)


def decode_meta(data: bytes) -> AnswerMeta:
    """Reads what stands beside a result; nothing is the empty document. Raises ValueError for anything else."""
    return _meta.decode(data) if data else AnswerMeta()


def decode_failure(data: bytes) -> FailureBody:
    """Reads a failure's body. Raises ValueError for anything else."""
    return _failure.decode(data)
