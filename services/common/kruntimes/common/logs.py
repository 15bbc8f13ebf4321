"""Logs as JSON lines on standard error (design §9).

Call sites use the standard library: a constant lower-case message and `extra={"run_uid": …, "runtime": …,
"invocation_id": …, "attempt": …}`. Nothing is redacted here, because nothing secret is ever passed.
"""

import contextlib
import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

import msgspec

MAX_VALUE_CHARS = 2000
"""A field longer than this is cut: a log line is read by people and by line-bound collectors."""
MAX_TRACEBACK_CHARS = 8000

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, component, logger, message, then the extras in their order."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component
        self._encode = msgspec.json.Encoder(enc_hook=str).encode

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "component": self._component,
            "logger": record.name,
            "message": _short(record.getMessage()),
        }
        line |= {key: _short(value) for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info and record.exc_info[1] is not None:
            text = "".join(traceback.format_exception(record.exc_info[1]))
            line["traceback"] = text[-MAX_TRACEBACK_CHARS:]
        try:
            return self._encode(line).decode()
        except (ValueError, TypeError, RecursionError):
            return self._encode({key: _short(str(value)) for key, value in line.items()}).decode("utf-8", "replace")


def _short(value: object) -> object:
    if isinstance(value, str):
        # Lone surrogates, as in a file name that is not UTF-8, have no place in JSON.
        text = value if value.isascii() else value.encode("utf-8", "replace").decode()
        return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"
    return value


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes each line at once, or in one piece with others between `hold_lines` and `write_held`."""

    _held: list[str] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line, or keeps it until `write_held`."""
        if self._held is None:
            super().emit(record)
            return
        try:
            self._held.append(self.format(record) + self.terminator)
        except Exception:
            self.handleError(record)

    def hold_lines(self) -> None:
        """What is logged from here on, by any thread, waits for `write_held`."""
        self._held = []

    def write_held(self) -> None:
        """Writes what has waited, in its order."""
        self.acquire()
        try:
            held, self._held = self._held, None
            if held:
                self.stream.write("".join(held))
                self.flush()
        except OSError:  # as `emit` does: whoever reads the log is gone, and there is nobody to tell
            pass
        finally:
            self.release()


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Lines that are logged within are written in one piece: one system call, one wake-up of whoever reads them."""
    handlers = [handler for handler in logging.getLogger().handlers if isinstance(handler, LineHandler)]
    for handler in handlers:
        handler.hold_lines()
    try:
        yield
    finally:
        for handler in handlers:
            handler.write_held()


def configure(level: str, component: str) -> None:
    """Sends every logger's records at *level* (a name such as INFO) and above to standard error.

    Raises ValueError for a level that does not exist.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"no log level {level[:20]!r}")
    handler = LineHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(component))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    # The libraries below log whole bodies and every frame at DEBUG: payloads have no place in a log.
    for name in ("kubernetes_asyncio", "aiohttp.access", "asyncio", "hpack", "grpc"):
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    # It quotes what it could not parse, which may be a token; our handlers answer and log their own faults.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL + 1)
    logging.captureWarnings(True)
    # No line names its call site, thread or process, so they are not looked up for each record.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
