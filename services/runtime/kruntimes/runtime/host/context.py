"""What a handler may know about the call that it serves: the second argument of `handler(event, context)`."""

from kruntimes.common import clock


class Context:
    """One invocation, seen from inside.

    invocation_id: the caller's, or the gateway's. attempt: of the registration. content_type: of the input.
    outputs: text by text, returned beside the answer (at most 64, 64 KiB together). response_type: set it to
    send `str` or `bytes` under another content type.
    """

    def __init__(self, *, invocation_id: str, attempt: int, content_type: str, deadline: float) -> None:
        self.invocation_id = invocation_id
        self.attempt = attempt
        self.content_type = content_type
        self.outputs: dict[str, str] = {}
        self.response_type: str | None = None
        self._deadline = deadline
        self._cancelled = False

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
