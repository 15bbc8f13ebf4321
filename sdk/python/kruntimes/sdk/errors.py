"""What can go wrong for a caller of the SDK, by what the caller should do about it.

`Failed` and its kinds are what an invocation answered (design §6): every one carries the invocation id and says
whether a repeat is safe. Nothing here was retried.
"""

from typing import Any

from kruntimes.common.api.outcomes import Outcome


class SdkError(Exception):
    """Root of every error of the SDK; its text is a sentence."""


class ConfigError(SdkError):
    """There is no usable kubeconfig, token or trust."""


class ApiError(SdkError):
    """The Kubernetes API refused, or could not be asked. status: its HTTP status, 0 where there was no answer."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class NotFoundError(ApiError):
    """There is no such object."""


class NotReadyError(SdkError):
    """The Run has no endpoint yet, or did not become what was waited for in time."""


class EndedError(SdkError):
    """The Run has ended, so it will never be what was waited for."""


class Failed(SdkError):
    """An invocation did not complete. outcome: design §6; status: the HTTP status, 0 where there was no answer.

    retry_safe: the function certainly did not run. retry_after: seconds to wait before another try, or None.
    """

    outcome = Outcome.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        invocation_id: str | None = None,
        retry_after: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.invocation_id = invocation_id
        self.retry_after = retry_after
        self.details = details or {}

    @property
    def retry_safe(self) -> bool:
        """Whether the function certainly did not run, so that a repeat cannot run it twice."""
        return self.outcome.retry_safe


class Rejected(Failed):
    """The request itself was refused (400, 401, 403, 404, 413, 429, …)."""

    outcome = Outcome.REJECTED


class NotDispatched(Failed):
    """Nothing was run: not ready, recovering, owner unreachable (503), or no connection at all."""

    outcome = Outcome.NOT_DISPATCHED


class FunctionError(Failed):
    """The handler raised, exited or returned something that cannot be encoded (500)."""

    outcome = Outcome.FUNCTION_ERROR


class OutcomeUnknown(Failed):
    """The connection was lost after the request was sent: the function may or may not have run."""

    outcome = Outcome.UNKNOWN


class InvocationTimeout(Failed):
    """The invocation's deadline passed (504)."""

    outcome = Outcome.TIMEOUT


class InvocationCancelled(Failed):
    """The invocation was cancelled by its id (499)."""

    outcome = Outcome.CANCELLED


FAILURES: dict[Outcome, type[Failed]] = {
    kind.outcome: kind
    for kind in (Rejected, NotDispatched, FunctionError, OutcomeUnknown, InvocationTimeout, InvocationCancelled)
}
