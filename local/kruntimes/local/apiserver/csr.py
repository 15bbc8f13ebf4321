"""CertificateSigningRequests: who asked is written by the server, and each side may change its own part only. Pure.

The spec holds the requester as authentication saw him, with the Pod that his token is bound to: the proof on which
the operator's signer decides (design §8). Approval and issuance are subresources with a right of their own on the
signer's name (`approve` and `sign` on signers).
"""

import base64
import binascii
import re

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from kruntimes.local.apiserver.metadata import forbidden_value, invalid_value, not_supported, required
from kruntimes.local.apiserver.parts import Admit, Authorize, Json
from kruntimes.local.apiserver.request import MASTERS, Request, User
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import Cause, forbidden
from kruntimes.local.apiserver.strategy import Context, Strategy, take

GROUP = "certificates.k8s.io"
KEY = (GROUP, "certificatesigningrequests")
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
MIN_SECONDS = 600
MAX_SIGNER = 571
"""Characters of a signer's name: a domain of 253, a slash, and a path."""
USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SIGNER = re.compile(rf"{_LABEL}(\.{_LABEL})+/[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?")


class RequestStrategy(Strategy):
    """The rules of the kind."""

    names = "path"

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """Nobody speaks for another, and nobody creates an approved request."""
        obj["status"] = {}
        spec = obj.setdefault("spec", {})
        for key in ("username", "uid", "groups", "extra"):
            spec.pop(key, None)
        user = ctx.user
        spec["username"] = user.name
        if user.uid:
            spec["uid"] = user.uid
        if user.groups:
            spec["groups"] = list(user.groups)
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}

    def prepare_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> None:
        """The spec never changes; conditions and certificate only by their subresources."""
        take(obj, old, "spec")
        if not subresource:
            take(obj, old, "status")
            return
        obj["metadata"] = {**old["metadata"], "managedFields": obj["metadata"].get("managedFields") or []}
        status, held = obj.setdefault("status", {}), old.get("status") or {}
        if subresource == "approval":
            obj["status"] = {**held, "conditions": status.get("conditions") or []}
        else:
            _preserve(status, held)
        stamped = [_stamped(one, held, ctx.timestamp) for one in obj["status"].get("conditions") or ()]
        if stamped:
            obj["status"]["conditions"] = stamped

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """A request that a signer can read, for a signer with a name."""
        spec = obj["spec"]
        causes = [*_request(spec.get("request")), *_usages(spec.get("usages") or [])]
        signer = spec.get("signerName") or ""
        if not signer:
            causes.append(required("spec.signerName"))
        elif len(signer) > MAX_SIGNER or not _SIGNER.fullmatch(signer):
            why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            causes.append(invalid_value("spec.signerName", signer, why))
        seconds = spec.get("expirationSeconds")
        if isinstance(seconds, int) and seconds < MIN_SECONDS:
            why = "may not specify a duration less than 600 seconds (10 minutes)"
            causes.append(invalid_value("spec.expirationSeconds", seconds, why))
        return causes + _conditions(obj.get("status", {}).get("conditions") or [])

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """Decisions stand; a certificate is issued once."""
        new, held = obj.get("status") or {}, old.get("status") or {}
        causes = _conditions(new.get("conditions") or [])
        for kind in (APPROVED, DENIED, FAILED):
            before, after = (_of_type(status, kind) for status in (held, new))
            if len(after) < len(before):
                why = f'updates may not remove a condition of type "{kind}"'
                causes.append(forbidden_value("status.conditions", why))
            elif subresource != "approval" and kind != FAILED and after != before:
                verb = "add" if len(after) > len(before) else "modify"
                why = f'updates may not {verb} a condition of type "{kind}"'
                causes.append(forbidden_value("status.conditions", why))
        issued, is_new = held.get("certificate") or "", new.get("certificate") or ""
        if issued != is_new:
            if issued:
                causes.append(
                    forbidden_value("status.certificate", "updates may not modify existing certificate content")
                )
            causes += _certificate(is_new)
        return causes


def _of_type(status: Json, kind: str) -> list[Json]:
    return [c for c in status.get("conditions") or () if c.get("type") == kind]


def _preserve(status: Json, held: Json) -> None:
    """Keeps decisions as they are, in place, where a write of the status has as many of them."""
    for kind in (APPROVED, DENIED):
        before = _of_type(held, kind)
        if len(before) == len(_of_type(status, kind)):
            kept = iter(before)
            status["conditions"] = [next(kept) if c.get("type") == kind else c for c in status.get("conditions") or ()]
    if not status.get("conditions"):
        status.pop("conditions", None)


def _stamped(condition: Json, held: Json, now: str) -> Json:
    """A condition with its times filled in."""
    before = [c for c in _of_type(held, condition.get("type", "")) if c.get("status") == condition.get("status")]
    since = next((c["lastTransitionTime"] for c in before if c.get("lastTransitionTime")), now)
    return {
        **condition,
        "lastUpdateTime": condition.get("lastUpdateTime") or now,
        "lastTransitionTime": condition.get("lastTransitionTime") or since,
    }


def _conditions(conditions: list[Json]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        at, kind, status = f"status.conditions[{i}]", condition.get("type", ""), condition.get("status", "")
        if not kind:
            causes.append(required(f"{at}.type"))
        elif kind in seen:
            causes.append(Cause(f"{at}.type", "FieldValueDuplicate", f'Duplicate value: "{kind}"'))
        seen.add(kind)
        if not status:
            causes.append(required(f"{at}.status"))
        elif kind in (APPROVED, DENIED, FAILED) and status != "True":
            causes.append(not_supported(f"{at}.status", status, ["True"]))
        elif status not in ("True", "False", "Unknown"):
            causes.append(not_supported(f"{at}.status", status, ["False", "True", "Unknown"]))
    if {APPROVED, DENIED} <= seen:
        both = [f'conditions[{{"type": "{kind}"}}]' for kind in (APPROVED, DENIED)]
        why = f"must specify at most one of: {', '.join(f'`{one}`' for one in both)}"
        causes.append(invalid_value("status.conditions", f"{{{', '.join(both)}}}", why))
    return causes


def _usages(usages: list[object]) -> list[Cause]:
    if not usages:
        return [required("spec.usages")]
    causes: list[Cause] = []
    for i, usage in enumerate(usages):
        at = f"spec.usages[{i}]"
        if usage not in USAGES:
            causes.append(not_supported(at, usage, list(USAGES)))
        elif usage in usages[:i]:
            causes.append(Cause(at, "FieldValueDuplicate", f'Duplicate value: "{usage}"'))
    return causes


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _request(text: object) -> list[Cause]:
    """Faults of `spec.request`: base64 of one PEM block that is a PKCS#10 request with a signature that holds."""
    pem = _decoded(text)
    block = _PEM.match(pem.strip())
    if block is None or block[1] != b"CERTIFICATE REQUEST":
        return [invalid_value("spec.request", _shown(pem), "PEM block type must be CERTIFICATE REQUEST")]
    try:
        if not x509.load_pem_x509_csr(pem).is_signature_valid:
            return [invalid_value("spec.request", _shown(pem), "x509: signature is not that of the key asked for")]
    except (ValueError, InvalidSignature, UnsupportedAlgorithm) as error:
        return [invalid_value("spec.request", _shown(pem), f"asn1: {error}"[:200])]
    return []


def _shown(pem: bytes) -> str:
    """A request in a message: its size is enough."""
    return f"<{len(pem)} bytes>"


def _certificate(text: str) -> list[Cause]:
    """Faults of an issued chain."""
    field, shown = "status.certificate", "<certificate data>"
    pem = _decoded(text)
    labels = [block[1] for block in _PEM.finditer(pem)]
    if not labels:
        return [invalid_value(field, shown, "must contain at least one CERTIFICATE PEM block")] if text else []
    other = next((label.decode() for label in labels if label != b"CERTIFICATE"), None)
    if other is not None:
        return [invalid_value(field, shown, f'only CERTIFICATE PEM blocks are allowed, found "{other}"')]
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        return [invalid_value(field, shown, f"invalid certificate: {error}"[:200])]
    return []


def signers_only(authorize: Authorize) -> Admit:
    """The check that approval and issuance are the signer's: `approve` and `sign` on its name, or on `DOMAIN/*`."""

    def admit(resource: Resource, subresource: str, new: Json, old: Json | None, ctx: Context) -> None:
        if resource.key != KEY or (old is not None and subresource not in ("approval", "status")):
            return
        if old is None:
            _no_masters(resource, new)
            return
        if subresource == "status":
            before, after = (obj.get("status") or {} for obj in (old, new))
            if all(before.get(key) == after.get(key) for key in ("certificate", "conditions")):
                return
        signer: str = old["spec"].get("signerName", "")
        verb = "approve" if subresource == "approval" else "sign"
        names = (signer, f"{signer.partition('/')[0]}/*")
        if not any(authorize(_question(ctx.user, verb, name)).allowed for name in names):
            why = f'user not permitted to {verb} requests with signerName "{signer}"'
            raise forbidden(resource.about(old["metadata"]["name"]), why)

    return admit


def _no_masters(resource: Resource, new: Json) -> None:
    """Nobody asks for a client certificate of the group that may do everything."""
    if new["spec"].get("signerName") != CLIENT_SIGNER or _request(new["spec"].get("request")):
        return
    subject = x509.load_pem_x509_csr(_decoded(new["spec"]["request"])).subject
    if any(part.value == MASTERS for part in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)):
        why = f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
        raise forbidden(resource.about(new["metadata"].get("name", "")), why)


def _question(user: User, verb: str, signer: str) -> Request:
    return Request(user=user, verb=verb, path="", group=GROUP, version="*", resource="signers", name=signer)
