"""Questions that are answered and never stored: who am I, may I, what may I, whose token is this. Pure.

Each is a `Review` of the core. Messages as a kube-apiserver has them.
"""

from typing import Any

from kruntimes.local.apiserver import shapes
from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.authn import Authenticator
from kruntimes.local.apiserver.metadata import invalid_value
from kruntimes.local.apiserver.parts import Review
from kruntimes.local.apiserver.policies import Policies
from kruntimes.local.apiserver.request import MASTERS, Request, User
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import About, Cause, bad_request, invalid
from kruntimes.local.apiserver.strategy import Context
from kruntimes.local.apiserver.tokens import ISSUER, BadToken

Json = dict[str, Any]

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
NO_RESOURCE = "-"
"""Stands for a question about a resource that names none: no rule but one for all resources is about it."""
NOT_A_TOKEN = "invalid bearer token"  # noqa: S105 (a sentence)


def reviews(policies: Policies, authenticator: Authenticator) -> dict[tuple[str, str], Review]:
    """By group and plural."""
    return {
        (AUTHORIZATION, "selfsubjectaccessreviews"): _access(policies, own=True),
        (AUTHORIZATION, "subjectaccessreviews"): _access(policies, own=False),
        (AUTHORIZATION, "localsubjectaccessreviews"): _access(policies, own=False, local=True),
        (AUTHORIZATION, "selfsubjectrulesreviews"): _rules(policies),
        (AUTHENTICATION, "selfsubjectreviews"): _self,
        (AUTHENTICATION, "tokenreviews"): _token(authenticator),
    }


def spec_of(body: Json, kind: str) -> Json:
    """The spec of a body of a built-in *kind*, held to its types; raises BadRequest."""
    try:
        shapes.fit(kind, body)
    except shapes.Misfit as misfit:
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {misfit}') from None
    spec: Json = body.get("spec") or {}
    return spec


def _answer(resource: Resource, body: Json, spec: Json, status: Json) -> Json:
    """The body with its status, whatever status came in it."""
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": body.get("metadata") or {},
        "spec": spec,
        "status": status,
    }


def _resource(api: Api, request: Request) -> Resource:
    found = api.resources.find(request.group, request.version, request.resource)
    assert found is not None, "a review is only asked for a resource that there is"
    return found


# ---------------------------------------------------------------- may I?


def _access(policies: Policies, *, own: bool, local: bool = False) -> Review:
    def review(api: Api, request: Request, body: Json, ctx: Context) -> Json:
        resource = _resource(api, request)
        spec = spec_of(body, resource.kind)
        if local:
            body.setdefault("metadata", {}).setdefault("namespace", request.namespace)
        causes = _one_kind(spec) + ([] if own else _somebody(spec)) + _bare(body, local=local)
        causes += _within(spec, request.namespace) if local else []
        if causes:
            raise invalid(About(group=AUTHORIZATION), causes)
        verdict = policies.authorize(_question(spec, ctx.user if own else _user(spec)))
        status: Json = {"allowed": verdict.allowed}
        if verdict.reason:
            status["reason"] = verdict.reason
        return _answer(resource, body, spec, status)

    return review


def _one_kind(spec: Json) -> list[Cause]:
    about, path = (spec.get(key) for key in ("resourceAttributes", "nonResourceAttributes"))
    if (about is None) != (path is None):
        return []
    why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    return [invalid_value("spec", _path_and_verb(path), why)]


def _path_and_verb(path: Json | None) -> Json | None:
    """Attributes of a path as the real server's messages print them."""
    return None if path is None else {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


def _bare(body: Json, *, local: bool) -> list[Cause]:
    """A review has no name."""
    allowed = {"managedFields", "creationTimestamp", *(["namespace"] if local else [])}
    if all(key in allowed or not value for key, value in (body.get("metadata") or {}).items()):
        return []
    return [invalid_value("metadata", body["metadata"], "must be empty" + (" except for namespace" if local else ""))]


def _within(spec: Json, namespace: str) -> list[Cause]:
    """A local review asks about its own namespace."""
    about, path = (spec.get(key) for key in ("resourceAttributes", "nonResourceAttributes"))
    causes: list[Cause] = []
    if about is not None and about.get("namespace", "") != namespace:
        field = "spec.resourceAttributes.namespace"
        causes.append(invalid_value(field, about.get("namespace", ""), "must match metadata.namespace"))
    if path is not None:
        why = "disallowed on this kind of request"
        causes.append(invalid_value("spec.nonResourceAttributes", _path_and_verb(path), why))
    return causes


def _somebody(spec: Json) -> list[Cause]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid_value("spec.user", "", "at least one of user or group must be specified")]


def _user(spec: Json) -> User:
    extra = {key.lower(): tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    return User(name=spec.get("user", ""), uid=spec.get("uid", ""), groups=tuple(spec.get("groups") or ()), extra=extra)


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


def _rules(policies: Policies) -> Review:
    def review(api: Api, request: Request, body: Json, ctx: Context) -> Json:
        resource = _resource(api, request)
        namespace = spec_of(body, resource.kind).get("namespace")
        if not namespace:
            raise bad_request("no namespace on request")
        rules = policies.now().rules(ctx.user, namespace)
        about = [rule.to_json() for rule in rules if rule.resources]
        paths = [rule.to_json() for rule in rules if rule.urls]
        if MASTERS in ctx.user.groups and not rules:
            about = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        # The answer does not repeat what was asked.
        status = {"resourceRules": about, "nonResourceRules": paths, "incomplete": False}
        return _answer(resource, body, {}, status)

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
        spec = spec_of(body, resource.kind)
        token, audiences = spec.get("token"), spec.get("audiences") or [ISSUER]
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        told = {key: value for key, value in spec.items() if key != "token"}
        try:
            user = authenticator.bearer(token, frozenset(audiences))
            addressed = authenticator.claims(token)["aud"]
        except BadToken:
            return _answer(resource, body, told, {"user": {}, "error": NOT_A_TOKEN})
        shared = [audience for audience in audiences if audience in addressed]
        status = {"authenticated": True, "user": user_info(user), "audiences": shared}
        return _answer(resource, body, told, status)

    return review
