"""Protobuf bodies: what real clients send, every field there and back, and bytes that are nothing."""

import base64
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.local.apiserver.fields import SCALARS, Field, Many, Message, messages
from kruntimes.local.apiserver.protobuf import MAGIC, decode
from kruntimes.local.apiserver.status import StatusError

Json = dict[str, Any]

OF_KUBECTL = {
    "create role r --verb=get --resource=pods --resource-name=x": (
        "6b3873000a240a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f76311204526f6c65122c0a180a017212001a07646566"
        "61756c7422002a0032003800420012100a0367657412001a04706f64732201781a002200",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "r", "namespace": "default"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"]}],
        },
    ),
    "create token default --duration=20m": (
        "6b3873000a280a1861757468656e7469636174696f6e2e6b38732e696f2f7631120c546f6b656e52657175657374121d0a100a0012001a00"
        "22002a00320038004200120320b0091a040a0012001a002200",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 1200},
        },
    ),
    "auth can-i get pods": (
        "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a656374416363657373526576696577"
        "123c0a100a0012001a0022002a00320038004200121e0a1c0a0764656661756c7412036765741a0022002a04706f647332003a001a080800"
        "12001a0020001a002200",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}},
        },
    ),
    "auth whoami": (
        "6b3873000a2d0a1861757468656e7469636174696f6e2e6b38732e696f2f7631121153656c665375626a656374526576696577121a0a100a"
        "0012001a0022002a0032003800420012060a040a0012001a002200",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    ),
    "create service nodeport svc --tcp=80:web": (
        "6b3873000a0d0a02763112075365727669636512690a1f0a0373766312001a0022002a003200380042005a0a0a0361707012037376631242"
        "0a1c0a0638302d776562120354435018502209080110001a037765622800120a0a0361707012037376631a0022084e6f6465506f72743a00"
        "420052005a00600068001a020a001a002200",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "svc", "labels": {"app": "svc"}},
            "spec": {
                "ports": [{"name": "80-web", "protocol": "TCP", "port": 80, "targetPort": "web"}],
                "selector": {"app": "svc"},
                "type": "NodePort",
            },
        },
    ),
    "create secret generic s --from-literal=a=b": (
        "6b3873000a0c0a0276311206536563726574121d0a110a017312001a0022002a0032003800420012060a01611201621a001a002200",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "Yg=="}},
    ),
}


@pytest.mark.parametrize(("body", "read"), OF_KUBECTL.values(), ids=list(OF_KUBECTL))
def test_what_kubectl_sends(body: str, read: Json) -> None:
    assert decode(bytes.fromhex(body)) == read


# ---------------------------------------------------------------- an encoder, to try every field


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def sized(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def value(kind: str, given: Any) -> bytes | int:
    match kind:
        case "string":
            return str(given).encode()
        case "bytes":
            return base64.b64decode(given)
        case "int" | "bool":
            return int(given)
        case "Quantity":
            return sized(1, given.encode())
        case "Time" | "MicroTime":
            moment = datetime.fromisoformat(given)
            seconds = varint(1 << 3) + varint(int(moment.timestamp()))
            return seconds + varint(2 << 3) + varint(moment.microsecond * 1000)
        case "IntOrString":
            if isinstance(given, int):
                return varint(1 << 3) + varint(0) + varint(2 << 3) + varint(given) + sized(3, b"")
            return varint(1 << 3) + varint(1) + varint(2 << 3) + varint(0) + sized(3, given.encode())
        case "FieldsV1":
            return sized(1, b'{"f:metadata":{}}')
        case _:
            return encode(messages()[kind], given)


def one(number: int, kind: str, given: Any) -> bytes:
    made = value(kind, given)
    return varint(number << 3) + varint(made) if isinstance(made, int) else sized(number, made)


def encode(message: Message, obj: Json) -> bytes:
    out = b""
    for field in message.by_number.values():
        if not field.name:
            out += sized(field.number, encode(messages()[field.type], obj))
        elif field.name in obj:
            out += encoded(field, obj[field.name])
    return out


def encoded(field: Field, held: Any) -> bytes:
    match field.many:
        case Many.ONE:
            return one(field.number, field.type, held)
        case Many.LIST:
            return b"".join(one(field.number, field.type, item) for item in held)
        case Many.MAP:
            return b"".join(
                sized(field.number, sized(1, key.encode()) + one(2, field.type, item)) for key, item in held.items()
            )
        case _:
            return b"".join(
                sized(field.number, sized(1, key.encode()) + sized(2, b"".join(sized(1, i.encode()) for i in items)))
                for key, items in held.items()
            )


EXAMPLES: dict[str, Any] = {
    "string": "text", "int": -7, "bool": True, "bytes": "AP8=", "Quantity": "100m", "Time": "2026-03-01T12:00:00Z",
    "MicroTime": "2026-03-01T12:00:00.000123Z", "IntOrString": "http", "FieldsV1": {"f:metadata": {}},
}  # fmt: skip


def example(kind: str, depth: int) -> Any:
    """Something in every field, down to a depth."""
    if kind in SCALARS:
        return EXAMPLES[kind]
    made: Json = {}
    for field in messages()[kind].by_name.values():
        if field.type not in SCALARS and depth == 0:
            continue
        item = example(field.type, depth - 1)
        if field.many is Many.MAP_OF_LISTS:
            made[field.name] = {"k": ["a", "b"]}
        elif field.many is Many.MAP:
            made[field.name] = {"k": item}
        elif field.many is Many.LIST:
            made[field.name] = [item, item]
        elif item != {} or field.kept:
            made[field.name] = item
    return made


def body(kind: str, message: bytes, api_version: str = "v1") -> bytes:
    return MAGIC + sized(1, sized(1, api_version.encode()) + sized(2, kind.encode())) + sized(2, message)


KINDS = [name for name, message in messages().items() if next(iter(message.by_name)) == "metadata"]


@pytest.mark.parametrize("kind", [*KINDS, "DeleteOptions"])
def test_every_field_comes_through(kind: str) -> None:
    obj = example(kind, 3)
    read = decode(body(kind, encode(messages()[kind], obj)))
    assert read == {"apiVersion": "v1", "kind": kind, **obj}


def test_an_empty_value_is_none_unless_it_says_something() -> None:
    pod = sized(2, sized(1, sized(2, sized(2, b""))) + varint(4 << 3) + varint(0) + sized(3, b""))
    read = decode(body("Pod", pod))
    assert read["spec"] == {"volumes": [{"emptyDir": {}}], "terminationGracePeriodSeconds": 0}


def test_the_number_zero_is_a_port_like_any_other() -> None:
    port = sized(4, varint(1 << 3) + varint(0) + varint(2 << 3) + varint(0) + sized(3, b""))
    read = decode(body("Service", sized(2, sized(1, port))))
    assert read["spec"]["ports"] == [{"targetPort": 0}]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"", "does not appear to be a protobuf message", id="empty"),
        pytest.param(b"{}", "does not appear to be a protobuf message", id="json"),
        pytest.param(body("Gadget", b""), 'no kind "Gadget" is registered', id="kind"),
        pytest.param(body("PodSpec", b""), 'no kind "PodSpec"', id="part-of-a-kind"),
        pytest.param(body("Secret", sized(99, b"x")), "field 99 of Secret is not known", id="field"),
        pytest.param(body("Secret", b"\x0a\x7f"), "message cut short", id="cut"),
        pytest.param(body("Secret", b"\xff" * 11), "varint of more than ten bytes", id="varint"),
        pytest.param(body("Secret", b"\x0b"), "wire type 3", id="group"),
        pytest.param(body("Secret", b"\x08\x01"), "a number where bytes are due", id="wrong-type"),
        pytest.param(body("Secret", sized(1, sized(1, b"\xff"))), "utf-8", id="text"),
        pytest.param(MAGIC + sized(3, b"gzip"), "encodings", id="encoding"),
    ],
)
def test_what_cannot_be_read(data: bytes, says: str) -> None:
    with pytest.raises(StatusError) as refused:
        decode(data)
    assert refused.value.code == 400
    assert says in refused.value.message


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    for kind in ("Pod", "TokenRequest"):
        try:
            assert decode(body(kind, data))["kind"] == kind
        except StatusError as refused:
            assert refused.code == 400  # noqa: PT017 (either is right)
