"""ServiceAccount tokens: JSON Web Tokens in the form of a kube-apiserver, and what it takes to believe one. Pure.

A token says whose it is and which object it is bound to. It is worth as much as these objects: with its
ServiceAccount, Pod, Secret or Node gone, or there again under another UID, it is nobody's (design §8, §10).
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from kruntimes.local.apiserver.request import User
from kruntimes.local.apiserver.strategy import Reader

Json = dict[str, Any]

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Who issues our tokens; as an audience, the API server itself."""
LEEWAY = timedelta(seconds=60)
"""By how much clocks may differ: a token counts so much longer than it says, and than its object lives once that is
being deleted. A kube-apiserver allows the same minute."""
MAX_TOKEN_BYTES = 8 * 1024
_CURVE = ec.SECP256R1()
_SCALAR_BYTES = 32

PODS, NODES, SECRETS, ACCOUNTS = ("", "pods"), ("", "nodes"), ("", "secrets"), ("", "serviceaccounts")
BOUND = {"Pod": ("pod", PODS), "Secret": ("secret", SECRETS), "Node": ("node", NODES)}
"""Kinds that a token can be bound to: their claim, and where they are kept."""


class BadToken(Exception):
    """It is not a token of ours, or not one any more; the text says why and holds nothing of the token."""


def _pack(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unpack(text: str) -> bytes:
    if not text.isascii() or "=" in text:
        raise BadToken("not base64url")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise BadToken("not base64url") from None


class TokenKey:
    """A P-256 key that signs tokens (ES256) and verifies what it has signed."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key, self._public = key, key.public_key()
        der = self._public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )  # fmt: skip
        self.id = _pack(hashlib.sha256(der).digest())
        header = msgspec.json.encode({"alg": "ES256", "kid": self.id})
        self._header = _pack(header)

    @classmethod
    def generate(cls) -> "TokenKey":
        """A new one."""
        return cls(ec.generate_private_key(_CURVE))

    @classmethod
    def from_pem(cls, pem: bytes) -> "TokenKey":
        """The key of a PKCS#8 file; raises ValueError."""
        key = serialization.load_pem_private_key(pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("not a P-256 key")
        return cls(key)

    def to_pem(self) -> bytes:
        """PKCS#8, not encrypted."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def jwk(self) -> Json:
        """The public half as a JSON Web Key, for whoever verifies tokens elsewhere."""
        point = self._public.public_numbers()
        x, y = (_pack(n.to_bytes(_SCALAR_BYTES, "big")) for n in (point.x, point.y))
        return {"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256", "x": x, "y": y}

    def sign(self, claims: Mapping[str, Any]) -> str:
        """The token that carries *claims*."""
        signed = f"{self._header}.{_pack(msgspec.json.encode(claims))}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_pack(r.to_bytes(_SCALAR_BYTES, 'big') + s.to_bytes(_SCALAR_BYTES, 'big'))}"

    def claims(self, token: str) -> Json:
        """What a token signed by this key carries; raises BadToken. Neither time nor objects are looked at."""
        if len(token) > MAX_TOKEN_BYTES:
            raise BadToken("too long")
        parts = token.split(".")
        if len(parts) != 3:
            raise BadToken("not a JSON Web Token")
        header, signature = _object(parts[0]), _unpack(parts[2])
        if header.get("alg") != "ES256" or header.get("kid", self.id) != self.id:
            raise BadToken("signed by another key")
        if len(signature) != 2 * _SCALAR_BYTES:
            raise BadToken("signature of another length")
        r, s = (int.from_bytes(half, "big") for half in (signature[:_SCALAR_BYTES], signature[_SCALAR_BYTES:]))
        try:
            self._public.verify(
                encode_dss_signature(r, s), f"{parts[0]}.{parts[1]}".encode(), ec.ECDSA(hashes.SHA256())
            )
        except InvalidSignature:
            raise BadToken("signature does not fit") from None
        return _object(parts[1])


def _object(part: str) -> Json:
    try:
        found = msgspec.json.decode(_unpack(part))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadToken("not JSON") from None
    if not isinstance(found, dict):
        raise BadToken("not a JSON object")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An object that a token names."""

    name: str
    uid: str

    def claim(self) -> Json:
        """As it stands in the token; a Node that is not registered has a name only."""
        return {"name": self.name} | ({"uid": self.uid} if self.uid else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What is to be put into a token. bound: by claim (`pod`, `secret`, `node`); id: its `jti`, never used before."""

    namespace: str
    account: Reference
    audiences: tuple[str, ...]
    bound: Mapping[str, Reference]
    id: str

    def claims(self, *, now: datetime, seconds: int) -> Json:
        """The claims of a token that is valid for *seconds* from *now* on."""
        issued = int(now.timestamp())
        about: Json = {"namespace": self.namespace}
        about |= {claim: self.bound[claim].claim() for claim in ("node", "pod", "secret") if claim in self.bound}
        about["serviceaccount"] = self.account.claim()
        return {
            "aud": list(self.audiences),
            "exp": issued + seconds,
            "iat": issued,
            "iss": ISSUER,
            "jti": self.id,
            "kubernetes.io": about,
            "nbf": issued,
            "sub": user_name(self.namespace, self.account.name),
        }


def user_name(namespace: str, account: str) -> str:
    """The user that a ServiceAccount is."""
    return f"system:serviceaccount:{namespace}:{account}"


def group_names(namespace: str) -> tuple[str, ...]:
    """The groups of every ServiceAccount of a namespace."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")


def bearer(claims: Json, reader: Reader, *, now: datetime, audiences: frozenset[str]) -> User:
    """Who shows a token with these (verified) claims; raises BadToken."""
    try:
        return _bearer(claims, reader, now=now, audiences=audiences)
    except (KeyError, TypeError, AttributeError):
        raise BadToken("claims of another form") from None


def _bearer(claims: Json, reader: Reader, *, now: datetime, audiences: frozenset[str]) -> User:
    seconds, leeway = now.timestamp(), LEEWAY.total_seconds()
    if claims["iss"] != ISSUER:
        raise BadToken("of another issuer")
    if seconds > claims["exp"] + leeway:
        raise BadToken("expired")
    if seconds < claims["nbf"] - leeway:
        raise BadToken("not valid yet")
    if not audiences.intersection(claims["aud"]):
        raise BadToken("for another audience")
    about = claims["kubernetes.io"]
    namespace, account = about["namespace"], about["serviceaccount"]
    _alive(reader, ACCOUNTS, namespace, account, now)
    extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)} if claims.get("jti") else {}
    if "secret" in about:
        _alive(reader, SECRETS, namespace, about["secret"], now)
    if "pod" in about:
        _alive(reader, PODS, namespace, about["pod"], now)
        extra["authentication.kubernetes.io/pod-name"] = (about["pod"]["name"],)
        extra["authentication.kubernetes.io/pod-uid"] = (about["pod"]["uid"],)
    if "node" in about:
        if "pod" not in about:  # beside a Pod it only tells where that was: the Pod's life is what counts
            _alive(reader, NODES, "", about["node"], now)
        extra["authentication.kubernetes.io/node-name"] = (about["node"]["name"],)
        if about["node"].get("uid"):
            extra["authentication.kubernetes.io/node-uid"] = (about["node"]["uid"],)
    return User(
        name=user_name(namespace, account["name"]), uid=account["uid"], groups=group_names(namespace), extra=extra
    )


def _alive(reader: Reader, key: tuple[str, str], namespace: str, named: Mapping[str, str], now: datetime) -> None:
    found = reader.peek(key, namespace, named["name"])
    if found is None:
        raise BadToken(f"its {key[1]} is gone")
    meta = found["metadata"]
    if meta["uid"] != named["uid"]:
        raise BadToken(f"its {key[1]} is another one now")
    deletion = meta.get("deletionTimestamp")
    if deletion is not None and datetime.fromisoformat(deletion) < now - LEEWAY:
        raise BadToken(f"its {key[1]} has been deleted")
