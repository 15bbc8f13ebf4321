"""New ServiceAccount tokens: `POST …/serviceaccounts/NAME/token`, bound to what the request names. Pure."""

from datetime import timedelta

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.bodies import as_object
from kruntimes.local.apiserver.metadata import invalid_value
from kruntimes.local.apiserver.parts import Act, Json
from kruntimes.local.apiserver.request import Request
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.reviews import AUTHENTICATION, spec_of
from kruntimes.local.apiserver.status import About, bad_request, conflict, invalid, not_found
from kruntimes.local.apiserver.strategy import Context
from kruntimes.local.apiserver.tokens import BOUND, ISSUER, NODES, Grant, Reference, TokenKey

KIND = "TokenRequest"
DEFAULT_SECONDS = 3600
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
TOKEN_REQUEST = Resource(
    group=AUTHENTICATION, version="v1", plural="tokenrequests", singular="tokenrequest", kind=KIND, namespaced=True,
    virtual=True,
)  # fmt: skip


def token_request(key: TokenKey) -> Act:
    """The subresource, with the key that signs."""

    def act(api: Api, request: Request, body: Json, ctx: Context) -> Json:
        as_object(body, TOKEN_REQUEST)
        spec, meta = spec_of(body, KIND), body.get("metadata") or {}
        _same(request, meta)
        uid = _account_uid(api, request, meta)
        seconds = spec.get("expirationSeconds", DEFAULT_SECONDS)
        _life(seconds)
        audiences = tuple(spec.get("audiences") or (ISSUER,))
        asked = spec.get("boundObjectRef")
        bound = _bound(api, request, asked) if asked else {}
        grant = Grant(
            namespace=request.namespace, account=Reference(name=request.name, uid=uid), audiences=audiences,
            bound=bound, id=ctx.uid(),
        )  # fmt: skip
        token = key.sign(grant.claims(now=ctx.now, seconds=seconds))
        expires = (ctx.now + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "kind": KIND,
            "apiVersion": f"{AUTHENTICATION}/v1",
            "metadata": {
                "name": request.name,
                "namespace": request.namespace,
                "uid": uid,
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
        raise invalid(About(group=AUTHENTICATION, kind=KIND, name=request.name), causes)


def _account_uid(api: Api, request: Request, meta: Json) -> str:
    accounts = api.resources.find("", "v1", "serviceaccounts")
    assert accounts is not None
    uid: str = api.get(accounts, request.namespace, request.name)["metadata"]["uid"]
    if meta.get("uid") not in (None, "", uid):
        why = f"the UID in the token request ({meta['uid']}) does not match the UID of the service account ({uid})"
        raise conflict(About(group=AUTHENTICATION, kind=KIND, name=request.name), why)
    return uid


def _life(seconds: int) -> None:
    field, causes = "spec.expirationSeconds", []
    if seconds < MIN_SECONDS:
        causes.append(invalid_value(field, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > MAX_SECONDS:
        causes.append(invalid_value(field, seconds, "may not specify a duration larger than 2^32 seconds"))
    if causes:
        raise invalid(About(group=AUTHENTICATION, kind=KIND), causes)


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
