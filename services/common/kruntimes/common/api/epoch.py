"""The epoch of a registration: which attempt of which Run on which Pod (design §5, "Fences").

Every internal request carries the epoch that it expects, in `x-kr-epoch`, and is refused on mismatch.
"""

import re
from typing import Self

import msgspec

HEADER = "x-kr-epoch"
HOP_HEADER = "x-kr-hop"
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
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError("not an epoch of the form UID/ATTEMPT/POD_UID")
        return cls(match[1], int(match[2]), match[3])
