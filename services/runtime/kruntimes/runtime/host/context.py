"""What a handler may know about the call that it serves: the second argument of `handler(event, context)`."""

from collections.abc import Callable

from kruntimes.common import clock
from kruntimes.functions.wire.limits import MAX_TIMEOUT_DIGITS

PROGRESS_SECONDS = 0.1
"""Reports that follow sooner are dropped, but for the last: people look at them, and a loop may have many steps."""


_MOST = 10**MAX_TIMEOUT_DIGITS - 1


def _unheard(done: int, total: int) -> None:
    """Nobody listens."""


class Context:
    """One invocation, seen from inside.

    invocation_id: the caller's, or the gateway's. attempt: of the registration. content_type: of the input.
    outputs: text by text, returned beside the answer (at most 64, 64 KiB together). response_type: set it to
    send `str` or `bytes` under another content type.
    """

    def __init__(
        self, *, invocation_id: str, attempt: int, content_type: str, deadline: float,
        report: Callable[[int, int], None] = _unheard,
    ) -> None:  # fmt: skip
        self.invocation_id = invocation_id
        self.attempt = attempt
        self.content_type = content_type
        self.outputs: dict[str, str] = {}
        self.response_type: str | None = None
        self._deadline = deadline
        self._cancelled = False
        self._report = report
        self._reported_at = float("-inf")
        self._complete = False

    def progress(self, done: int, total: int) -> None:
        """Tells how far the call is, as whole numbers ≥0. Raises ValueError for others."""
        if not (isinstance(done, int) and isinstance(total, int) and 0 <= done <= _MOST and 0 <= total <= _MOST):
            raise ValueError("progress is told in whole numbers from 0 to 10**12 - 1")
        now, last = clock.monotonic(), done >= total > 0 and not self._complete
        if now - self._reported_at >= PROGRESS_SECONDS or last:
            self._reported_at, self._complete = now, self._complete or last
            self._report(done, total)

    def remaining(self) -> float:
        """Seconds until the deadline; never below 0."""
        return max(0.0, self._deadline - clock.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether the handler should end: the deadline passed, the caller left, or the Run is ending."""
        return self._cancelled

    def request_cancellation(self) -> None:
        """Sets `cancelled`; called by the host."""
        self._cancelled = True
