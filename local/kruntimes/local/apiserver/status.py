"""Every way in which the API says no: `metav1.Status` with its code, reason and causes.

Pure. The wording follows Kubernetes' API conventions, since kubectl and client libraries branch on reason and code
and people read the message; the contract suite compares both with a real API server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault of an object: where (a field path such as `spec.env[0].name`), which kind, and a sentence."""

    field: str
    reason: str
    message: str

    def to_json(self) -> dict[str, str]:
        """As `status.details.causes[]`."""
        said = {"reason": self.reason, "message": self.message}
        return {**said, "field": self.field} if self.field else said


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a refusal is about: the resource's group and plural (or kind, where an object was sent) and a name."""

    group: str = ""
    kind: str = ""
    name: str = ""

    @property
    def qualified(self) -> str:
        """`runs.kruntimes.io`, or `pods` in the core group."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


class StatusError(Exception):
    """A refusal, ready to be sent: HTTP code, reason, message and details."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        about: About | None = None,
        causes: Sequence[Cause] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.about = about
        self.causes = tuple(causes)
        self.retry_after = retry_after

    def to_json(self) -> dict[str, Any]:
        """The `Status` object that is the body of the answer, or the object of a watch event of type ERROR."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        details: dict[str, Any] = {}
        if self.about is not None:
            details = {
                key: value
                for key, value in (
                    ("name", self.about.name),
                    ("group", self.about.group),
                    ("kind", self.about.kind),
                )
                if value
            }
        if self.causes:
            details["causes"] = [cause.to_json() for cause in self.causes]
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details or self.about is not None:
            body["details"] = details
        body["code"] = self.code
        return body


def not_found(about: About) -> StatusError:
    """There is no object of that name."""
    return StatusError(404, "NotFound", f'{about.qualified} "{about.name}" not found', about=about)


def path_not_found() -> StatusError:
    """There is no such resource or path at all."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", about=About())


class NotServed(Exception):
    """Nothing is served at a path, and not even a Status says so: the answer is a line of plain text, code 404."""


def already_exists(about: About) -> StatusError:
    """An object of that name is there."""
    return StatusError(409, "AlreadyExists", f'{about.qualified} "{about.name}" already exists', about=about)


def conflict(about: About, why: str) -> StatusError:
    """A precondition does not hold."""
    message = f'Operation cannot be fulfilled on {about.qualified} "{about.name}": {why}'
    return StatusError(409, "Conflict", message, about=about)


STALE = "the object has been modified; please apply your changes to the latest version and try again"
"""Why a write with an old resourceVersion is refused."""


def invalid(about: About, causes: Sequence[Cause]) -> StatusError:
    """The object breaks rules; *about* names its kind here, not the plural."""
    faults = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    said = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    return StatusError(
        422, "Invalid", f'{about.qualified} "{about.name}" is invalid: {said}', about=about, causes=causes
    )


def forbidden(about: About, why: str) -> StatusError:
    """The caller may not, or the object may not be changed so."""
    named = f'{about.qualified} "{about.name}" is forbidden' if about.name else f"{about.qualified} is forbidden"
    return StatusError(403, "Forbidden", f"{named}: {why}", about=about)


def unauthorized() -> StatusError:
    """The caller's credential is none, or no longer one."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def expired(requested: int, oldest: int) -> StatusError:
    """The history from *requested* on has been compacted; *oldest* is the first version that is still held."""
    return StatusError(410, "Expired", f"too old resource version: {requested} ({oldest})")


def bad_request(message: str) -> StatusError:
    """The request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def method_not_allowed() -> StatusError:
    """The path exists, but not with that method."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, about=About())


def verb_not_supported(about: About, verb: str) -> StatusError:
    """How a custom resource says the same."""
    message = f'{verb} is not supported on resources of kind "{about.qualified}"'
    return StatusError(405, "MethodNotAllowed", message, about=about)


def not_acceptable(offered: Sequence[str]) -> StatusError:
    """No media type that the caller accepts can be made."""
    message = f"only the following media types are accepted: {', '.join(offered)}"
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(offered: Sequence[str]) -> StatusError:
    """The body's media type cannot be read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(offered)}"
    return StatusError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> StatusError:
    """The body passes a bound (bytes)."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def too_many_requests(message: str, *, seconds: int = 1) -> StatusError:
    """A bound of the server is reached; nothing was done."""
    return StatusError(429, "TooManyRequests", message, retry_after=seconds)


def internal(message: str) -> StatusError:
    """A fault of the server's own."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")
