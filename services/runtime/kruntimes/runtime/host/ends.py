"""How a process ended, in words. Pure."""

import signal


def how_it_ended(returncode: int) -> str:
    """Such as `exited with status 3`. returncode: negative for a signal, as `subprocess` gives it."""
    if returncode >= 0:
        return f"exited with status {returncode}"
    name = signal_name(-returncode)
    return f"was killed by signal {-returncode}" + (f" ({name})" if name else "")


def signal_name(number: int) -> str:
    """Such as `SIGKILL`; empty where the number has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
