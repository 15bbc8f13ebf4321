"""Envoy's ext_authz HTTP service on a unix socket: the shell around `decide` (design §6).

Envoy sends method, path and four headers of each request, never a body. Status 200 lets it through and names, in
headers that Envoy takes over, the shard, the Runtime and for how long the Pod may be silent. Any other status is the
caller's answer as it stands, except 5xx, for which Envoy has an answer of its own.
"""

import logging
import os
from pathlib import Path

from aiohttp import web

from kruntimes.authz.decide import (
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
from kruntimes.common.api.outcomes import INVOCATION_ID, MAX_HEADER_BYTES, TIMEOUT_MS
from kruntimes.common.errors import NotReady

log = logging.getLogger(__name__)

SHARD_HEADER = "x-kr-shard"
RUNTIME_HEADER = "x-kr-runtime"
LENGTH_HEADER = "x-kr-length"
"""The Content-Length that the caller declares: that of Envoy's own request to us is always 0."""
PATIENCE_HEADER = "x-envoy-upstream-rq-timeout-ms"
"""Envoy's own name for the time-out of one request. A caller's is removed before anything reads it."""
KEEP_ALIVE_SECONDS = 180.0
"""Far above the 30 s after which Envoy closes an idle connection: it must be Envoy that closes."""
SHUTDOWN_SECONDS = 1.0
"""A check that is under way at the end is cut off after this; Envoy then answers 503."""
SOCKET_UMASK = 0o177
"""Only our own user, which Envoy shares, may connect."""


class Authorizer:
    """Answers checks: from the index and the decision cache alone where both know."""

    def __init__(self, *, index: Index, access: Access, policy: Policy, metrics: Metrics) -> None:
        self._index = index
        self._access = access
        self._policy = policy
        self._metrics = metrics

    async def check(self, check: Check) -> Allow | Deny:
        """The answer to one check, counted, and logged if it is a refusal."""
        began = clock.monotonic()
        asked = read(check, self._policy)
        answer = asked if isinstance(asked, Deny) else await self._authorize(asked, until=began + WAIT_SECONDS)
        self._metrics.answered(answer, clock.monotonic() - began)
        if isinstance(answer, Deny):
            log.info("request refused", extra=refusal(answer, check, asked))
        return answer

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


def check_of(request: web.BaseRequest) -> Check:
    """The check that Envoy's request stands for."""
    headers = request.headers
    return Check(
        method=request.method,
        target=request.raw_path,
        authorization=tuple(headers.getall("authorization", ())),
        invocation_ids=tuple(headers.getall(INVOCATION_ID, ())),
        timeouts=tuple(headers.getall(TIMEOUT_MS, ())),
        lengths=tuple(headers.getall(LENGTH_HEADER, ())),
    )


def response_of(answer: Allow | Deny, check: Check) -> web.Response:
    """The HTTP answer to Envoy."""
    if isinstance(answer, Allow):
        headers = {RUNTIME_HEADER: answer.runtime, PATIENCE_HEADER: str(round(answer.patience * 1000))}
        if answer.shard:
            headers[SHARD_HEADER] = answer.shard
        return web.Response(headers=headers)
    failure = answer.failure(check.invocation_id)
    return web.Response(status=failure.kind.status, headers=failure.headers() | answer.headers(), body=failure.body())


async def serve(authorizer: Authorizer, socket: Path) -> web.ServerRunner:
    """Listens on *socket* and returns; `await runner.cleanup()` ends it.

    A caller that leaves cancels its check, and with it a review that nobody else waits for.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        check = check_of(request)
        return response_of(await authorizer.check(check), check)

    server = web.Server(
        handle,
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        handler_cancellation=True,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
    )
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    before = os.umask(SOCKET_UMASK)
    try:
        await web.UnixSite(runner, socket).start()
    except BaseException:
        await runner.cleanup()
        raise
    finally:
        os.umask(before)
    return runner
