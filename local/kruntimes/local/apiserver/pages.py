"""Lists in pages: each page of one list shows the same moment, as long as the moment is held. Pure."""

import base64
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.status import StatusError, bad_request

Json = dict[str, Any]

MAX_MOMENTS = 32
"""Unfinished lists that are held; a caller whose list was pushed out begins again, as after compaction."""


@dataclass(frozen=True, slots=True)
class Page:
    """Objects of one page, the version of the list, the token of the next page (empty at the end) and what is left."""

    items: Sequence[Json]
    version: int
    token: str
    remaining: int


class Pages:
    """The lists that callers have begun. Objects are immutable, so a moment costs one list of references."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, tuple[int, Sequence[Json]]] = OrderedDict()
        self._next = 0

    def first(self, items: Sequence[Json], version: int, limit: int) -> Page:
        """The first *limit* of *items*; 0 for all."""
        if not limit or len(items) <= limit:
            return Page(items, version, "", 0)
        self._next += 1
        self._held[self._next] = (version, items)
        if len(self._held) > MAX_MOMENTS:
            self._held.popitem(last=False)
        return self._page(self._next, 0, limit)

    def following(self, token: str, limit: int) -> Page:
        """The page that *token* names; raises BadRequest, and Expired where the moment is no longer held."""
        try:
            number, start = (int(part) for part in base64.urlsafe_b64decode(token).split(b"."))
        except ValueError:
            raise bad_request("continue key is not valid: illegal base64 data") from None
        if number not in self._held or start < 0:
            raise StatusError(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. You must start a new "
                "list without the continue parameter.",
            )
        return self._page(number, start, limit)

    def _page(self, number: int, start: int, limit: int) -> Page:
        version, items = self._held[number]
        end = start + limit if limit else len(items)
        if end >= len(items):
            # It stays held: a client that lost this answer asks for it again.
            return Page(items[start:], version, "", 0)
        token = base64.urlsafe_b64encode(b"%d.%d" % (number, end)).decode()
        return Page(items[start:end], version, token, len(items) - end)
