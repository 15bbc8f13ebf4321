"""One stream of input into a manager, and its answers back as frames (second source document, "Dispatcher").

Bytes in by `feed`, frames out by `write`; where they come from and go to is the owner's business. Control input is
acted upon as it is read, whatever waits or runs.
"""

import logging
from collections.abc import Callable

from kruntimes.common import clock
from kruntimes.functions import failures
from kruntimes.functions.manager import Manager
from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.encode import NotEncodable, encode_progress, encode_result
from kruntimes.functions.wire.events import (
    Call,
    CallEvent,
    Cancel,
    Mode,
    Progress,
    Quit,
    Reason,
    Rejected,
    Result,
    Violation,
)
from kruntimes.functions.wire.fields import FieldError, number
from kruntimes.functions.wire.limits import LINK_LIMITS, STDIO_LIMITS, WireLimits

log = logging.getLogger(__name__)


class Ingress:
    """See the module.

    write: takes whole frames, and must neither wait nor raise. on_end: told once that the caller asked for the end,
    or said something after which its stream cannot be trusted.
    """

    def __init__(
        self,
        manager: Manager,
        mode: Mode,
        write: Callable[[bytes], None],
        *,
        on_end: Callable[[], None],
        limits: WireLimits | None = None,
        form: failures.Format | None = None,
    ) -> None:
        self._manager = manager
        self._mode = mode
        self._write = write
        self._on_end = on_end
        self._limits = limits or (LINK_LIMITS if mode is Mode.LINK else STDIO_LIMITS)
        self._form = form or (failures.for_link if mode is Mode.LINK else failures.for_agents)
        self._decoder = CallDecoder(mode, self._limits)
        self._gone = False

    def feed(self, data: bytes) -> None:
        """Acts on everything that *data* completes."""
        for event in self._decoder.feed(data):
            self._act(event)

    def eof(self) -> None:
        """The input has ended: what was unfinished is answered 400, and the end is told."""
        for event in self._decoder.eof():
            self._act(event)
        self._on_end()

    def abandon(self) -> None:
        """The caller has gone: what it has in flight is cancelled, and nothing is written any more."""
        self._gone = True
        for invocation in self._manager.active(sink=self.sink):
            self._manager.cancel(invocation.uid)

    def sink(self, event: Result | Progress) -> None:
        """Writes an answer or progress of one call."""
        if self._gone:
            return
        if isinstance(event, Progress):
            self._write(encode_progress(event.uid, done=event.done, total=event.total))
            return
        try:
            self._write(self._frame(event))
        except NotEncodable as error:
            log.error("answer cannot be put into a frame", extra={"transaction": event.uid, "error": str(error)})
            content_type, body = self._form(failures.NOT_ENCODABLE)
            code = failures.NOT_ENCODABLE.code
            self._write(self._frame(Result(uid=event.uid, code=code, content_type=content_type, body=body)))

    def _frame(self, result: Result) -> bytes:
        if len(result.body) > self._limits.body:
            raise NotEncodable(f"the body is longer than {self._limits.body} bytes")
        if self._mode is Mode.STDIO and result.expires == 0:
            # An agent reads this as: do not keep it.
            result = result._replace(expires=int(clock.wall()))
        return encode_result(result, self._mode)

    def _act(self, event: CallEvent) -> None:
        match event:
            case Call():
                self._call(event)
            case Cancel(before_admission=True):
                self._manager.cancel_unadmitted(event.uid, self.sink)
            case Cancel():
                self._manager.cancel(event.uid)
            case Progress():
                self._manager.ask_progress(event.uid)
            case Rejected():
                self._manager.reject(event, self.sink)
            case Quit():
                self._on_end()
            case Violation(message):
                log.error("the caller broke the functions protocol", extra={"error": message})
                self._on_end()

    def _call(self, call: Call) -> None:
        timeout = None
        if self._mode is Mode.LINK and (millis := call.option("timeout_ms")) is not None:
            try:
                timeout = number(millis) / 1000
            except FieldError:
                message = "timeout_ms is not a whole number"
                rejected = Rejected(uid=call.uid, code=400, reason=Reason.MALFORMED, message=message)
                self._manager.reject(rejected, self.sink)
                return
        self._manager.admit(call, self.sink, timeout=timeout)
