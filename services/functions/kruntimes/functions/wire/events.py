"""What is said over the functions protocol, as values: the machine's output, and the encoder's input.

Calls and results are named tuples, which cost a third of a frozen dataclass to make: each call makes them in every
process that it passes, user code's too, which should find no library of ours.
Source: the second source document, "Input protocol handled by parser"; design §13.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple


class Mode(Enum):
    """How a payload is delimited.

    STDIO: by an end line, as agents do it; a body line may be a command. LINK: by a declared length, between
    processes of ours; the bytes are never looked at.
    """

    STDIO = "stdio"
    LINK = "link"


class Reason(StrEnum):
    """Why input was refused; also the label of the metric that counts it."""

    MALFORMED = "malformed"
    UNKNOWN_COMMAND = "unknown_command"
    LINE_TOO_LONG = "line_too_long"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    PAYLOAD_ABANDONED = "payload_abandoned"
    UNFINISHED = "unfinished"


class Call(NamedTuple):
    """One complete request to run *function*; a partial one is never an event.

    timeout: whole seconds as sent, 0 for the function's own default. args: the rest of the command, split
    at blanks. access, source: opaque. payload: None for a call that has none, which is not the empty payload.
    """

    uid: str
    timeout: int
    function: str
    args: tuple[str, ...] = ()
    access: str = ""
    source: str = ""
    content_type: str = ""
    payload: bytes | None = None

    def option(self, name: str) -> str | None:
        """The value of the first argument of the form `name=value`, or None."""
        prefix = name + "="
        for arg in self.args:
            if arg.startswith(prefix):
                return arg[len(prefix) :]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Cancel *uid*. before_admission: its payload was still being read, so there is nothing to stop."""

    uid: str
    before_admission: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of *uid*: asked about (done and total 0), or reported."""

    uid: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Quit:
    """The other side asks for an orderly end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Input that is not a call. uid: whom to answer with *code*, or None where that cannot be read."""

    uid: str | None
    code: int
    reason: Reason
    message: str


class Result(NamedTuple):
    """One terminal result.

    code: as an HTTP status. expires: seconds since the epoch. meta: a small JSON document beside the body,
    in link mode only. origin: what it was made of, for whoever takes it in the same process; never sent.
    """

    uid: str
    code: int
    content_type: str
    body: bytes = b""
    expires: int = 0
    meta: bytes = b""
    origin: object = None


@dataclass(frozen=True, slots=True)
class Violation:
    """The stream cannot be trusted from here on; the decoder says this once and then nothing more."""

    message: str


CallEvent = Call | Cancel | Progress | Quit | Rejected | Violation
ResultEvent = Result | Progress | Violation
