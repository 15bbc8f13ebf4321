"""JSON of objects, made once while an object is new: its size, its line for every watcher, and the answer share it.

Pure but for what it remembers.
"""

from collections import OrderedDict
from typing import Any

import msgspec

Json = dict[str, Any]

KEPT_BYTES = 8 * 1024 * 1024
"""JSON that is kept: what the last writes brought, for those who read it within moments."""

encode = msgspec.json.Encoder().encode


class Encoded:
    """The bytes of objects that do not change. An object is known by its identity, since equal ones may be two."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept: OrderedDict[int, tuple[Json, bytes]] = OrderedDict()
        self._room = kept_bytes

    def size(self, obj: Json) -> int:
        """The length of a newly stored object's JSON, which is kept from now on."""
        data = encode(obj)
        self._kept[id(obj)] = (obj, data)
        self._room -= len(data)
        while self._room < 0 and self._kept:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._room += len(oldest)
        return len(data)

    def of(self, obj: Json) -> bytes:
        """The JSON of *obj*, kept or made now."""
        held = self._kept.get(id(obj))
        return encode(obj) if held is None else held[1]
