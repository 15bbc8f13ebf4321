"""Who asks: a client certificate, a ServiceAccount's token, or nobody; and who it says to be instead. Pure.

Every review that authz makes is made with its caller's own token, so a token's signature is verified once and then
remembered; whether it is still worth anything is asked anew each time, which costs a few microseconds.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.parts import Authorize, Json, certificate_user
from kruntimes.local.apiserver.request import (
    ANONYMOUS,
    ANONYMOUS_NAME,
    AUTHENTICATED,
    UNAUTHENTICATED,
    Credentials,
    Request,
    User,
)  # fmt: skip
from kruntimes.local.apiserver.status import About, bad_request, forbidden, unauthorized
from kruntimes.local.apiserver.tokens import ISSUER, BadToken, TokenKey, bearer

MAX_VERIFIED = 4096
"""Tokens whose signature is remembered: some times more than a local stack has in use. About 2 kB each."""
MAX_REFUSED = 1024
"""Texts that are remembered as no token of ours, so that one caller with a bad token costs no more than a good one."""
_HEADER = "impersonate-"
_EXTRA = "impersonate-extra-"
MAX_IMPERSONATED = 64
"""Groups and extras in the headers of one request."""


def token_of(header: str | None) -> str | None:
    """The bearer token of an Authorization header; None where it shows none (another scheme, an empty token)."""
    parts = (header or "").split(" ", 2)
    if len(parts) < 2 or parts[0].lower() != "bearer" or not parts[1]:
        return None
    return parts[1]


class Authenticator:
    """Tells who shows which credentials; before `attach` nobody's token is believed."""

    def __init__(self, key: TokenKey) -> None:
        self._key = key
        self._api: Api | None = None
        self._verified: OrderedDict[bytes, Json] = OrderedDict()
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._audiences = frozenset({ISSUER})

    def attach(self, api: Api) -> None:
        """Looks for the objects of tokens in *api* from now on, and goes by its time."""
        self._api = api

    def __call__(self, credentials: Credentials) -> User:
        """The identity; `ANONYMOUS` where nothing is shown. Raises Unauthorized for a token that is nobody's."""
        if credentials.certificate is not None:
            known = certificate_user(credentials)
            if known is not ANONYMOUS:
                return known
        token = token_of(credentials.authorization)
        if token is None:
            return ANONYMOUS
        try:
            return self.bearer(token, self._audiences)
        except BadToken:
            raise unauthorized() from None

    def bearer(self, token: str, audiences: frozenset[str]) -> User:
        """Who shows *token* to one of the *audiences*; raises BadToken."""
        if self._api is None:
            raise BadToken("nothing to look it up in")
        return bearer(self.claims(token), self._api.store, now=self._api.context().now, audiences=audiences)

    def claims(self, token: str) -> Json:
        """What a token of ours carries, whatever its time and objects; raises BadToken."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        claims = self._verified.get(digest)
        if claims is not None:
            self._verified.move_to_end(digest)
            return claims
        if digest in self._refused:
            raise BadToken("refused before")
        try:
            claims = self._key.claims(token)
        except BadToken:
            self._refused[digest] = None
            if len(self._refused) > MAX_REFUSED:
                self._refused.popitem(last=False)
            raise
        self._verified[digest] = claims
        if len(self._verified) > MAX_VERIFIED:
            self._verified.popitem(last=False)
        return claims


def impersonated(user: User, headers: Iterable[tuple[str, str]], authorize: Authorize) -> User:
    """Whom the `Impersonate-…` headers make of *user*; the user itself where there are none.

    headers: all of the request, in order. Each name taken is a right to ask for (`impersonate` on users, groups, uids,
    serviceaccounts, userextras/KEY). Raises Forbidden, and BadRequest for headers without a user.
    """
    taken = [(name.lower(), value) for name, value in headers if name.lower().startswith(_HEADER)]
    if not taken:
        return user
    if len(taken) > MAX_IMPERSONATED:
        raise bad_request(f"more than {MAX_IMPERSONATED} impersonation headers")
    names = [value for name, value in taken if name == "impersonate-user"]
    groups = [value for name, value in taken if name == "impersonate-group"]
    uids = [value for name, value in taken if name == "impersonate-uid"]
    extra: dict[str, tuple[str, ...]] = {}
    for name, value in taken:
        if name.startswith(_EXTRA):
            key = unquote(name.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    if not names or not names[0]:
        raise bad_request(f"requested {_printed(uids, groups, extra)} without impersonating a user name")
    name = names[0]
    questions = [_question(user, *_account_or_user(name))]
    questions += [_question(user, "groups", group) for group in groups]
    questions += [_question(user, "userextras", value, sub=key) for key, values in extra.items() for value in values]
    questions += [_question(user, "uids", uid) for uid in uids]
    for question in questions:
        if not authorize(question).allowed:
            raise _refusal(question)
    parts = name.split(":")
    if not groups and name.startswith("system:serviceaccount:") and len(parts) == 4:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{parts[2]}"]
    if name != ANONYMOUS_NAME and not {AUTHENTICATED, UNAUTHENTICATED} & set(groups):
        groups.append(AUTHENTICATED)
    elif name == ANONYMOUS_NAME and not groups:
        groups = list(ANONYMOUS.groups)
    return User(name=name, uid=uids[0] if uids else "", groups=tuple(groups), extra=extra)


def _printed(uids: list[str], groups: list[str], extra: Mapping[str, tuple[str, ...]]) -> str:
    """A user without a name, as the real server prints it."""

    def listed(values: Iterable[str]) -> str:
        return "[]string{" + ", ".join(f'"{value}"' for value in values) + "}"

    said = listed(groups) if groups else "[]string(nil)"
    more = ", ".join(f'"{key}":{listed(values)}' for key, values in sorted(extra.items()))
    more = f"map[string][]string{{{more}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:"{uids[0] if uids else ""}", Groups:{said}, Extra:{more}}}'


def _account_or_user(name: str) -> tuple[str, str, str]:
    parts = name.split(":")
    if name.startswith("system:serviceaccount:") and len(parts) == 4:
        return "serviceaccounts", parts[3], parts[2]
    return "users", name, ""


def _question(user: User, resource: str, name: str, namespace: str = "", *, sub: str = "") -> Request:
    group = "authentication.k8s.io" if resource in ("uids", "userextras") else ""
    return Request(
        user=user, verb="impersonate", path="", group=group, version="v1", resource=resource, subresource=sub,
        namespace=namespace, name=name,
    )  # fmt: skip


def _refusal(question: Request) -> Exception:
    what = f"{question.resource}/{question.subresource}" if question.subresource else question.resource
    where = f'in the namespace "{question.namespace}"' if question.namespace else "at the cluster scope"
    why = f'User "{question.user.name}" cannot impersonate resource "{what}" in API group "{question.group}" {where}'
    return forbidden(About(group=question.group, kind=question.resource, name=question.name), why)
