"""What server and host say to each other over the link, beyond the functions protocol's own words (design §13).

The first call names the function INITIALISE and carries a Config; every other one is an invocation. Answers:
200; 400 the input is unusable; 499 the handler gave way to a cancellation; 500 the handler failed. Others than
200 carry an ErrorDocument.
"""

import json
from dataclasses import asdict, dataclass, field

from kruntimes.functions.wire.limits import LINK_LIMITS, WireLimits

INITIALISE = "initialise"
ERROR_TYPE = "application/json"

HOST_LIMITS = WireLimits(payload=LINK_LIMITS.payload, body=LINK_LIMITS.body, meta=512 * 1024, skip=LINK_LIMITS.skip)
"""64 KiB of outputs have at most six times as many bytes in JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How a host becomes the host of one function.

    env: its whole environment. working_dir: absolute. scratch: its folder for temporary files, empty for none.
    forked: each call in a fresh fork (Python only; a call of a Bash function runs in a subshell anyway).
    max_calls: after which the process asks to be replaced, recycle_bytes: what it may hold after a call before it does;
    0 for never.
    """

    handler: str
    working_dir: str
    env: dict[str, str]
    attempt: int
    scratch: str = ""
    forked: bool = False
    max_calls: int = 0
    recycle_bytes: int = 0

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Config":
        """Reads what `encode` wrote."""
        return cls(**json.loads(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDocument:
    """Why a call did not complete. reason: a word; message: a sentence; type: of an exception; traceback: bounded."""

    reason: str
    message: str
    type: str = ""
    traceback: str = ""

    def encode(self) -> bytes:
        """As JSON; ASCII, so that whatever a handler raised can be said."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "ErrorDocument":
        """Reads what `encode` wrote. Raises ValueError for anything else: user code shares the host's process."""
        document = json.loads(data)
        if not isinstance(document, dict):
            raise ValueError("not an object")
        names = ("reason", "message", "type", "traceback")
        return cls(**{name: _printable(document.get(name, "")) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Beside an answer. recycle: why the host should not serve another call, empty for none.

    warning: of the initialisation: what works, but not as its author will think; empty for none.
    """

    outputs: dict[str, str] = field(default_factory=dict)
    recycle: str = ""
    warning: str = ""

    def encode(self) -> bytes:
        """As JSON; nothing where there is nothing to say."""
        return json.dumps(asdict(self)).encode() if self.outputs or self.recycle or self.warning else b""

    @classmethod
    def decode(cls, data: bytes) -> "Meta":
        """Reads what `encode` wrote. Raises ValueError for anything else."""
        if not data:
            return NOTHING
        document = json.loads(data)
        if not isinstance(document, dict) or not isinstance(document.get("outputs"), dict):
            raise ValueError("not a description of an answer")
        texts = {name: _printable(document.get(name, "")) for name in ("recycle", "warning")}
        return cls(outputs=document["outputs"], **texts)


NOTHING = Meta()
"""Beside most answers; nobody changes a Meta's outputs."""


def _printable(value: object) -> str:
    return str(value).encode("utf-8", "backslashreplace").decode()
