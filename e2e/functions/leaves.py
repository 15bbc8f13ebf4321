"""Ends its own process in the middle of a call."""

import os
import signal
import sys


def handler(event):
    how = event.get("how")
    if how == "exit-0":
        sys.exit(0)
    elif how == "exit-3":
        sys.exit(3)
    elif how == "os-exit-0":
        os._exit(0)
    elif how == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "memory":
        raise MemoryError
    return "alive"
