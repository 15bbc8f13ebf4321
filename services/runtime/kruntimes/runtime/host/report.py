"""What is told about an exception of user code: its type, its message, where it came from; all bounded.

User code can raise anything, also exceptions whose `str` raises, so nothing here trusts them.
"""

import os
import traceback
from types import TracebackType

from kruntimes.runtime import bounds
from kruntimes.runtime.host.protocol import ErrorDocument

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MAX_FRAMES = 40
"""A recursion error has a thousand; the last ones tell as much."""


def describe(error: BaseException, *, reason: str = "FunctionError") -> ErrorDocument:
    """*error* as a document; frames of the host itself are left out."""
    return ErrorDocument(
        reason=reason,
        type=bounds.head(type_name(error), bounds.MAX_TYPE_CHARS),
        message=bounds.head(message_of(error), bounds.MAX_MESSAGE_BYTES),
        traceback=bounds.tail(_traceback(error), bounds.MAX_TRACEBACK_BYTES),
    )


def fatal(error: BaseException, working_dir: str) -> ErrorDocument:
    """Why a function could not be initialised: the message names file and line, relative to *working_dir*."""
    if isinstance(error, SystemExit):
        message = f"{message_of(error)} while the module was imported"
    else:
        message = message_of(error)
    if place := _place(error, working_dir):
        message = f"{bounds.head(message, bounds.MAX_MESSAGE_BYTES - 300)} ({place})"
    return ErrorDocument(
        reason="InitialisationFailed",
        type=bounds.head(type_name(error), bounds.MAX_TYPE_CHARS),
        message=bounds.head(message, bounds.MAX_MESSAGE_BYTES),
        traceback=bounds.tail(_traceback(error), bounds.MAX_TRACEBACK_BYTES),
    )


def type_name(error: BaseException) -> str:
    """The exception's class, with its module unless that is built in."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def message_of(error: BaseException) -> str:
    """The exception's text; a SystemExit says what it means."""
    try:
        if isinstance(error, SystemExit):
            return f"sys.exit({error.code!r}) was called"
        if isinstance(error, SyntaxError):
            return str(error.msg)
        return str(error)
    except BaseException:  # the exception's own __str__ raised
        return "(the exception has no readable text)"


def _traceback(error: BaseException) -> str:
    try:
        start = error.__traceback__
        while start is not None and start.tb_frame.f_code.co_filename.startswith(_OURS):
            start = start.tb_next
        lines = traceback.TracebackException(
            type(error), error, start, limit=-_MAX_FRAMES, compact=True
        ).format(chain=not isinstance(error, SystemExit))  # fmt: skip
        return "".join(lines)
    except BaseException:  # reading the user's source or exception raised
        return ""


def _place(error: BaseException, working_dir: str) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename, working_dir)}, line {error.lineno or 0}"
    frame = _deepest(error.__traceback__, working_dir)
    if frame is None:
        return ""
    return f"{_relative(frame.tb_frame.f_code.co_filename, working_dir)}, line {frame.tb_lineno}"


def _deepest(start: TracebackType | None, working_dir: str) -> TracebackType | None:
    """The deepest frame in the user's own files, else the deepest outside ours and importlib's."""
    own = other = None
    while start is not None:
        name = start.tb_frame.f_code.co_filename
        if name.startswith(working_dir + os.sep):
            own = start
        elif not name.startswith((_OURS, "<frozen importlib", os.path.dirname(os.__file__) + "/importlib/")):
            other = start
        start = start.tb_next
    return own or other


def _relative(path: str, working_dir: str) -> str:
    return path.removeprefix(working_dir + os.sep)
