"""Questions that are answered and never stored: who am I, may I, what may I, whose token is this; and new tokens.

Each is a `Review` or an `Act` of the core. Pure. Messages as a kube-apiserver has them.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.authn import Authenticator
from kruntimes.local.apiserver.bodies import as_object
from kruntimes.local.apiserver.metadata import invalid_value
from kruntimes.local.apiserver.parts import Act, Review
from kruntimes.local.apiserver.rbac import Policy
from kruntimes.local.apiserver.request import MASTERS, Request, User
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import About, Cause, bad_request, conflict, invalid, not_found
from kruntimes.local.apiserver.strategy import Context
from kruntimes.local.apiserver.tokens import BOUND, ISSUER, NODES, BadToken, Grant, Reference, TokenKey

Json = dict[str, Any]
Now = Callable[[], Policy]

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
DEFAULT_TOKEN_SECONDS = 3600
MIN_TOKEN_SECONDS = 600
MAX_TOKEN_SECONDS = 1 << 32
NO_RESOURCE = "-"
"""Stands for a question about a resource that names none: no rule but one for all resources is about it."""
TOKEN_REQUEST = Resource(
    group=AUTHENTICATION, version="v1", plural="tokenrequests", singular="tokenrequest", kind="TokenRequest",
    namespaced=True, virtual=True,
)  # fmt: skip


def reviews(policy: Now, authenticator: Authenticator) -> dict[tuple[str, str], Review]:
    """By group and plural."""
    return {
        (AUTHORIZATION, "selfsubjectaccessreviews"): _access(policy, own=True),
        (AUTHORIZATION, "subjectaccessreviews"): _access(policy, own=False),
        (AUTHORIZATION, "localsubjectaccessreviews"): _access(policy, own=False, local=True),
        (AUTHORIZATION, "selfsubjectrulesreviews"): _rules(policy),
        (AUTHENTICATION, "selfsubjectreviews"): _self,
        (AUTHENTICATION, "tokenreviews"): _token(authenticator),
    }


def _answer(resource: Resource, body: Json, status: Json) -> Json:
    """The body with its status, whatever status came in it."""
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": body.get("metadata") or {},
        "spec": body.get("spec") or {},
        "status": status,
    }


def _resource(api: Api, request: Request) -> Resource:
    found = api.resources.find(request.group, request.version, request.resource)
    assert found is not None, "a review is only asked for a resource that there is"
    return found


def _spec(body: Json, kind: str) -> Json:
    spec = body.get("spec") or {}
    if not isinstance(spec, dict):
        raise bad_request(f"the spec of a {kind} must be an object")
    return spec


# ---------------------------------------------------------------- may I?


def _access(policy: Now, *, own: bool, local: bool = False) -> Review:
    def review(api: Api, request: Request, body: Json, ctx: Context) -> Json:
        resource = _resource(api, request)
        spec = _spec(body, resource.kind)
        causes = _one_kind(spec) + ([] if own else _somebody(spec))
        causes += _bare(body, local=local) + (_within(spec, request.namespace) if local else [])
        if causes:
            raise invalid(resource.about_kind(), causes)
        user = ctx.user if own else _user(spec)
        verdict = policy().decide(_question(spec, user))
        status: Json = {"allowed": verdict.allowed}
        if verdict.reason:
            status["reason"] = verdict.reason
        return _answer(resource, body, status)

    return review


def _one_kind(spec: Json) -> list[Cause]:
    about, path = (spec.get(key) for key in ("resourceAttributes", "nonResourceAttributes"))
    if (about is None) == (path is None):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid_value("spec", path if path is not None else "null", why)]
    if not isinstance(about if about is not None else path, dict):
        raise bad_request("attributes must be an object")
    return []


def _bare(body: Json, *, local: bool) -> list[Cause]:
    """A review has no name."""
    allowed = {"managedFields", "creationTimestamp", *(["namespace"] if local else [])}
    if all(key in allowed or not value for key, value in (body.get("metadata") or {}).items()):
        return []
    return [invalid_value("metadata", body["metadata"], "must be empty" + (" except for namespace" if local else ""))]


def _within(spec: Json, namespace: str) -> list[Cause]:
    """A local review asks about its own namespace."""
    about = spec.get("resourceAttributes")
    if about is None:
        return [invalid_value("spec.nonResourceAttributes", "", "disallowed on this kind of request")]
    asked = about.get("namespace", "")
    field = "spec.resourceAttributes.namespace"
    return [] if asked == namespace else [invalid_value(field, asked, "must match metadata.namespace")]


def _somebody(spec: Json) -> list[Cause]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid_value("spec.user", "", "at least one of user or group must be specified")]


def _user(spec: Json) -> User:
    try:
        extra = {str(key).lower(): tuple(values) for key, values in (spec.get("extra") or {}).items()}
        return User(
            name=str(spec.get("user", "")), uid=str(spec.get("uid", "")), groups=tuple(spec.get("groups") or ()),
            extra=extra,
        )  # fmt: skip
    except (TypeError, AttributeError):
        raise bad_request("a user is a name, a uid, a list of groups and lists by key") from None


def _question(spec: Json, user: User) -> Request:
    about = spec.get("resourceAttributes")
    if about is None:
        path = spec["nonResourceAttributes"]
        return Request(user=user, verb=path.get("verb", ""), path=path.get("path", ""))
    return Request(
        user=user,
        verb=about.get("verb", ""),
        path="",
        group=about.get("group", ""),
        version=about.get("version", ""),
        resource=about.get("resource") or NO_RESOURCE,
        subresource=about.get("subresource", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
    )


def _rules(policy: Now) -> Review:
    def review(api: Api, request: Request, body: Json, ctx: Context) -> Json:
        resource = _resource(api, request)
        namespace = _spec(body, resource.kind).get("namespace")
        if not namespace:
            raise bad_request("no namespace on request")
        rules = policy().rules(ctx.user, namespace)
        about = [rule.to_json() for rule in rules if rule.resources]
        paths = [rule.to_json() for rule in rules if rule.urls]
        if MASTERS in ctx.user.groups and not rules:
            about = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        return _answer(resource, body, {"resourceRules": about, "nonResourceRules": paths, "incomplete": False})

    return review


# ---------------------------------------------------------------- who is it?


def user_info(user: User) -> Json:
    """`authentication.k8s.io/v1` UserInfo."""
    info: Json = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in sorted(user.extra.items())}
    return info


def _self(api: Api, request: Request, body: Json, ctx: Context) -> Json:
    resource = _resource(api, request)
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"creationTimestamp": ctx.timestamp},
        "status": {"userInfo": user_info(ctx.user)},
    }


def _token(authenticator: Authenticator) -> Review:
    def review(api: Api, request: Request, body: Json, ctx: Context) -> Json:
        resource = _resource(api, request)
        spec = _spec(body, resource.kind)
        token, audiences = spec.get("token"), spec.get("audiences") or [ISSUER]
        if not isinstance(token, str) or not token:
            raise bad_request("token is required for TokenReview in authentication")
        try:
            user = authenticator.bearer(token, frozenset(audiences))
            addressed = authenticator.claims(token)["aud"]
        except BadToken as error:
            return _answer(resource, body, {"user": {}, "error": f"[invalid bearer token, {error}]"})
        shared = [audience for audience in audiences if audience in addressed]
        return _answer(resource, body, {"authenticated": True, "user": user_info(user), "audiences": shared})

    return review


# ---------------------------------------------------------------- tokens


def token_request(key: TokenKey) -> Act:
    """POST of serviceaccounts/NAME/token: a token for it, bound to what the request names."""

    def act(api: Api, request: Request, body: Json, ctx: Context) -> Json:
        as_object(body, TOKEN_REQUEST)
        meta, spec = body.get("metadata") or {}, _spec(body, "TokenRequest")
        _same(request, meta)
        accounts = api.resources.find("", "v1", "serviceaccounts")
        assert accounts is not None
        account = api.get(accounts, request.namespace, request.name)["metadata"]
        if meta.get("uid") not in (None, "", account["uid"]):
            why = (
                f"the UID in the token request ({meta['uid']}) does not match the UID of the service account "
                f"({account['uid']})"
            )
            raise conflict(About(group=AUTHENTICATION, kind="TokenRequest", name=request.name), why)
        seconds = spec.get("expirationSeconds")
        seconds = DEFAULT_TOKEN_SECONDS if seconds is None else seconds
        _life(seconds)
        audiences = tuple(spec.get("audiences") or (ISSUER,))
        asked = spec.get("boundObjectRef")
        bound = _bound(api, request, asked) if asked else {}
        grant = Grant(
            namespace=request.namespace, account=Reference(name=request.name, uid=account["uid"]),
            audiences=audiences, bound=bound, id=ctx.uid(),
        )  # fmt: skip
        token = key.sign(grant.claims(now=ctx.now, seconds=seconds))
        expires = (ctx.now + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{AUTHENTICATION}/v1",
            "metadata": {
                "name": request.name,
                "namespace": request.namespace,
                "uid": account["uid"],
                "creationTimestamp": ctx.timestamp,
            },
            "spec": {"audiences": list(audiences), "expirationSeconds": seconds, "boundObjectRef": asked or None},
            "status": {"token": token, "expirationTimestamp": expires},
        }

    return act


def _same(request: Request, meta: Json) -> None:
    """What the body says of itself must be what the path says."""
    causes = [
        invalid_value(f"metadata.{field}", meta[field], f"must match the service account {field} if specified")
        for field, is_now in (("name", request.name), ("namespace", request.namespace))
        if meta.get(field) not in (None, "", is_now)
    ]
    if causes:
        raise invalid(About(group=AUTHENTICATION, kind="TokenRequest", name=request.name), causes)


def _life(seconds: object) -> None:
    field, causes = "spec.expirationSeconds", []
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise bad_request("expirationSeconds must be an integer")
    if seconds < MIN_TOKEN_SECONDS:
        causes.append(invalid_value(field, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > MAX_TOKEN_SECONDS:
        causes.append(invalid_value(field, seconds, "may not specify a duration larger than 2^32 seconds"))
    if causes:
        raise invalid(About(group=AUTHENTICATION, kind="TokenRequest"), causes)


def _bound(api: Api, request: Request, asked: Json) -> dict[str, Reference]:
    """The object that a token is to be bound to, and for a Pod its Node as well."""
    kind, version, name = asked.get("kind", ""), asked.get("apiVersion", ""), asked.get("name", "")
    if kind not in BOUND or version != "v1":
        group, _, plain = version.rpartition("/")
        raise bad_request(f"cannot bind token to object of type {group}/{plain}, Kind={kind}")
    claim, key = BOUND[kind]
    found = api.store.peek(key, "" if key == NODES else request.namespace, name)
    if found is None:
        raise not_found(About(kind=key[1], name=name))
    spec, uid = found.get("spec") or {}, found["metadata"]["uid"]
    if kind == "Pod" and spec.get("serviceAccountName", "") != request.name:
        raise bad_request(
            f'cannot bind token for serviceaccount "{request.name}" to pod running with different serviceaccount name.'
        )
    if asked.get("uid") and asked["uid"] != uid:
        why = (
            f"the UID in the bound object reference ({asked['uid']}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise conflict(About(kind=kind, name=name), why)
    bound = {claim: Reference(name=name, uid=uid)}
    node = spec.get("nodeName")
    if kind == "Pod" and node:
        known = api.store.peek(NODES, "", node)
        bound["node"] = Reference(name=node, uid=known["metadata"]["uid"] if known else "")
    return bound
