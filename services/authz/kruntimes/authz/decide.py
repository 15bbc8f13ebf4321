"""What authz says to a request, from values alone (design §6, "Authorization").

A check goes through three pure steps, with I/O only between them: `read` refuses what is malformed, `question` says
what to ask the API server, `decide` turns its verdict into the answer. No answer tells a caller more than it may know:
that there is no such Run is only for who may list the Runs of that namespace.
"""

from dataclasses import dataclass

import msgspec

from kruntimes.common.api import outcomes
from kruntimes.common.api.names import InvokePath, parse_path
from kruntimes.common.api.outcomes import Failure, Kind
from kruntimes.common.decisions import Question, Verdict, bearer

COMPONENT = "authz"
SHARD_DIGITS = 3
"""Leading digits of a Run's UID that name the scope which holds its route (`envoy/README.md`)."""
LATE_SECONDS = 5.0
"""How long after the deadline Envoy still waits for the Pod, which keeps the deadline itself and needs a second or two
to say so; a Pod that is silent beyond this has stopped. As far as a route's own time-out lies above the longest."""
RETRY_AFTER_SECONDS = 1
"""A backend that is away for a moment, an index that is about to be current: a second is long for both."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One request as Envoy describes it; headers that may be repeated are lists of every value.

    target: the raw path with its query string. lengths: what the body's Content-Length declares. hosts: joined by Envoy
    with a comma where Host was given more than once.
    """

    method: str
    target: str
    authorization: tuple[str, ...] = ()
    invocation_ids: tuple[str, ...] = ()
    timeouts: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def invocation_id(self) -> str | None:
        """The one valid id of the invocation, which every answer repeats."""
        ids = self.invocation_ids
        return ids[0] if len(ids) == 1 and outcomes.valid_invocation_id(ids[0]) else None


class Asked(msgspec.Struct, frozen=True):
    """A well-formed request: whose path, and with which token.

    seconds: its deadline. oversized: whether it declares a body above the limit, which only who may invoke is told.
    """

    path: InvokePath
    token: str
    seconds: float = outcomes.DEFAULT_DEADLINE_SECONDS
    oversized: bool = False

    def __repr__(self) -> str:
        """Without the token."""
        return f"Asked(path={self.path!r})"


class Allow(msgspec.Struct, frozen=True):
    """The request goes on, to the shard that may hold its route, or else to any Pod of *runtime*.

    shard: empty for what only the fallback serves. runtime: `NAMESPACE/RUNTIME`. patience: seconds after which the
    Pod's silence is the answer.
    """

    shard: str
    runtime: str
    patience: float = outcomes.DEFAULT_DEADLINE_SECONDS + LATE_SECONDS


@dataclass(frozen=True, slots=True)
class Deny:
    """The request ends here."""

    kind: Kind
    message: str

    def failure(self, invocation_id: str | None) -> Failure:
        """The answer as it is sent."""
        retry_after = RETRY_AFTER_SECONDS if self.kind.status == 503 else None
        return Failure(
            kind=self.kind,
            message=self.message,
            component=COMPONENT,
            invocation_id=invocation_id,
            retry_after=retry_after,
        )

    def headers(self) -> dict[str, str]:
        """What HTTP wants beside the headers of every failure."""
        if self.kind is outcomes.METHOD_NOT_ALLOWED:
            return {"allow": "POST"}
        if self.kind is outcomes.UNAUTHENTICATED:
            return {"www-authenticate": 'Bearer realm="kruntimes"'}
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an installation may choose: which access to a Run its invocation needs, and the deadlines, in seconds."""

    verb: str = "get"
    group: str = "kruntimes.io"
    resource: str = "runs"
    subresource: str = ""
    default_timeout: float = outcomes.DEFAULT_DEADLINE_SECONDS
    max_timeout: float = outcomes.MAX_DEADLINE_SECONDS


NO_TOKEN = Deny(outcomes.UNAUTHENTICATED, "a Kubernetes bearer token is required")
BAD_TOKEN = Deny(outcomes.UNAUTHENTICATED, "the bearer token is not valid")
MAY_NOT = Deny(outcomes.FORBIDDEN, "the caller may not invoke this Run")
NO_SUCH_RUN = Deny(outcomes.RUN_NOT_FOUND, "there is no such Run in this namespace")
TOO_LARGE = Deny(outcomes.BODY_TOO_LARGE, "the body is larger than 1 MiB")
UNAVAILABLE = Deny(outcomes.AUTHORIZATION_UNAVAILABLE, "authorization is not available at present")
_BAD_PATH = Deny(
    outcomes.BAD_PATH, "the path is not of the form /v1/namespaces/NAMESPACE/runtimes/RUNTIME/functions/UID:invoke"
)
_QUERY = Deny(outcomes.QUERY_NOT_ALLOWED, "a query string is not allowed")
_METHOD = Deny(outcomes.METHOD_NOT_ALLOWED, "only POST is allowed")
_BAD_ID = Deny(
    outcomes.BAD_INVOCATION_ID, "X-Kruntime-Invocation-ID must be 1 to 128 bytes of visible ASCII, given once"
)
_LONGEST = outcomes.MAX_BODY_BYTES
_LENGTH_DIGITS = len(str(_LONGEST))
_HOST = Deny(outcomes.BAD_REQUEST, "Host may be given once")
_TIMEOUT_TWICE = Deny(outcomes.BAD_TIMEOUT, "X-Kruntime-Timeout-Ms may be given once")


def read(check: Check, policy: Policy) -> Asked | Deny:
    """The request that *check* describes, or why it is none; the first fault in this order is told."""
    raw, question_mark, _ = check.target.partition("?")
    path = parse_path(raw)
    if path is None:
        return _BAD_PATH
    if question_mark:
        return _QUERY
    if check.method != "POST":
        return _METHOD
    if len(check.hosts) > 1 or (check.hosts and "," in check.hosts[0]):
        return _HOST
    if check.invocation_ids and check.invocation_id is None:
        return _BAD_ID
    if len(check.timeouts) > 1:
        return _TIMEOUT_TWICE
    try:
        timeout = check.timeouts[0] if check.timeouts else None
        seconds = outcomes.parse_timeout_ms(timeout, default=policy.default_timeout, maximum=policy.max_timeout)
    except ValueError as error:
        return Deny(outcomes.BAD_TIMEOUT, str(error))
    token = bearer(check.authorization[0]) if len(check.authorization) == 1 else None
    return NO_TOKEN if token is None else Asked(path, token, seconds, _oversized(check.lengths))


def question(path: InvokePath, known: str | None, policy: Policy) -> Question:
    """What the API server is asked. known: the name of the Run with this UID in the path's namespace, or None.

    Without a name the question is whether the caller may list Runs there, and its answer must not be kept.
    """
    return Question(
        verb="list" if known is None else policy.verb,
        group=policy.group,
        resource=policy.resource,
        subresource="" if known is None else policy.subresource,
        namespace=path.namespace,
        name=known or "",
    )


def decide(asked: Asked, known: str | None, review: Verdict | None) -> Allow | Deny:
    """The answer to a well-formed request. review: the verdict on `question`, None where there is none.

    Never open: only a granted review of a known Run allows.
    """
    path = asked.path
    match review:
        case Verdict.ALLOW if known is not None and asked.oversized:
            return TOO_LARGE
        case Verdict.ALLOW if known is not None:
            direct = path.canonical and path.cancel is None
            return Allow(
                shard=path.uid[:SHARD_DIGITS] if direct else "",
                runtime=path.runtime_key,
                patience=asked.seconds + LATE_SECONDS,
            )
        case Verdict.ALLOW:
            return NO_SUCH_RUN
        case Verdict.UNAUTHENTICATED:
            return BAD_TOKEN
        case Verdict.FORBIDDEN:
            return MAY_NOT
        case _:
            return UNAVAILABLE


def _oversized(lengths: tuple[str, ...]) -> bool:
    """Whether a length is declared that no body may have; what is not a number is Envoy's to refuse."""
    for text in lengths:
        if text.isascii() and text.isdigit() and (len(text.lstrip("0")) > _LENGTH_DIGITS or int(text) > _LONGEST):
            return True
    return False
