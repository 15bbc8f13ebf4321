"""When the parts of a log were written, as its shim wrote it down beside it (design §10).

`FILE.times` is a row of pairs of 8-byte little-endian numbers. The first is the inode of the log that it belongs to,
and 0; each other one is an offset in that log, and the nanoseconds since 1970 at which what begins there was written.
"""

import os
import struct
from bisect import bisect_right
from pathlib import Path
from typing import BinaryIO

from kruntimes.local.node.shim import TIMES, TURNED

PAIR = struct.Struct("<QQ")


class Times:
    """The times of one log file. `read` as it grows; `at` for an offset."""

    def __init__(self, log: Path, *, inode: int) -> None:
        """Finds the file that belongs to the log of that inode, turned over or not; there may be none."""
        self._offsets: list[int] = []
        self._moments: list[int] = []
        self._stream: BinaryIO | None = None
        for name in (f"{log}{TIMES}", f"{log}{TIMES}{TURNED}"):
            try:
                stream = open(name, "rb", buffering=0)  # noqa: SIM115
            except OSError:
                continue
            head = stream.read(PAIR.size)
            if len(head) == PAIR.size and PAIR.unpack(head)[0] == inode:
                self._stream = stream
                break
            stream.close()

    def read(self) -> None:
        """Takes up what was added; what is only half there yet is read the next time."""
        if self._stream is None:
            return
        data = self._stream.read()
        whole = len(data) - len(data) % PAIR.size
        self._stream.seek(whole - len(data), os.SEEK_CUR)
        for offset, moment in PAIR.iter_unpack(data[:whole]):
            self._offsets.append(offset)
            self._moments.append(moment)

    def at(self, offset: int) -> int:
        """When the byte at *offset* was written; 0 where that is not known."""
        found = bisect_right(self._offsets, offset)
        return self._moments[found - 1] if found else 0

    def close(self) -> None:
        """Closes the file."""
        if self._stream is not None:
            self._stream.close()
