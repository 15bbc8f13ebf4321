"""The rules of a remembered authorization: what is asked, what was answered, and for how long that holds.

Values in, values out; `kruntimes.common.access` is the shell around it (design §6, "Authorization"). The token is a
parameter and never kept: the cache knows its SHA-256, and no message holds it.
"""

import base64
import binascii
import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

import msgspec

ALLOW_SECONDS = 30.0
"""The longest life of a granted decision: what a revoked right may outlive its revocation by (design §6)."""
REFUSE_SECONDS = 5.0
"""Shorter, so that a right that was just given is soon noticed; long enough to blunt a flood of one bad token."""
ALLOWED_ENTRIES = 32768
"""Some 10 MB. More callers than this within 30 s cost reviews, not memory."""
REFUSED_ENTRIES = 4096
"""Kept apart from what was granted: a stranger's random tokens push out nothing but each other."""

_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]+=*)")


class Verdict(Enum):
    """What the API server said of a caller. Not knowing is no verdict: it is raised as NotReady."""

    ALLOW = "allow"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, in the words of Kubernetes' ResourceAttributes. An empty *name* means any name."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str


def bearer(header: str | None) -> str | None:
    """The token of an Authorization header; None where there is none of the form `Bearer TOKEN` (RFC 6750).

    Two headers that a proxy joined with a comma are not of that form.
    """
    match = _BEARER.fullmatch(header) if header else None
    return match[1] if match else None


class _Claims(msgspec.Struct):
    exp: float | None = None


_claims = msgspec.json.Decoder(_Claims)


def expiry(token: str) -> float | None:
    """The `exp` that a JWT claims, in seconds since the epoch; None for any other token.

    Read without verification: it can only shorten the time for which a verdict of the API server is kept.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        return _claims.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))).exp
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None


def cache_key(token: str, question: Question, uid: str) -> bytes:
    """SHA-256 of the token, then what is asked and of which object; NUL is in none of them."""
    q = question
    asked = f"{uid}\0{q.namespace}\0{q.name}\0{q.verb}\0{q.group}\0{q.resource}\0{q.subresource}"
    return hashlib.sha256(token.encode()).digest() + asked.encode()


@dataclass(frozen=True, slots=True)
class _Entry:
    verdict: Verdict
    until: float
    expiry: float | None


class DecisionCache:
    """Verdicts by key, bounded in number and time; the least recently used gives way.

    now is monotonic and wall is since the epoch, both in seconds: a step of the wall clock must neither prolong an
    entry nor hide that its token has expired.
    """

    def __init__(self, *, allowed_entries: int = ALLOWED_ENTRIES, refused_entries: int = REFUSED_ENTRIES) -> None:
        self._allowed: OrderedDict[bytes, _Entry] = OrderedDict()
        self._refused: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bounds = ((self._allowed, allowed_entries), (self._refused, refused_entries))

    def __len__(self) -> int:
        return len(self._allowed) + len(self._refused)

    def get(self, key: bytes, *, now: float, wall: float) -> Verdict | None:
        """The verdict that still holds, or None."""
        for entries in (self._allowed, self._refused):
            entry = entries.get(key)
            if entry is None:
                continue
            if now < entry.until and (entry.expiry is None or wall < entry.expiry):
                entries.move_to_end(key)
                return entry.verdict
            del entries[key]
        return None

    def put(self, key: bytes, verdict: Verdict, *, now: float, wall: float, expiry: float | None) -> None:
        """Remembers *verdict*, in place of whatever was known; *expiry* is the token's own, on the wall clock."""
        for entries, _ in self._bounds:
            entries.pop(key, None)
        if expiry is not None and expiry <= wall:
            return
        granted = verdict is Verdict.ALLOW
        entries, bound = self._bounds[0 if granted else 1]
        entries[key] = _Entry(verdict, now + (ALLOW_SECONDS if granted else REFUSE_SECONDS), expiry)
        while len(entries) > bound:
            entries.popitem(last=False)
