"""May this caller do that? Asked of the API server with the caller's own token, remembered for seconds.

Envoy's authorization service and the owner of a Run ask the same question, each from a bounded cache of its own
(design §6, "Authorization"). What holds for how long is decided in `kruntimes.common.decisions`; here concurrent misses
for one key share one SelfSubjectAccessReview, and the reviews under way are bounded.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kruntimes.common import clock
from kruntimes.common.decisions import DecisionCache, Question, Verdict, bearer, cache_key, expiry
from kruntimes.common.errors import NotReady
from kruntimes.common.kube.errors import Unauthorized

__all__ = ["Access", "DecisionCache", "Question", "Verdict", "bearer"]

MAX_REVIEWS = 64
"""Reviews under way at once; beyond it callers are turned away, so that random tokens cannot flood the API server."""
REVIEW_SECONDS = 3.0
"""A review takes milliseconds; beyond this the backend counts as down. Below Envoy's patience with authz."""

REVIEW_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


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

    def known(self, token: str, question: Question, *, uid: str) -> Verdict | None:
        """What is remembered of *token*, without asking anybody; None where nothing is."""
        verdict = self._cache.get(cache_key(token, question, uid), now=clock.monotonic(), wall=clock.wall())
        if verdict is not None:
            self._count("hit")
        return verdict

    async def check(self, token: str, question: Question, *, uid: str, cache: bool = True) -> Verdict:
        """What the API server says of *token*; a hit answers without suspending.

        cache=False keeps no grant; a refusal is kept all the same, so that its time tells nothing of what it was about.
        Raises NotReady where there is no verdict: the backend did not answer, or the bound of reviews under way is
        reached. A caller that leaves while others wait takes nothing from them; the last to leave ends the review.
        """
        key = cache_key(token, question, uid)
        if known := self._cache.get(key, now=clock.monotonic(), wall=clock.wall()):
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
        if cache or verdict is not Verdict.ALLOW:
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
