"""Lists in pages: each page of one list shows the same moment, as long as the moment is held. Pure."""

import base64
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kruntimes.local.apiserver.status import StatusError, bad_request

Json = dict[str, Any]

MAX_MOMENTS = 32
"""Unfinished lists that are held; a caller whose list was pushed out begins again, as after compaction. What they hold
beyond the objects of now is bounded by the history: see `compact`."""


@dataclass(frozen=True, slots=True)
class Page:
    """Objects of one page, the version of the list, the token of the next page (empty at the end) and what is left."""

    items: Sequence[Json]
    version: int
    token: str = ""
    remaining: int = 0


class Pages:
    """The lists that callers have begun. Objects are immutable, so a moment costs one list of references."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[int, Sequence[Json]]] = OrderedDict()
        self._begun = 0

    def first(self, items: Sequence[Json], version: int, limit: int) -> Page:
        """The first *limit* of *items*; 0 for all."""
        if not limit or len(items) <= limit:
            return Page(items, version)
        self._begun += 1
        self._held[str(self._begun)] = (version, items)
        if len(self._held) > MAX_MOMENTS:
            self._held.popitem(last=False)
        return self._page(str(self._begun), 0, limit)

    def compact(self, version: int) -> None:
        """Forgets every moment before *version*: the history does not reach back there either."""
        while self._held and next(iter(self._held.values()))[0] < version:
            self._held.popitem(last=False)

    def following(self, token: str, limit: int) -> Page:
        """The page that *token* names; raises BadRequest, and Expired where the moment is no longer held."""
        try:
            inner = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            moment, start = str(inner["start"]).split(":")
            at = int(start)
        except (ValueError, TypeError, KeyError):
            raise bad_request("continue key is not valid") from None
        if moment not in self._held or at < 0:
            raise StatusError(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. You must start a new "
                "list without the continue parameter.",
            )
        return self._page(moment, at, limit)

    def _page(self, moment: str, start: int, limit: int) -> Page:
        version, items = self._held[moment]
        end = start + limit if limit else len(items)
        if end >= len(items):
            # It stays held: a client that lost this answer asks for it again.
            return Page(items[start:], version)
        inner = {"v": "meta.k8s.io/v1", "rv": version, "start": f"{moment}:{end}"}
        token = base64.urlsafe_b64encode(json.dumps(inner, separators=(",", ":")).encode()).decode().rstrip("=")
        return Page(items[start:end], version, token, len(items) - end)
