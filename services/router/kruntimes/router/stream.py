"""One Envoy's stream as a machine without I/O: its subscriptions, and the order in which it is answered.

The shell feeds requests and changes in, and takes responses out, one at a time.
"""

from collections.abc import Iterable

from kruntimes.router.discovery import Request, Response
from kruntimes.router.encode import CLUSTERS, ROUTES, SCOPES
from kruntimes.router.snapshot import Key, Snapshot
from kruntimes.router.subscription import Reply, Subscription

ORDER = (CLUSTERS, SCOPES, ROUTES)
"""What is referred to comes first: a cluster before the routes that lead to it."""
MAX_TYPES = 16
"""Envoy knows fewer types than this; a client that asks for more is not one."""
_WILDCARD = frozenset({CLUSTERS, SCOPES})


class TooManyTypes(ValueError):
    """A client asks for more types of resources than exist."""


class Stream:
    """The state of one stream; each method takes effect at once and returns what follows from it."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}
        self._last_nonce = 0

    def receive(self, request: Request) -> Reply:
        """Takes one request; a type that is not published is answered with nothing. Raises TooManyTypes."""
        type_url = request.type_url
        known = self._subscriptions.get(type_url)
        if known is not None:
            self._subscriptions[type_url], reply = known.receive(request)
            return reply
        if len(self._subscriptions) == MAX_TYPES:
            raise TooManyTypes
        opened = Subscription.open(request, wildcard=type_url in _WILDCARD)
        self._subscriptions = dict(sorted([*self._subscriptions.items(), (type_url, opened)], key=_rank))
        return Reply.NONE

    def changed(self, keys: Iterable[Key]) -> None:
        """Notes that these resources were published anew or withdrawn."""
        names: dict[str, list[str]] = {}
        for type_url, name in keys:
            names.setdefault(type_url, []).append(name)
        for type_url, changed in names.items():
            if type_url in self._subscriptions:
                self._subscriptions[type_url] = self._subscriptions[type_url].changed(changed)

    def next(self, snapshot: Snapshot) -> Response | None:
        """A response that is due, which is under way from now on; None when there is none.

        *snapshot* must hold every change that was noted: ask for the current one each time.
        """
        for type_url, subscription in self._subscriptions.items():
            after, response = subscription.next(snapshot, nonce=str(self._last_nonce + 1))
            self._subscriptions[type_url] = after
            if response is not None:
                self._last_nonce += 1
                return response
        return None

    @property
    def under_way(self) -> frozenset[str]:
        """The types of which a response is not yet acknowledged."""
        return frozenset(type_url for type_url, each in self._subscriptions.items() if each.flight is not None)


def _rank(item: tuple[str, Subscription]) -> int:
    return ORDER.index(item[0]) if item[0] in ORDER else len(ORDER)
