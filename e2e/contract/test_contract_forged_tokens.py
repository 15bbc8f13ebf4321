"""Tokens with a good signature and other claims, which only the holder of the server's key can make."""

import base64
import json
import time
from typing import Any

import pytest
from contract.client import Api, Json, at
from contract.conftest import Server
from contract.objects import make
from contract.people import claims, header, pod_reference, token_of
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
OTHER = "00000000-0000-0000-0000-000000000000"


def pack(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def sign(key: Any, head: Json, body: Json) -> str:
    """A JWT, by RS256 or ES256 as the key asks for."""
    head = {**head, "alg": "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"}
    text = f"{pack(json.dumps(head).encode())}.{pack(json.dumps(body).encode())}"
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{text}.{pack(signature)}"


CHANGES: list[tuple[str, Json, int]] = [
    # id, claims laid over those of a Pod's good token (None takes one away; ± are seconds from now), code
    ("unchanged", {}, 201),
    ("expired", {"exp": -60, "nbf": -700, "iat": -700}, 401),
    ("not-yet-valid", {"nbf": 600, "iat": 600, "exp": 1200}, 401),
    ("other-issuer", {"iss": "https://elsewhere.example"}, 401),
    ("no-issuer", {"iss": None}, 401),
    ("other-audience", {"aud": ["https://elsewhere.example"]}, 401),
    # `sub` is not looked at by the real server: who it is stands in the private claims. Nothing may rely on that.
    ("no-kubernetes", {"kubernetes.io": None}, 401),
    ("other-account-uid", {"kubernetes.io": {"serviceaccount": {"uid": OTHER}}}, 401),
    ("no-account-uid", {"kubernetes.io": {"serviceaccount": {"uid": ""}}}, 401),
    ("account-that-is-not-there", {"sub": "system:serviceaccount:NS:nope",
                                   "kubernetes.io": {"serviceaccount": {"name": "nope"}}}, 401),
    ("other-pod-uid", {"kubernetes.io": {"pod": {"uid": OTHER}}}, 401),
    ("pod-that-is-not-there", {"kubernetes.io": {"pod": {"name": "nope"}}}, 401),
    ("other-namespace", {"kubernetes.io": {"namespace": "default"}}, 401),
    # Such a token is not made by TokenRequest, but its signature is good and nothing in it is wrong.
    ("without-pod", {"kubernetes.io": {"pod": None}}, 201),
    ("without-id", {"jti": None}, 201),
]  # fmt: skip


def laid_over(base: Json, change: Json, ns: str) -> Json:
    """*base* with *change* merged in; None takes a claim away."""
    made = dict(base)
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict):
            made[key] = laid_over(made.get(key, {}), value, ns)
        elif isinstance(value, int):
            made[key] = int(time.time()) + value
        else:
            made[key] = value.replace("NS", ns) if isinstance(value, str) else value
    return made


@pytest.mark.capability("signing-key")
@pytest.mark.parametrize(("change", "code"), [pytest.param(*row[1:], id=row[0]) for row in CHANGES])
def test_claims(server: Server, ns: str, name: str, change: Json, code: int) -> None:
    api = server.admin
    assert server.signing_key is not None
    key = serialization.load_pem_private_key(server.signing_key.read_bytes(), password=None)
    make(api, "serviceaccounts", ns, name)
    pod = make(api, "pods", ns, name, spec={"serviceAccountName": name})
    good = token_of(api, ns, name, boundObjectRef=pod_reference(pod))
    forged = sign(key, header(good), laid_over(claims(good), change, ns))
    answer = api.bearer(forged).create(at("selfsubjectreviews"), REVIEW)
    assert answer.code == code, answer.text
    if code == 401:
        answer.refused(401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_a_token_signed_with_another_key_is_401(api: Api, ns: str, name: str, kind: str) -> None:
    """Whatever key its header names."""
    key: Any = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
        if kind == "rsa"
        else ec.generate_private_key(ec.SECP256R1())
    )
    make(api, "serviceaccounts", ns, name)
    good = token_of(api, ns, name)
    for head in (header(good), {"typ": "JWT"}, {"kid": "other"}):
        forged = sign(key, head, claims(good))
        api.bearer(forged).create(at("selfsubjectreviews"), REVIEW).refused(401, "Unauthorized")
