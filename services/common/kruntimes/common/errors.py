"""Errors by whose fault they are and what the caller should do (style §7).

Foreign exceptions end at the shell and become one of these. No message holds a token, payload or body.
"""


class KruntimesError(Exception):
    """Root of every error that is raised on purpose."""


class Denied(KruntimesError):
    """The caller may not do this; repeating it will not help."""


class NotFound(KruntimesError):
    """The thing does not exist, or no longer."""


class NotReady(KruntimesError):
    """Nothing was done; the same request may succeed later."""


class Busy(KruntimesError):
    """Nothing was done because a bound was reached; the same request may succeed soon."""


class Unknown(KruntimesError):
    """Whether it was done is not known; never repeated without asking."""


class Terminal(KruntimesError):
    """It failed in a way that a repeat cannot mend."""
