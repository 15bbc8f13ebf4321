"""A process closed to others of its own user: user code may run as the same one (design §7)."""

import ctypes
import os

_PR_SET_DUMPABLE = 4


def protect() -> None:
    """Nobody of the same user may read this process's memory, environment or descriptors, nor trace it.

    Exec undoes it, fork does not. Root is not kept out. Needs no privileges; raises OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(_PR_SET_DUMPABLE, zero, zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
