"""The first of krt's code that runs: from here on Ctrl-C ends a command in its own way, and without a traceback.

Most of a start is spent with imports, which an exception could interrupt anywhere. Until something exists that has to
be ended in order, the process just ends: `krt dev` with 0, every other command with 130.
"""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """Entry point of `krt`."""
    dev = sys.argv[1:2] == ["dev"]

    def end(_number: int, _frame: FrameType | None) -> None:
        os._exit(0 if dev else INTERRUPTED)

    if dev or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    from kruntimes.cli import main as commands

    if signal.getsignal(signal.SIGINT) is end and not dev:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    commands.main()
