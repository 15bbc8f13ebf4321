"""The Authorization header that we act with, kept current while its source rotates.

The client library reads a kubeconfig's `tokenFile` once, and neither it nor an in-cluster token is re-read after
a 401; a projected token lives an hour. So the header comes from here for every request.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from kruntimes.common import clock
from kruntimes.common.api.settings import SettingsError

log = logging.getLogger(__name__)

REREAD_SECONDS = 10.0
"""A kubelet replaces a token at 80 % of its life, minutes before its end: a look this often is enough."""


class Credential(Protocol):
    """Where the Authorization header comes from."""

    async def header(self) -> str | None:
        """The header's value, or None where there is none (a client certificate may still speak for us)."""

    def refused(self) -> None:
        """The server answered 401 to the last header: look at the source again."""


class Fixed:
    """A header that never changes, or none."""

    def __init__(self, value: str | None) -> None:
        self._value = value.strip() if value else None

    async def header(self) -> str | None:
        """The value, always."""
        return self._value

    def refused(self) -> None:
        """Nothing to look at again."""


class TokenFile:
    """A bearer token in a file that somebody else replaces."""

    def __init__(self, path: Path, *, reread: float = REREAD_SECONDS) -> None:
        self._path = path
        self._reread = reread
        self._value: str | None = None
        self._read_at = 0.0

    async def header(self) -> str | None:
        """Reads the file when it was last read long enough ago; a file that cannot be read leaves the last token.

        Raises SettingsError where there never was a token.
        """
        now = clock.monotonic()
        if self._value is not None and now - self._read_at < self._reread:
            return self._value
        try:
            token = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._value is None:
                raise SettingsError(f"token file {self._path}: {error}") from error
            log.warning("token file cannot be read, the last token is kept", extra={"path": str(self._path)})
            token = ""
        if token:
            self._value = f"Bearer {token}"
        elif self._value is None:
            raise SettingsError(f"token file {self._path} is empty")
        self._read_at = now
        return self._value

    def refused(self) -> None:
        """The next header is read from the file."""
        self._read_at = float("-inf")


class Plugin:
    """A header from a program or an identity provider named in a kubeconfig, asked again when it wears out."""

    def __init__(self, value: str | None, renew: Callable[[], Awaitable[str | None]], *, reread: float = 60.0) -> None:
        self._value = value
        self._renew = renew
        self._reread = reread
        self._asked_at = clock.monotonic()

    async def header(self) -> str | None:
        """Asks the source at most once a minute, which keeps what it has until shortly before it expires."""
        now = clock.monotonic()
        if now - self._asked_at >= self._reread:
            self._asked_at = now
            try:
                self._value = await self._renew()
            except Exception:
                log.warning("credential not renewed, the last one is kept", exc_info=True)
        return self._value

    def refused(self) -> None:
        """The next header comes from the source."""
        self._asked_at = float("-inf")
