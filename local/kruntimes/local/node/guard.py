"""Removes what the main process would have removed, if it dies before it could (design §10).

A program of its own, started by path with `python -I -S` in a session of its own, so that neither Ctrl-C nor a
kill of the main process's group reaches it. It holds the reading end of a pipe whose writing end is held by the main
process and by every shim: the end of that pipe means that all of them are gone, and with them every process.

    guard.py READ_FD FOLDER

It also keeps the descriptors that it was given otherwise (the claim on the instance's addresses) until then.
"""

import os
import shutil
import signal
import sys


def main(arguments: list[str]) -> None:
    """Waits for the pipe to end, then removes the folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(int(arguments[0]), 4096):
        pass
    shutil.rmtree(arguments[1], ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
