"""Who asks for what: the identity of a caller and the attributes of a request, as authorisation sees them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kruntimes.local.apiserver.status import path_not_found

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS_NAME = "system:anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An identity; extra holds what an authenticator adds, such as the Pod that a token is bound to."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User(name=ANONYMOUS_NAME, groups=(UNAUTHENTICATED,))
SYSTEM = User(name="system:apiserver", groups=(MASTERS, AUTHENTICATED))
"""The server's own loops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a caller shows. authorization: the header's text; certificate: `ssl.SSLSocket.getpeercert()` of a client
    certificate that TLS has verified against the client CA; each None where there is none."""

    authorization: str | None = None
    certificate: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The attributes of one request. resource is empty where the path is none of a resource (`/version`).

    verb: get, list, watch, create, update, patch, delete, deletecollection; for other paths the method in lower case.
    """

    user: User
    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def is_resource(self) -> bool:
        """Whether it is about a resource, and not about a path such as `/version`."""
        return bool(self.resource)


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
MAX_SEGMENTS = 16
"""Of a path: more is no path of the API."""


def attributes(user: User, method: str, path: str, *, watch: bool = False) -> Request:
    """Reads a path as the API server does. Raises NotFound for one that starts as a resource's and is none."""
    plain = Request(user=user, verb=method.lower(), path=path)
    parts = [part for part in path.split("/") if part]
    if len(parts) > MAX_SEGMENTS:
        raise path_not_found()
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return plain
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        # /namespaces/NAME and its own subresources are about the Namespace; all else is about something in it.
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    resource, name, subresource = rest[0], "".join(rest[1:2]), "/".join(rest[2:])
    verb = _VERBS.get(method, "")
    if method in ("GET", "HEAD"):
        verb = "watch" if watch and not subresource else "get" if name else "list"
    elif method == "DELETE":
        verb = "delete" if name else "deletecollection"
    return Request(
        user=user, verb=verb or method.lower(), path=path, group=group, version=version, resource=resource,
        subresource=subresource, namespace=namespace, name=name,
    )  # fmt: skip


_BY_NAME = re.compile(r"(?:^|,)metadata\.name==?([^,=!\\]+)(?:,|$)")


def selected_by_name(request: Request, field_selector: str) -> Request:
    """A list or watch of the one object that a field selector names is authorised as one of that name.

    So a role with resourceNames can be enough for it.
    """
    if request.name or request.verb not in ("list", "watch", "deletecollection"):
        return request
    named = _BY_NAME.search(field_selector)
    return request if named is None else replace(request, name=named[1])
