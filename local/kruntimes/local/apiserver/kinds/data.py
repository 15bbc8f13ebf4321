"""ConfigMaps and Secrets: data by key, and an `immutable` that cannot be taken back. Pure."""

import base64
import binascii
import re
from typing import Any

from kruntimes.local.apiserver.metadata import forbidden_value, invalid_value, required
from kruntimes.local.apiserver.shapes import Misfit
from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.strategy import Context, Strategy

Json = dict[str, Any]

MAX_BYTES = 1024 * 1024
"""Of all values together, as in the API's documentation."""
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _key_faults(key: str) -> list[str]:
    if len(key) > 253:
        return ["must be no more than 253 bytes"]
    if key in (".", ".."):
        return [f"must not be '{key}'"]
    return [] if _KEY.fullmatch(key) else [KEY_RULE]


def _kept(obj: Json, old: Json, fields: tuple[str, ...]) -> list[Cause]:
    """What `immutable` forbids."""
    if not old.get("immutable"):
        return []
    why = "field is immutable when `immutable` is set"
    causes = [] if obj.get("immutable") else [forbidden_value("immutable", why)]
    return causes + [forbidden_value(field, why) for field in fields if obj.get(field) != old.get(field)]


class ConfigMaps(Strategy):
    """Text below `data`, base64 below `binaryData`; a key stands in one of the two."""

    def default(self, obj: Json) -> list[str]:
        """Nothing is; but binaryData must be base64."""
        _check_base64(obj.get("binaryData") or {})
        return []

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Faults of keys and size."""
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        causes = [
            invalid_value(f"{field}[{key}]", key, fault)
            for field, values in (("data", data), ("binaryData", binary))
            for key in sorted(values)
            for fault in _key_faults(key)
        ]
        causes += [
            invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
            for key in sorted(data)
            if key in binary
        ]
        if sum(len(str(v).encode()) for v in data.values()) + sum(len(v) * 3 // 4 for v in binary.values()) > MAX_BYTES:
            causes.append(Cause("", "FieldValueTooLong", f"Too long: may not be more than {MAX_BYTES} bytes"))
        return causes

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """What `immutable` forbids."""
        return _kept(obj, old, ("data", "binaryData")) + self.validate(obj, ctx)


def _check_base64(values: Json) -> None:
    """Raises Misfit where one is no base64; a null is an empty value."""
    for key, value in values.items():
        text = values[key] = value or ""
        wrong = _NOT_BASE64.search(text)
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise Misfit(f"illegal base64 data at input byte {wrong.start() if wrong else len(text)}") from None


class Secrets(Strategy):
    """Base64 below `data`; `stringData` is a way of writing it."""

    def default(self, obj: Json) -> list[str]:
        """Opaque; stringData goes into data."""
        obj.setdefault("type", "Opaque")
        texts = obj.pop("stringData", None) or {}
        if texts:
            data = obj.setdefault("data", {})
            data.update({key: base64.b64encode(str(value).encode()).decode() for key, value in texts.items()})
        _check_base64(obj.get("data") or {})
        return []

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Faults of keys, values and size."""
        data = obj.get("data") or {}
        causes = [invalid_value(f"data[{key}]", key, fault) for key in sorted(data) for fault in _key_faults(key)]
        size = sum(len(value) * 3 // 4 for value in data.values())
        if size > MAX_BYTES:
            causes.append(Cause("data", "FieldValueTooLong", f"Too long: may not be more than {MAX_BYTES} bytes"))
        if obj["type"] == "kubernetes.io/tls":
            causes += [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]
        if obj["type"] == "kubernetes.io/service-account-token":
            at = "metadata.annotations[kubernetes.io/service-account.name]"
            if not (obj["metadata"].get("annotations") or {}).get("kubernetes.io/service-account.name"):
                causes.append(required(at))
        return causes

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """The type stays, and what `immutable` forbids."""
        causes = _kept(obj, old, ("data",))
        if obj["type"] != old["type"]:
            causes.append(invalid_value("type", obj["type"], "field is immutable"))
        return causes + self.validate(obj, ctx)
