"""One Envoy's stream as a value of its own: its subscriptions, and the order in which it is answered.

No I/O: the shell feeds requests and changes in, and takes responses out.
"""

from collections.abc import Iterable, Iterator

from kruntimes.router.discovery import Request, Response
from kruntimes.router.encode import CLUSTERS, ROUTES, SCOPES
from kruntimes.router.snapshot import Key, Snapshot
from kruntimes.router.subscription import Reply, Subscription

ORDER = (CLUSTERS, SCOPES, ROUTES)
"""What is referred to comes first: a cluster before the routes that lead to it."""
_WILDCARD = frozenset({CLUSTERS, SCOPES})


class UnknownType(ValueError):
    """A client asks for a type of resource that is not served here."""


class Stream:
    """The state of one stream; each method takes effect at once and returns what follows from it."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}
        self._last_nonce = 0

    def receive(self, request: Request) -> Reply:
        """Takes one request. Raises UnknownType."""
        if request.type_url not in ORDER:
            raise UnknownType(request.type_url)
        known = self._subscriptions.get(request.type_url)
        if known is None:
            self._subscriptions[request.type_url] = Subscription.open(request, wildcard=request.type_url in _WILDCARD)
            return Reply.NONE
        self._subscriptions[request.type_url], reply = known.receive(request)
        return reply

    def changed(self, keys: Iterable[Key]) -> None:
        """Notes that these resources were published anew or withdrawn."""
        names: dict[str, list[str]] = {}
        for type_url, name in keys:
            names.setdefault(type_url, []).append(name)
        for type_url, changed in names.items():
            if type_url in self._subscriptions:
                self._subscriptions[type_url] = self._subscriptions[type_url].changed(changed)

    def responses(self, snapshot: Snapshot) -> Iterator[Response]:
        """What may be sent now: at most one response of each type, under way as soon as it is yielded."""
        for type_url in ORDER:
            subscription = self._subscriptions.get(type_url)
            if subscription is None:
                continue
            nonce = str(self._last_nonce + 1)
            self._subscriptions[type_url], response = subscription.next(snapshot, nonce=nonce)
            if response is not None:
                self._last_nonce += 1
                yield response
