"""The two messages of the incremental xDS protocol as values, and their wire form.

Field numbers are those of envoy.service.discovery.v3.DeltaDiscoveryRequest and DeltaDiscoveryResponse.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kruntimes.common.protobuf import fields
from kruntimes.router.protobuf import message, text
from kruntimes.router.snapshot import Resource

MAX_ERROR_CHARACTERS = 1_000
"""How much of Envoy's complaint is kept for the log: enough to name the field, not a whole resource."""


@dataclass(frozen=True, slots=True)
class Request:
    """What Envoy asks or acknowledges; error is None for anything but a refusal.

    initial_versions (name → version) is what it still holds from an earlier stream.
    """

    type_url: str
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial_versions: Mapping[str, str] = field(default_factory=dict)
    nonce: str = ""
    error: str | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """What Envoy is sent: resources by name, and the names of those that no longer exist."""

    type_url: str
    nonce: str
    resources: Mapping[str, Resource]
    removed: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that this response speaks of."""
        return (*self.resources, *self.removed)


def decode(data: bytes) -> Request:
    """Reads a DeltaDiscoveryRequest; fields that the router has no use for are passed over.

    Raises ValueError (UnicodeDecodeError is one) where *data* is not such a message.
    """
    type_url = nonce = node = ""
    error: str | None = None
    subscribe: list[str] = []
    unsubscribe: list[str] = []
    versions: dict[str, str] = {}
    for number, value in fields(data):
        if not isinstance(value, bytes):
            continue
        match number:
            case 1:
                node = _text_of(value, 1)
            case 2:
                type_url = value.decode()
            case 3:
                subscribe.append(value.decode())
            case 4:
                unsubscribe.append(value.decode())
            case 5:
                versions[_text_of(value, 1)] = _text_of(value, 2)
            case 6:
                nonce = value.decode()
            case 7:
                error = _text_of(value, 2)[:MAX_ERROR_CHARACTERS]
    return Request(type_url, tuple(subscribe), tuple(unsubscribe), versions, nonce, error, node)


def encode(response: Response) -> bytes:
    """Writes a DeltaDiscoveryResponse."""
    wrapped = text(1, response.type_url)
    parts = [
        message(2, text(1, resource.version), message(2, wrapped, message(2, resource.body)), text(3, name))
        for name, resource in response.resources.items()
    ]
    parts.append(text(4, response.type_url))
    parts.append(text(5, response.nonce))
    parts.extend(text(6, name) for name in response.removed)
    return b"".join(parts)


def _text_of(data: bytes, wanted: int) -> str:
    """The string field *wanted* of an encoded message; empty where it is absent, the last where it is repeated."""
    found = b""
    for number, value in fields(data):
        if number == wanted and isinstance(value, bytes):
            found = value
    return found.decode()
