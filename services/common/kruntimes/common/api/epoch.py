"""The epoch of a registration: which attempt of which Run on which Pod (design §5, "Fences").

Every internal request carries the epoch that it expects, in `x-kr-epoch`, and is refused on mismatch.
"""

import functools
import re
from typing import Self

import msgspec

HEADER = "x-kr-epoch"
HOP_HEADER = "x-kr-hop"
MAX_CHARS = 517
"""Two UIDs of 253, nine digits and what is between them."""
REMEMBERED = 4096
"""Some 2 MB: every call of a function carries one and the same epoch."""
_UID = r"[0-9a-z][0-9a-z-]{0,252}"
_FORM = re.compile(rf"({_UID})/([1-9][0-9]{{0,8}})/({_UID})")


class Epoch(msgspec.Struct, frozen=True, order=True):
    """Run UID, one-based registration attempt, UID of the assigned Pod."""

    run_uid: str
    attempt: int
    pod_uid: str

    def __str__(self) -> str:
        return f"{self.run_uid}/{self.attempt}/{self.pod_uid}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `UID/ATTEMPT/POD_UID`; raises ValueError for anything else."""
        fields = _fields(text) if len(text) <= MAX_CHARS else None
        if fields is None:
            raise ValueError("not an epoch of the form UID/ATTEMPT/POD_UID")
        return cls(*fields)


@functools.lru_cache(REMEMBERED)
def _fields(text: str) -> tuple[str, int, str] | None:
    match = _FORM.fullmatch(text)
    return None if match is None else (match[1], int(match[2]), match[3])
