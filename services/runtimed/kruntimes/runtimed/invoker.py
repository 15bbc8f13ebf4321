"""From an admitted request to its answer: authorize, route, then call here or at the one owner (design §6).

The gateway's listener and the peer's use the same steps, so that an owner decides alike whoever asks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kruntimes.common.access import Access, Question, Verdict
from kruntimes.common.api import outcomes
from kruntimes.common.api.outcomes import Failure
from kruntimes.common.api.views import RouteRun
from kruntimes.common.errors import NotReady as BackendDown
from kruntimes.runtimed import ownership
from kruntimes.runtimed.cache import Ownership
from kruntimes.runtimed.dispatch import Dispatcher
from kruntimes.runtimed.held import Registry
from kruntimes.runtimed.invocation import Answer, Invocation, failure
from kruntimes.runtimed.ownership import Asked, Here, Own, Peer, Registered, Route


class PeerCaller(Protocol):
    """The other end of the one hop."""

    async def invoke(self, owner: Peer, invocation: Invocation, *, token: str) -> Answer | Failure:
        """Proxies one call to its owner."""

    async def cancel(self, owner: Peer, invocation_id: str, *, token: str) -> Failure | None:
        """Passes the cancellation of one call to its owner; None once that has been asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Which permission is asked for; installation settings (design §6, "Authorization")."""

    verb: str
    group: str
    resource: str
    subresource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds: the deadline where none is asked for, and the longest that may be."""

    default_timeout: float
    max_timeout: float


@dataclass(slots=True, kw_only=True)
class Invoker:
    """Serves requests of one Runtime. fenced: whether the self-fence holds."""

    own: Own
    ask: Ask
    cache: Ownership
    registry: Registry
    dispatcher: Dispatcher
    access: Access
    peers: PeerCaller
    fenced: Callable[[], bool]

    async def admit(self, asked: Asked, *, token: str | None, invocation_id: str) -> Failure | None:
        """None where *token* may do what is asked and there is somewhere to send it; the failure otherwise.

        Nothing is told of a Run before its caller is authorized. Where the Run is unknown only who may list Runs
        learns that there is none, and that answer is not cached.
        """
        if token is None:
            return failure(outcomes.UNAUTHENTICATED, "a bearer token is needed", invocation_id)
        run = await self.cache.seen(asked.path.uid)
        denied = await self._denied(asked, run, token, invocation_id)
        if denied is not None:
            return denied
        return _refusal(self.route(asked), invocation_id)

    def remembered(self, asked: Asked, *, token: str | None, invocation_id: str) -> Failure | Here | Peer | None:
        """As `admit`, from the caches alone, with where the request goes; None where something must be waited for."""
        if token is None:
            return failure(outcomes.UNAUTHENTICATED, "a bearer token is needed", invocation_id)
        run = self.cache.run(asked.path.uid)
        if run is None or not self._ours(asked):
            return None
        verdict = self.access.known(token, self._question(asked, run), uid=asked.path.uid)
        if verdict is None:
            return None
        denied = _denial(verdict, invocation_id)
        if denied is not None:
            return denied
        where = self.route(asked)
        return where if isinstance(where, Here | Peer) else _refusal(where, invocation_id)

    def _ours(self, asked: Asked) -> bool:
        return (asked.path.namespace, asked.path.runtime) == (self.own.namespace, self.own.runtime)

    def _question(self, asked: Asked, run: RouteRun | None) -> Question:
        """What is asked about the caller: the Run, or where it is unknown, whether the caller may list Runs."""
        return Question(
            verb=self.ask.verb if run is not None else "list",
            group=self.ask.group,
            resource=self.ask.resource,
            subresource=self.ask.subresource if run is not None else "",
            namespace=asked.path.namespace,
            name=run.metadata.name if run is not None else "",
        )

    async def _denied(self, asked: Asked, run: RouteRun | None, token: str, invocation_id: str) -> Failure | None:
        known = run if self._ours(asked) else None
        question = self._question(asked, known)
        try:
            verdict = await self.access.check(token, question, uid=asked.path.uid, cache=known is not None)
        except BackendDown as error:
            return failure(outcomes.AUTHORIZATION_UNAVAILABLE, str(error), invocation_id)
        return _denial(verdict, invocation_id)

    def route(self, asked: Asked) -> Route:
        """Where the request goes, at this very moment; no await may lie between this and the dispatch."""
        run = self.cache.run(asked.path.uid)
        held = self.registry.get(asked.path.uid)
        registered = None
        if held is not None:
            registered = Registered(epoch=held.epoch, serving=held.serving and not self.fenced())
        return ownership.route(asked, own=self.own, run=run, registered=registered, owner=self.cache.owner(run))

    def begin(
        self, where: Here | Peer, invocation: Invocation, on_answer: Callable[[Answer | Failure], None]
    ) -> Callable[[], None] | None:
        """As `invoke`, without a task, where the function is here and its link takes the call; None where not.

        where: what `remembered` has found, without an await in between. What is returned is to be called if the caller
        leaves before *on_answer* was.
        """
        if not isinstance(where, Here):
            return None
        held = self.registry.get(where.epoch.run_uid)
        return None if held is None else self.dispatcher.begin(held, invocation, on_answer)

    async def invoke(self, asked: Asked, invocation: Invocation, *, token: str) -> Answer | Failure:
        """Calls the function where it is; *asked* has been admitted, and is routed anew since its body took time."""
        where = self.route(asked)
        if isinstance(where, Here):
            held = self.registry.get(asked.path.uid)
            assert held is not None, "Here names what is held"
            return await self.dispatcher.invoke(held, invocation)
        if isinstance(where, Peer):
            return await self.peers.invoke(where, invocation, token=token)
        refused = _refusal(where, invocation.id)
        assert refused is not None, "every other route is a refusal"
        return refused

    async def cancel(self, asked: Asked, invocation_id: str, *, token: str) -> Failure | None:
        """Cancels one call by its id; None once that has been asked for."""
        where = self.route(asked)
        if isinstance(where, Peer):
            return await self.peers.cancel(where, invocation_id, token=token)
        if isinstance(where, Here) and not self.dispatcher.cancel(asked.path.uid, invocation_id):
            return failure(outcomes.INVOCATION_NOT_FOUND, "no such invocation is in flight", invocation_id)
        return _refusal(where, invocation_id)


def _denial(verdict: Verdict, invocation_id: str) -> Failure | None:
    if verdict is Verdict.ALLOW:
        return None
    if verdict is Verdict.UNAUTHENTICATED:
        return failure(outcomes.UNAUTHENTICATED, "the token is not accepted", invocation_id)
    return failure(outcomes.FORBIDDEN, "the token does not allow this", invocation_id)


def _refusal(where: Route, invocation_id: str) -> Failure | None:
    match where:
        case Here() | Peer():
            return None
        case ownership.NotFound():
            return failure(outcomes.RUN_NOT_FOUND, "there is no such Run", invocation_id)
        case ownership.Ended(reason):
            return failure(outcomes.RUN_ENDED, reason, invocation_id)
        case ownership.NotReady(reason) | ownership.Mismatch(reason):
            return failure(outcomes.NOT_READY, reason, invocation_id)
