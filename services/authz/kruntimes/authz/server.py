"""Envoy's ext_authz HTTP service on a unix socket: the shell around `decide` (design §6).

Envoy sends method, path and four headers of each request, never a body. Status 200 lets it through and names, in
headers that Envoy takes over, the shard, the Runtime and for how long the Pod may be silent. Any other status is the
caller's answer as it stands, except 5xx, for which Envoy has an answer of its own. Where the index and the decision
cache know, the answer is written in the call that brought the request.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from kruntimes.authz.decide import (
    COMPONENT,
    MAY_NOT,
    NO_SUCH_RUN,
    UNAVAILABLE,
    Allow,
    Asked,
    Check,
    Deny,
    Policy,
    decide,
    question,
    read,
)
from kruntimes.authz.index import WAIT_SECONDS, Index
from kruntimes.authz.metrics import Metrics
from kruntimes.common import clock
from kruntimes.common.access import Access, Verdict
from kruntimes.common.api import outcomes
from kruntimes.common.api.outcomes import INVOCATION_ID, TIMEOUT_MS
from kruntimes.common.errors import NotReady
from kruntimes.common.http1 import failures
from kruntimes.common.http1.connection import Exchange
from kruntimes.common.http1.machine import Limits
from kruntimes.common.http1.messages import Fault, Request, Response
from kruntimes.common.http1.server import Server

log = logging.getLogger(__name__)

SHARD_HEADER = "x-kr-shard"
RUNTIME_HEADER = "x-kr-runtime"
LENGTH_HEADER = "x-kr-length"
"""The Content-Length that the caller declares: that of Envoy's own request to us is always 0."""
PATIENCE_HEADER = "x-envoy-upstream-rq-timeout-ms"
"""Envoy's own name for the time-out of one request. A caller's is removed before anything reads it."""
SHUTDOWN_SECONDS = 1.0
"""A check that is under way at the end is cut off after this; Envoy then answers 503."""
SOCKET_UMASK = 0o177
"""Only our own user, which Envoy shares, may connect."""
_INVOCATION_ID, _TIMEOUT_MS, _LENGTH = INVOCATION_ID.encode(), TIMEOUT_MS.encode(), LENGTH_HEADER.encode()


class Authorizer:
    """Answers checks: from the index and the decision cache alone where both know."""

    def __init__(self, *, index: Index, access: Access, policy: Policy, metrics: Metrics) -> None:
        self._index = index
        self._access = access
        self._policy = policy
        self._metrics = metrics

    def known(self, check: Check, give: Callable[[Allow | Deny], None]) -> bool:
        """Gives one answer, then counts and logs it as `check` does; False where it must be waited for."""
        began = clock.monotonic()
        asked = read(check, self._policy)
        answer = asked if isinstance(asked, Deny) else self._remembered(asked)
        if answer is None:
            return False
        seconds = clock.monotonic() - began
        give(answer)
        self._tell(check, asked, answer, seconds)
        return True

    async def check(self, check: Check) -> Allow | Deny:
        """The answer to one check, counted, and logged if it is a refusal."""
        began = clock.monotonic()
        asked = read(check, self._policy)
        answer = asked if isinstance(asked, Deny) else await self._authorize(asked, until=began + WAIT_SECONDS)
        self._tell(check, asked, answer, clock.monotonic() - began)
        return answer

    def _tell(self, check: Check, asked: Asked | Deny, answer: Allow | Deny, seconds: float) -> None:
        self._metrics.answered(answer, seconds)
        if isinstance(answer, Deny):
            log.info("request refused", extra=refusal(answer, check, asked))

    def _remembered(self, asked: Asked) -> Allow | Deny | None:
        """What the copies and the decision cache say. None where they do not know, or the answer is to be held."""
        path = asked.path
        if not self._index.synced:
            return UNAVAILABLE
        name = self._index.name(namespace=path.namespace, uid=path.uid)
        if name is None:
            return None
        review = self._access.known(asked.token, question(path, name, self._policy), uid=path.uid)
        if review is not Verdict.ALLOW or not self._index.has_runtime(namespace=path.namespace, runtime=path.runtime):
            return None
        return decide(asked, name, review)

    async def _authorize(self, asked: Asked, *, until: float) -> Allow | Deny:
        """The answer to a well-formed request. until: when a Run that is about to appear has done so, monotonic.

        Every refusal of an authenticated caller is held until then, whether the Run is known or not: neither the words
        nor the time of it tell that there is such a Run. A bad token is refused at once, in both cases alike.
        """
        path = asked.path
        if not self._index.synced:
            return UNAVAILABLE
        known = self._index.name(namespace=path.namespace, uid=path.uid)
        while True:
            answer = decide(asked, known, await self._review(asked, known))
            if answer is not MAY_NOT and answer is not NO_SUCH_RUN:
                break
            appeared = await self._index.appears(namespace=path.namespace, uid=path.uid, until=until)
            if known is not None or appeared is None:
                break
            known = appeared
        if isinstance(answer, Allow) and await self._index.astray(
            namespace=path.namespace, runtime=path.runtime, name=known or ""
        ):
            return NO_SUCH_RUN
        # With a broken watch nothing is proven not to exist.
        return UNAVAILABLE if answer is NO_SUCH_RUN and not self._index.current else answer

    async def _review(self, asked: Asked, known: str | None) -> Verdict | None:
        """What the API server says; None if it does not.

        A grant about a Run that may not exist is not kept: what matters of it is the index, at every moment.
        """
        asking = question(asked.path, known, self._policy)
        try:
            return await self._access.check(asked.token, asking, uid=asked.path.uid, cache=known is not None)
        except NotReady:
            return None


def refusal(answer: Deny, check: Check, asked: Asked | Deny) -> dict[str, object]:
    """The fields of the one log line of a refusal; `runtime` is NAMESPACE/NAME, as in every service's logs."""
    about = {} if isinstance(asked, Deny) else {"runtime": asked.path.runtime_key, "run_uid": asked.path.uid}
    kind = answer.kind
    told = {"status": kind.status, "reason": kind.reason, "outcome": kind.outcome.value}
    return about | {"invocation_id": check.invocation_id} | told


def check_of(request: Request) -> Check:
    """The check that Envoy's request stands for."""
    return Check(
        method=request.method,
        target=request.target,
        authorization=request.values(b"authorization"),
        invocation_ids=request.values(_INVOCATION_ID),
        timeouts=request.values(_TIMEOUT_MS),
        lengths=request.values(_LENGTH),
        hosts=request.values(b"host"),
    )


def response_of(answer: Allow | Deny, check: Check) -> Response:
    """The HTTP answer to Envoy."""
    if isinstance(answer, Allow):
        headers = {RUNTIME_HEADER: answer.runtime, PATIENCE_HEADER: str(round(answer.patience * 1000))}
        if answer.shard:
            headers[SHARD_HEADER] = answer.shard
        return Response(status=200, headers=headers)
    failure = answer.failure(check.invocation_id)
    return Response(status=failure.kind.status, headers=failure.headers() | answer.headers(), body=failure.body())


class _Service:
    """Checks as `kruntimes.common.http1` serves them. A caller that leaves cancels its check, and with it a review
    that nobody else waits for."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def identify(self, transport: asyncio.BaseTransport) -> None:
        """Whoever can reach the socket is Envoy."""

    def handle(self, exchange: Exchange[None]) -> None:
        """Answers at once, or once the API server has been asked."""
        check = check_of(exchange.request)
        if not self._authorizer.known(check, lambda answer: exchange.answer(response_of(answer, check))):
            exchange.wait_for(self._ask(check))

    async def _ask(self, check: Check) -> Response:
        return response_of(await self._authorizer.check(check), check)

    def refuse(self, fault: Fault, caller: None) -> Response:
        """Never open: what cannot be read is refused."""
        failure = failures.failure_of(fault, component=COMPONENT, internal=outcomes.AUTHORIZATION_UNAVAILABLE)
        kind = failure.kind
        told = {"status": kind.status, "reason": kind.reason, "outcome": kind.outcome.value}
        log.info("request refused", extra={"invocation_id": failure.invocation_id} | told)
        return failures.response_of(failure, close=True)

    def lost(self, request: Request, caller: None) -> None:
        """A check has no body."""


class Serving:
    """The listener, until `cleanup`."""

    def __init__(self, server: Server[None]) -> None:
        self._server = server

    async def cleanup(self) -> None:
        """Lets checks that are under way end, and closes every connection."""
        await self._server.close(SHUTDOWN_SECONDS)


async def serve(authorizer: Authorizer, socket: Path) -> Serving:
    """Listens on *socket* and returns; `await serving.cleanup()` ends it."""
    server = Server(_Service(authorizer), limits=Limits(body=0))
    await server.listen_unix(socket, umask=SOCKET_UMASK)
    return Serving(server)
