"""What is plugged into the API core: each part as one typed callable, with a default that says no. Pure.

`__main__` puts the real ones in; a test may put in others. Everything here is called on the event loop's thread and
must not block; what is called with a stored object must not change it.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kruntimes.local.apiserver.request import ANONYMOUS, MASTERS, Credentials, Request, User
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import path_not_found, unsupported_media_type
from kruntimes.local.apiserver.strategy import Context, Make

if TYPE_CHECKING:
    from kruntimes.local.apiserver.api import Api

Json = dict[str, Any]

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

Authenticate = Callable[[Credentials], User]
"""Who shows these credentials; raises `status.unauthorized()`. No credential at all is `request.ANONYMOUS`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a request is allowed. reason: for the answer of a review, and empty in a refusal of a request."""

    allowed: bool
    reason: str = ""


Authorize = Callable[[Request], Verdict]

Patch = Callable[[Resource, Json, Any], Json]
"""(resource, current, patch) → the patched object. *current* is stored: it is not changed. The patch is decoded JSON.
Raises BadRequest, Invalid. The result may share parts with *current*: the core makes a private copy of it."""

Review = Callable[["Api", Request, Json, Context], Json]
"""A resource that is answered and never stored (SelfSubjectAccessReview): the body in, the whole answer out."""

Act = Callable[["Api", Request, Json, Context], Json]
"""A subresource with its own body (binding, token, eviction): POST's body in, the answer out."""

Admit = Callable[[Resource, str, Json, Json | None, Context], None]
"""(resource, subresource, new, old or None, context): a last word on a write. It may change the object in place, or
raise Forbidden. RBAC's escalation checks and the fields of a CSR that the server fills are of this kind."""

OpenApi = Callable[["Api", str, Mapping[str, str]], Json]
"""(api, path, query) → the document at a path below `/openapi/`; raises NotFound."""

Attach = Callable[["Api"], None]
"""Called once with the core as soon as it is made, before its first write: for parts that read the store at other times
than a write (who a token is, what a role allows)."""

Loop = Callable[["Api"], Coroutine[Any, Any, None]]
"""A loop of the control plane: runs until it is cancelled; see `Api.listen`."""


class Ownership(Protocol):
    """managedFields: who owns which field. Both return the object to store, with its `metadata.managedFields`."""

    def written(
        self, resource: Resource, new: Json, old: Json | None, *, manager: str, subresource: str, timestamp: str
    ) -> Json:
        """After a create, an update or a patch by *manager*; `new` is the private copy."""

    def applied(
        self,
        resource: Resource,
        patch: Json,
        old: Json | None,
        *,
        manager: str,
        force: bool,
        subresource: str,
        timestamp: str,
    ) -> Json:
        """Server-side apply: the merged object (a create where *old* is None). Raises Conflict with its causes."""


class NoOwnership:
    """Keeps no managedFields and knows no apply."""

    def written(
        self, resource: Resource, new: Json, old: Json | None, *, manager: str, subresource: str, timestamp: str
    ) -> Json:
        """As it was; what a client sent as managedFields is dropped."""
        new["metadata"].pop("managedFields", None)
        return new

    def applied(
        self,
        resource: Resource,
        patch: Json,
        old: Json | None,
        *,
        manager: str,
        force: bool,
        subresource: str,
        timestamp: str,
    ) -> Json:
        """Refuses."""
        raise unsupported_media_type([JSON_PATCH, MERGE_PATCH])


def certificate_user(credentials: Credentials) -> User:
    """The bearer of a verified client certificate: common name is the user, organizations are the groups."""
    if credentials.certificate is None:
        return ANONYMOUS
    subject: Any = credentials.certificate.get("subject", ())
    pairs = [pair for part in subject for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    groups = [value for key, value in pairs if key == "organizationName"]
    return User(name=names[0], groups=(*groups, "system:authenticated")) if names else ANONYMOUS


def masters_only(request: Request) -> Verdict:
    """Everything for system:masters, nothing for others."""
    return Verdict(allowed=MASTERS in request.user.groups)


def no_protobuf(body: bytes) -> Json:
    """Refuses."""
    raise unsupported_media_type([JSON, YAML])


def no_openapi(api: "Api", path: str, query: Mapping[str, str]) -> Json:
    """There is none."""
    raise path_not_found()


@dataclass(kw_only=True)
class Parts:
    """Everything that can be plugged in. patches: by media type. acts: by group, plural and subresource.

    strategies: the rules of the built-in kinds by group and plural. admits: asked in order, for each write.
    """

    authenticate: Authenticate = certificate_user
    authorize: Authorize = masters_only
    protobuf: Callable[[bytes], Json] = no_protobuf
    patches: dict[str, Patch] = field(default_factory=dict)
    ownership: Ownership = field(default_factory=NoOwnership)
    reviews: dict[tuple[str, str], Review] = field(default_factory=dict)
    acts: dict[tuple[str, str, str], Act] = field(default_factory=dict)
    admits: list[Admit] = field(default_factory=list)
    strategies: dict[tuple[str, str], Make] = field(default_factory=dict)
    openapi: OpenApi = no_openapi
    attach: list[Attach] = field(default_factory=list)
    loops: Sequence[Loop] = ()
