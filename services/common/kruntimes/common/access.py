"""May this caller do that? Asked of the API server with the caller's own token, remembered for seconds.

Envoy's authorization service and the owner of a Run ask the same question, each from a bounded cache of its
own (design §6, "Authorization"). `DecisionCache` is the rules: values in, values out. `Access` is the shell around
it: it lets concurrent misses for one key share one SelfSubjectAccessReview, and bounds the reviews under way.

The token is a parameter of every call and never kept: the cache knows its SHA-256, and no message holds it.
"""

import asyncio
import base64
import binascii
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import msgspec

from kruntimes.common import clock
from kruntimes.common.errors import NotReady
from kruntimes.common.kube.errors import Unauthorized

ALLOW_SECONDS = 30.0
"""The longest life of a granted decision: what a revoked right may outlive its revocation by (design §6)."""
REFUSE_SECONDS = 5.0
"""Shorter, so that a right that was just given is soon noticed; long enough to blunt a flood of one bad token."""
ALLOWED_ENTRIES = 32768
"""Some 10 MB. More callers than this within 30 s cost reviews, not memory."""
REFUSED_ENTRIES = 4096
"""Kept apart from what was granted: a stranger's random tokens push out nothing but each other."""
MAX_REVIEWS = 64
"""Reviews under way at once; beyond it callers are turned away, so that random tokens cannot flood the API server."""
REVIEW_SECONDS = 3.0
"""A review takes milliseconds; beyond this the backend counts as down. Below Envoy's patience with authz."""

REVIEW_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]+=*)")


class Verdict(Enum):
    """What the API server said of a caller. Not knowing is no verdict: it is raised as NotReady."""

    ALLOW = "allow"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
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


class Requests(Protocol):
    """The part of `kruntimes.common.kube.transport.Kube` that a review needs."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = ...,
        body: object | bytes | None = None,
        content_type: str = ...,
        accept: str = ...,
        timeout: float = ...,
        token: str | None = None,
    ) -> bytes:
        """Acts with *token* and with no credential of the service's own."""


class _ReviewStatus(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    status: _ReviewStatus


_review = msgspec.json.Decoder(_Review)


@dataclass(slots=True)
class _Flight:
    task: asyncio.Task[Verdict | NotReady]
    waiting: int = 0


class Access:
    """Answers `check` from the cache, or by one shared review for each key.

    tasks: the group in which reviews run; it outlives every caller. A review never raises into it.
    count: is told of each check as `hit`, `review`, `shared` or `overload`, and of each review without a verdict
    as `error`; for metrics.
    """

    def __init__(
        self,
        kube: Requests,
        *,
        tasks: asyncio.TaskGroup,
        cache: DecisionCache | None = None,
        max_reviews: int = MAX_REVIEWS,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kube = kube
        self._tasks = tasks
        self._cache = DecisionCache() if cache is None else cache
        self._max_reviews = max_reviews
        self._count = count
        self._flights: dict[tuple[bytes, bool], _Flight] = {}

    async def check(self, token: str, question: Question, *, uid: str, cache: bool = True) -> Verdict:
        """What the API server says of *token*; a hit answers without suspending.

        cache=False neither reads nor writes the cache. Raises NotReady where there is no verdict: the backend did not
        answer, or the bound of reviews under way is reached. A caller that leaves while others wait takes nothing
        from them; the last to leave ends the review.
        """
        key = cache_key(token, question, uid)
        if cache and (known := self._cache.get(key, now=clock.monotonic(), wall=clock.wall())):
            self._count("hit")
            return known
        flight = self._flights.get((key, cache))
        if flight is None:
            if len(self._flights) >= self._max_reviews:
                self._count("overload")
                raise NotReady("too many authorization reviews are under way")
            self._count("review")
            flight = _Flight(self._tasks.create_task(self._fly(key, token, question, cache=cache)))
            self._flights[key, cache] = flight
        else:
            self._count("shared")
        flight.waiting += 1
        try:
            await asyncio.wait((flight.task,))
        finally:
            flight.waiting -= 1
            if flight.waiting == 0:
                self._land((key, cache), flight)
        result = NotReady("authorization is stopping") if flight.task.cancelled() else flight.task.result()
        if isinstance(result, NotReady):
            raise NotReady(*result.args)
        return result

    def _land(self, key: tuple[bytes, bool], flight: _Flight) -> None:
        """Takes *flight* out of reach before its task has ended, so that no newcomer joins what is being cancelled."""
        flight.task.cancel()
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _fly(self, key: bytes, token: str, question: Question, *, cache: bool) -> Verdict | NotReady:
        try:
            verdict = await self._ask(token, question)
        except Exception:  # whatever it was, it was not an answer, and it must not end the group
            self._count("error")
            return NotReady("the authorization backend did not answer")
        if cache:
            now, wall = clock.monotonic(), clock.wall()
            self._cache.put(key, verdict, now=now, wall=wall, expiry=expiry(token))
        return verdict

    async def _ask(self, token: str, question: Question) -> Verdict:
        attributes = {
            "verb": question.verb,
            "group": question.group,
            "resource": question.resource,
            "subresource": question.subresource,
            "namespace": question.namespace,
            "name": question.name,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {field: value for field, value in attributes.items() if value}},
        }
        try:
            answer = await self._kube.request("POST", REVIEW_PATH, body=body, timeout=REVIEW_SECONDS, token=token)
        except Unauthorized:
            return Verdict.UNAUTHENTICATED
        return Verdict.ALLOW if _review.decode(answer).status.allowed else Verdict.FORBIDDEN
