"""The listener for the gateway: HTTP/1.1 on mTLS, one request, one answer (design §6).

The gateway has checked most of this already; it is checked again, since this is where it counts. Only a client
certificate of role `gateway` is served, and what a stranger could put into hop headers is never read here.

A warm call makes no task and no future: it is sent to the Runtime Server in the call of the event loop that brought
its last byte, and answered in the one that brought its result. Whatever must be waited for runs in a task.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from kruntimes.common import clock
from kruntimes.common.access import bearer
from kruntimes.common.api import outcomes
from kruntimes.common.api.epoch import HEADER, Epoch
from kruntimes.common.api.names import Role, parse_path
from kruntimes.common.api.outcomes import Failure, Outcome
from kruntimes.common.http1 import failures
from kruntimes.common.http1.connection import Exchange
from kruntimes.common.http1.machine import Limits as HttpLimits
from kruntimes.common.http1.messages import Fault, Request, Response
from kruntimes.common.http1.server import Server
from kruntimes.common.tls import peer_of
from kruntimes.runtimed.envelope import envelope, wanted
from kruntimes.runtimed.invocation import COMPONENT, Answer, Invocation, failure
from kruntimes.runtimed.invoker import Invoker, Limits
from kruntimes.runtimed.journal import Ended, Journal
from kruntimes.runtimed.metrics import Metrics
from kruntimes.runtimed.ownership import Asked, Here, Peer

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 5.0
"""What is still under way when the listener closes ends within this; draining has come before."""
_INVOCATION_ID, _TIMEOUT_MS = outcomes.INVOCATION_ID.encode(), outcomes.TIMEOUT_MS.encode()
_EPOCH = HEADER.encode()


@dataclass(slots=True)
class _Seen:
    """What is known of a request, for its answer, its one log line and its count. started: on the monotonic clock."""

    started: float
    uid: str | None = None
    invocation_id: str | None = None
    attempt: int | None = None


class _Wanted(msgspec.Struct, frozen=True):
    """A well-formed request. seconds: its deadline, from its start."""

    asked: Asked
    token: str | None
    seconds: float


class InvokeServer:
    """Answers invoke and cancel requests. draining: answers close their connection while it is true."""

    def __init__(
        self, invoker: Invoker, *, limits: Limits, metrics: Metrics, draining: Callable[[], bool], tls: ssl.SSLContext
    ) -> None:
        self._invoker = invoker
        self._limits = limits
        self._journal = Journal(invoker.own.key, metrics)
        self._draining = draining
        self._tls = tls
        self._server: Server[Role | None] = Server(self, limits=HttpLimits(body=outcomes.MAX_BODY_BYTES))

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port."""
        return await self._server.listen(host, port, tls=self._tls)

    async def stop(self) -> None:
        """Closes the listener and what is left of its connections."""
        await self._server.close(SHUTDOWN_SECONDS)
        self._journal.tell()

    # --- told by the listener

    def identify(self, transport: asyncio.BaseTransport) -> Role | None:
        """The role in the client's certificate."""
        peer = peer_of(transport.get_extra_info("ssl_object"))
        return None if peer is None else peer.role

    def handle(self, exchange: Exchange[Role | None]) -> None:
        """One request: its answer, one log line, one count."""
        request, seen = exchange.request, _Seen(clock.monotonic())
        exchange.on_gone = lambda: self._gone(seen)
        read = self._read(request, exchange.caller, seen)
        if isinstance(read, Failure):
            self._finish(exchange, seen, read)
            return
        where = self._invoker.remembered(read.asked, token=read.token, invocation_id=seen.invocation_id or "")
        if isinstance(where, Failure):
            self._finish(exchange, seen, where)
        elif where is None or read.asked.path.cancel is not None or not self._begin(exchange, seen, read, where):
            exchange.wait_for(self._wait(request, seen, read))

    def refuse(self, fault: Fault, caller: Role | None) -> Response:
        """The answer to what could not be read as a request, or made us fail."""
        seen = _Seen(clock.monotonic(), invocation_id=failures.invocation_id_of(fault.request))
        failed = failures.failure_of(fault, component=COMPONENT, internal=outcomes.OUTCOME_UNKNOWN)
        self._tell(seen, 0.0, failed.kind.status, failed.kind.outcome)
        return failures.response_of(failed, close=True)

    def lost(self, request: Request, caller: Role | None) -> None:
        """The caller left while it sent its body."""
        seen = _Seen(clock.monotonic(), invocation_id=failures.invocation_id_of(request))
        if (path := parse_path(request.target)) is not None:
            seen.uid = path.uid
        self._gone(seen)

    # --- one request

    def _read(self, request: Request, role: Role | None, seen: _Seen) -> _Wanted | Failure:
        """What is asked for, or the first fault."""
        seen.invocation_id = failures.invocation_id_of(request)
        if role is not Role.GATEWAY:
            return failure(outcomes.FORBIDDEN, "only the gateway is served here", seen.invocation_id)
        path = parse_path(request.target)
        if path is None:
            bad = outcomes.QUERY_NOT_ALLOWED if "?" in request.target else outcomes.BAD_PATH
            return failure(bad, "the path is not of the published form", seen.invocation_id)
        seen.uid = path.uid
        if request.method != "POST":
            return failure(outcomes.METHOD_NOT_ALLOWED, "use POST", seen.invocation_id)
        if seen.invocation_id is None:
            wrong = "X-Kruntime-Invocation-ID is missing, malformed or given twice"
            return failure(outcomes.BAD_INVOCATION_ID, wrong, None)
        if path.cancel is not None:
            seen.invocation_id = path.cancel
        if len(request.headers.get(_TIMEOUT_MS, ())) > 1:
            return failure(outcomes.BAD_TIMEOUT, "X-Kruntime-Timeout-Ms is given twice", seen.invocation_id)
        try:
            seconds = outcomes.parse_timeout_ms(
                request.value(_TIMEOUT_MS), default=self._limits.default_timeout, maximum=self._limits.max_timeout
            )
        except ValueError as error:
            return failure(outcomes.BAD_TIMEOUT, str(error), seen.invocation_id)
        try:
            epoch = request.value(_EPOCH)
            expected = Epoch.parse(epoch) if epoch is not None else None
        except ValueError as error:
            return failure(outcomes.BAD_REQUEST, str(error), seen.invocation_id)
        if expected is not None:
            seen.attempt = expected.attempt
        asked = Asked(path=path, expected=expected, hop=False)
        return _Wanted(asked, bearer(request.once(b"authorization")), seconds)

    def _invocation(self, request: Request, seen: _Seen, read: _Wanted) -> Invocation | Failure:
        """The call that an admitted request is."""
        invocation_id = seen.invocation_id or ""
        if request.body is None:
            limit = outcomes.MAX_BODY_BYTES
            return failure(outcomes.BODY_TOO_LARGE, f"the body is larger than {limit} bytes", invocation_id)
        left = seen.started + read.seconds - clock.monotonic()
        if left <= 0:
            return failure(outcomes.DEADLINE_EXCEEDED, "the invocation's deadline has passed", invocation_id)
        return Invocation(
            id=invocation_id,
            body=request.body,
            content_type=request.value(b"content-type") or "application/json",
            seconds=left,
            trace=request.value(b"traceparent") or "",
        )

    def _begin(self, exchange: Exchange[Role | None], seen: _Seen, read: _Wanted, where: Here | Peer) -> bool:
        """Sends a call that needs no waiting; False where it needs some."""
        invocation = self._invocation(exchange.request, seen, read)
        if isinstance(invocation, Failure):
            self._finish(exchange, seen, invocation)
            return True
        left = self._invoker.begin(where, invocation, lambda answer: self._finish(exchange, seen, answer))
        if left is None:
            return False
        if exchange.open:
            exchange.on_gone = lambda: self._leave(left, seen)
        return True

    async def _wait(self, request: Request, seen: _Seen, read: _Wanted) -> Response:
        """The answer, waited for wherever that is needed."""
        try:
            result = await self._waited(request, seen, read)
        except Exception:
            log.exception("request failed", extra=self._extra(seen))
            result = failure(outcomes.OUTCOME_UNKNOWN, "an internal error", seen.invocation_id)
        return self._told(request, seen, result)

    async def _waited(self, request: Request, seen: _Seen, read: _Wanted) -> Answer | Failure | None:
        """The result; None for a cancellation that was passed on."""
        asked, token, invocation_id = read.asked, read.token, seen.invocation_id or ""
        refused = await self._invoker.admit(asked, token=token, invocation_id=invocation_id)
        if refused is not None:
            return refused
        assert token is not None, "admitted without a token"
        if asked.path.cancel is not None:
            return await self._invoker.cancel(asked, invocation_id, token=token)
        invocation = self._invocation(request, seen, read)
        if isinstance(invocation, Failure):
            return invocation
        return await self._invoker.invoke(asked, invocation, token=token)

    # --- its end

    def _finish(self, exchange: Exchange[Role | None], seen: _Seen, result: Answer | Failure) -> None:
        """Answers. It is called from where other calls' results are read, so that nothing may be raised into it."""
        exchange.on_gone = None
        try:
            response = self._told(exchange.request, seen, result)
        except Exception:
            log.exception("request failed", extra=self._extra(seen))
            internal = failure(outcomes.OUTCOME_UNKNOWN, "an internal error", seen.invocation_id)
            response = failures.response_of(internal, close=True)
        exchange.answer(response)

    def _told(self, request: Request, seen: _Seen, result: Answer | Failure | None) -> Response:
        """The response, noted in the journal."""
        response = self._response(request, seen, result)
        outcome = result.kind.outcome if isinstance(result, Failure) else Outcome.COMPLETED
        self._tell(seen, clock.monotonic() - seen.started, response.status, outcome)
        return response

    def _leave(self, left: Callable[[], None], seen: _Seen) -> None:
        left()
        self._gone(seen)

    def _gone(self, seen: _Seen) -> None:
        """The caller left; there is nobody to answer."""
        self._tell(seen, clock.monotonic() - seen.started, 499, Outcome.CANCELLED)

    def _response(self, request: Request, seen: _Seen, result: Answer | Failure | None) -> Response:
        closing = self._draining()
        if isinstance(result, Failure):
            return failures.response_of(result, close=closing or result.kind is outcomes.BODY_TOO_LARGE)
        headers = {
            outcomes.INVOCATION_ID: seen.invocation_id or "",
            outcomes.OUTCOME: Outcome.COMPLETED.value,
            outcomes.RETRY_SAFE: "false",
        }
        if result is None:
            return Response(status=202, headers=headers, close=closing)
        body = result.output
        if wanted(request.value(b"accept")):
            body = envelope(result, invocation_id=seen.invocation_id or "")
            headers["content-type"] = outcomes.ENVELOPE_TYPE
        else:
            headers["content-type"] = result.content_type
        return Response(status=200, headers=headers, body=body, close=closing)

    def _extra(self, seen: _Seen) -> dict[str, object]:
        return {
            "runtime": self._invoker.own.key,
            "run_uid": seen.uid,
            "invocation_id": seen.invocation_id,
            "attempt": seen.attempt,
        }

    def _tell(self, seen: _Seen, seconds: float, status: int, outcome: Outcome) -> None:
        self._journal.add(
            Ended(
                at=clock.wall(),
                seconds=seconds,
                status=status,
                outcome=outcome,
                run_uid=seen.uid,
                invocation_id=seen.invocation_id,
                attempt=seen.attempt,
            )
        )
