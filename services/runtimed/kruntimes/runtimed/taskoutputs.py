"""What a task hands out: lines `KEY=VALUE` in the file that $KRUNTIME_OUTPUTS names (design §4, "outputs").

The file lies beside the task's working directory, where user code may have put anything: it is opened without
following a link, read up to a bound, and held to the bounds of the API before any of it reaches a status.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from kruntimes.common.api import outputs
from kruntimes.common.errors import Terminal

VARIABLE = "KRUNTIME_OUTPUTS"
"""The name is part of the public contract."""
MAX_FILE_BYTES = 2 * outputs.MAX_TOTAL_BYTES
"""Room for keys that are written again and again; the last value counts."""


def parse(text: str) -> dict[str, str]:
    """The outputs in *text*, one `KEY=VALUE` on each line; blank lines are skipped, the last value of a key counts.

    Raises Terminal with a sentence that names the line or the bound, and never what stands in it.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if not line:
            continue
        key, separator, value = line.partition("=")
        if not separator or not key:
            raise Terminal(f"line {number} of ${VARIABLE} is not KEY=VALUE")
        found[key] = value
    return checked(found)


def checked(found: Mapping[str, str]) -> dict[str, str]:
    """*found*, within the bounds of the API. Raises Terminal."""
    if (broken := outputs.violation(found)) is not None:
        raise Terminal(f"${VARIABLE}: {broken}")
    return dict(found)


def read(path: Path) -> dict[str, str]:
    """The outputs in the file *path*; none where there is no such file. Blocking. Raises Terminal."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Terminal(f"${VARIABLE} cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Terminal(f"${VARIABLE} is not a file any more")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > MAX_FILE_BYTES:
        raise Terminal(f"${VARIABLE} has more than {MAX_FILE_BYTES} bytes")
    try:
        return parse(data.decode())
    except UnicodeDecodeError as error:
        raise Terminal(f"${VARIABLE} is not UTF-8") from error
