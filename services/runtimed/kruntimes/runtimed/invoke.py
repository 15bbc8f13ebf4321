"""The listener for the gateway: HTTP/1.1 on mTLS, one request, one answer (design §6).

The gateway has checked most of this already; it is checked again, since this is where it counts. Only a client
certificate of role `gateway` is served, and what a stranger could put into hop headers is never read here.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from multidict import CIMultiDictProxy

from kruntimes.common import clock
from kruntimes.common.access import bearer
from kruntimes.common.api import outcomes
from kruntimes.common.api.epoch import HEADER, Epoch
from kruntimes.common.api.names import Role, parse_path
from kruntimes.common.api.outcomes import Failure, Outcome
from kruntimes.common.tls import peer_of
from kruntimes.runtimed.envelope import envelope, wanted
from kruntimes.runtimed.invocation import Answer, Invocation, failure
from kruntimes.runtimed.invoker import Invoker, Limits
from kruntimes.runtimed.metrics import Metrics
from kruntimes.runtimed.ownership import Asked

log = logging.getLogger(__name__)

KEEPALIVE_SECONDS = 150.0
"""Envoy drops idle connections after 30 s; a server that were quicker would cut a call that nobody may repeat."""
SHUTDOWN_SECONDS = 5.0
"""What is still under way when the listener closes ends within this; draining has come before."""
BACKLOG = 512


@dataclass(slots=True)
class _Seen:
    """What is known of a request, for its one log line and its count."""

    uid: str | None = None
    invocation_id: str | None = None
    attempt: int | None = None


class InvokeServer:
    """Answers invoke and cancel requests. draining: answers close their connection while it is true."""

    def __init__(
        self, invoker: Invoker, *, limits: Limits, metrics: Metrics, draining: Callable[[], bool], tls: ssl.SSLContext
    ) -> None:
        self._invoker = invoker
        self._limits = limits
        self._metrics = metrics
        self._draining = draining
        self._tls = tls
        self._roles: dict[RequestHandler, Role | None] = {}
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port."""
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            keepalive_timeout=KEEPALIVE_SECONDS,
            auto_decompress=False,
            access_log=None,
            max_line_size=outcomes.MAX_HEADER_BYTES,
            max_field_size=outcomes.MAX_HEADER_BYTES,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=self._tls, backlog=BACKLOG).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Closes the listener and what is left of its connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request: its answer, one log line, one count."""
        started, seen = clock.monotonic(), _Seen()
        try:
            result = await self._answer(request, seen)
        except asyncio.CancelledError:
            # The caller left; there is nobody to answer.
            self._tell(seen, clock.monotonic() - started, 499, Outcome.CANCELLED)
            raise
        except Exception:
            log.exception("request failed", extra=self._extra(seen))
            result = failure(outcomes.OUTCOME_UNKNOWN, "an internal error", seen.invocation_id)
        response = self._response(request, seen, result)
        outcome = result.kind.outcome if isinstance(result, Failure) else Outcome.COMPLETED
        # Told in the loop's next round: the answer is written in this one, and nobody waits for a log line.
        seconds = clock.monotonic() - started
        asyncio.get_running_loop().call_soon(self._tell, seen, seconds, response.status, outcome)
        return response

    async def _answer(self, request: web.BaseRequest, seen: _Seen) -> Answer | Failure | None:
        """The answer; None for a cancellation that was passed on."""
        headers = request.headers
        given = _once(headers, outcomes.INVOCATION_ID)
        if given is not None and outcomes.valid_invocation_id(given):
            seen.invocation_id = given
        if self._role(request) is not Role.GATEWAY:
            return failure(outcomes.FORBIDDEN, "only the gateway is served here", seen.invocation_id)
        path = parse_path(request.raw_path)
        if path is None:
            bad = outcomes.QUERY_NOT_ALLOWED if "?" in request.raw_path else outcomes.BAD_PATH
            return failure(bad, "the path is not of the published form", seen.invocation_id)
        seen.uid = path.uid
        if request.method != "POST":
            return failure(outcomes.METHOD_NOT_ALLOWED, "use POST", seen.invocation_id)
        if seen.invocation_id is None:
            wrong = "X-Kruntime-Invocation-ID is missing, malformed or given twice"
            return failure(outcomes.BAD_INVOCATION_ID, wrong, None)
        if path.cancel is not None:
            seen.invocation_id = path.cancel
        if len(headers.getall(outcomes.TIMEOUT_MS, ())) > 1:
            return failure(outcomes.BAD_TIMEOUT, "X-Kruntime-Timeout-Ms is given twice", seen.invocation_id)
        try:
            seconds = outcomes.parse_timeout_ms(
                headers.get(outcomes.TIMEOUT_MS),
                default=self._limits.default_timeout,
                maximum=self._limits.max_timeout,
            )
        except ValueError as error:
            return failure(outcomes.BAD_TIMEOUT, str(error), seen.invocation_id)
        try:
            expected = Epoch.parse(headers[HEADER]) if HEADER in headers else None
        except ValueError as error:
            return failure(outcomes.BAD_REQUEST, str(error), seen.invocation_id)
        if expected is not None:
            seen.attempt = expected.attempt
        return await self._admitted(request, seen, Asked(path=path, expected=expected, hop=False), seconds)

    async def _admitted(
        self, request: web.BaseRequest, seen: _Seen, asked: Asked, seconds: float
    ) -> Answer | Failure | None:
        invocation_id = seen.invocation_id or ""
        deadline = clock.monotonic() + seconds
        token = bearer(_once(request.headers, "authorization"))
        refused = await self._invoker.admit(asked, token=token, invocation_id=invocation_id)
        if refused is not None:
            return refused
        assert token is not None, "admitted without a token"
        if asked.path.cancel is not None:
            return await self._invoker.cancel(asked, invocation_id, token=token)
        try:
            body = await _read(request)
        except (ClientPayloadError, HttpProcessingError, ConnectionError):
            return failure(outcomes.BAD_REQUEST, "the body ended early or is not well formed", invocation_id)
        if body is None:
            limit = outcomes.MAX_BODY_BYTES
            return failure(outcomes.BODY_TOO_LARGE, f"the body is larger than {limit} bytes", invocation_id)
        left = deadline - clock.monotonic()
        if left <= 0:
            return failure(outcomes.DEADLINE_EXCEEDED, "the invocation's deadline has passed", invocation_id)
        invocation = Invocation(
            id=invocation_id,
            body=body,
            content_type=request.headers.get("content-type", "application/json"),
            seconds=left,
            trace=request.headers.get("traceparent", ""),
        )
        return await self._invoker.invoke(asked, invocation, token=token)

    def _role(self, request: web.BaseRequest) -> Role | None:
        """The role in the client's certificate, looked at once for each connection."""
        protocol = request.protocol
        if protocol in self._roles:
            return self._roles[protocol]
        transport = request.transport
        peer = peer_of(transport.get_extra_info("ssl_object")) if transport is not None else None
        role = None if peer is None else peer.role
        if len(self._roles) > 2 * BACKLOG:
            live = set(self._runner.server.connections) if self._runner and self._runner.server else set()
            self._roles = {known: r for known, r in self._roles.items() if known in live}
        self._roles[protocol] = role
        return role

    def _response(self, request: web.BaseRequest, seen: _Seen, result: Answer | Failure | None) -> web.Response:
        if isinstance(result, Failure):
            response = web.Response(status=result.kind.status, headers=result.headers(), body=result.body())
            if result.kind is outcomes.BODY_TOO_LARGE:
                response.force_close()
        else:
            headers = {
                outcomes.INVOCATION_ID: seen.invocation_id or "",
                outcomes.OUTCOME: Outcome.COMPLETED.value,
                outcomes.RETRY_SAFE: "false",
            }
            if result is None:
                response = web.Response(status=202, headers=headers)
            elif wanted(request.headers.get("accept")):
                body = envelope(result, invocation_id=seen.invocation_id or "")
                headers["content-type"] = outcomes.ENVELOPE_TYPE
                response = web.Response(body=body, headers=headers)
            else:
                headers["content-type"] = result.content_type
                response = web.Response(body=result.output, headers=headers)
        if self._draining():
            response.force_close()
        return response

    def _extra(self, seen: _Seen) -> dict[str, object]:
        return {
            "runtime": self._invoker.own.key,
            "run_uid": seen.uid,
            "invocation_id": seen.invocation_id,
            "attempt": seen.attempt,
        }

    def _tell(self, seen: _Seen, seconds: float, status: int, outcome: Outcome) -> None:
        self._metrics.answered(hop="gateway", status=status, outcome=outcome, seconds=seconds)
        more = {"status": status, "outcome": outcome.value, "ms": round(seconds * 1000, 2)}
        log.info("invocation ended", extra=self._extra(seen) | more)


def _once(headers: CIMultiDictProxy[str], name: str) -> str | None:
    """The header's value; None where it is absent, or given twice: no reader may choose between two."""
    values = headers.getall(name, ())
    return values[0] if len(values) == 1 else None


async def _read(request: web.BaseRequest) -> bytes | None:
    """The body; None where it is larger than allowed, declared or not."""
    if (request.content_length or 0) > outcomes.MAX_BODY_BYTES:
        return None
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > outcomes.MAX_BODY_BYTES:
            return None
    return bytes(body)
