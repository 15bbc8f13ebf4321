"""Keeps a local copy of a collection: list, then watch, for ever. The shell around `reflection`.

A consumer gets keys and reads `store`. Whoever draws conclusions from silence (a heartbeat that does not
change) must also ask `healthy_since`: silence of a broken watch proves nothing.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from kruntimes.common import clock
from kruntimes.common.kube import errors
from kruntimes.common.kube.backoff import draw, wait_after
from kruntimes.common.kube.lines import Lines, LineTooLong
from kruntimes.common.kube.reflection import Broken, Expired, Keyed, Reflection
from kruntimes.common.kube.transport import JSON, Kube, selectors

T = TypeVar("T", bound=Keyed)
log = logging.getLogger(__name__)

SILENCE_SECONDS = 90.0
"""After this without a byte the watch counts as broken: its connection may be half-open."""
IDLE_SECONDS, IDLE_SPREAD = 60.0, 0.2
"""Bookmarks come about once a minute, but not to a collection that nobody writes to. A watch that is silent for this
long is opened anew from its version, below the silence that counts as broken: a request that proves the way is open."""
WATCH_SECONDS, WATCH_SPREAD = 300.0, 0.2
"""The server ends a watch after about this time, not all at once, so that watches spread over replaced API servers."""
SHORT_WATCH_SECONDS = 2.0
"""A watch that ended before this counts as a failure, even without an error: it must not be reopened in a spin."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.25, 20.0
"""Back-off between tries; its cap lies below the 30 s that fences count, so that an outage's end is seen."""
YIELD_EVERY_LINES = 50
"""A burst is worked off in slices: reading what is already buffered never suspends by itself."""

_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""What to accept in order to get a list without specs and statuses."""


class Reflector(Generic[T]):
    """A copy of the collection at *path*, current while `run` runs.

    store: objects by `namespace/name`, or `name` where there is no namespace. synced: set after the first list.
    on_change: called with each key that appeared, changed or went, after the store shows it; it must not block.
    metadata_only: asks the server to leave spec and status out; *type* is then `views.Object`.
    silence: seconds without a byte after which the watch counts as broken. Where silence is taken as proof, choose
    it well below that proof's time, and below IDLE_SECONDS, on a collection that is written to at least that often:
    then nothing but what the watch says keeps it healthy, and no answer to a request for a new one does.
    restarts, relists: counters since the start.
    """

    def __init__(
        self,
        kube: Kube,
        path: str,
        type: type[T],
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        on_change: Callable[[str], None] | None = None,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._kube = kube
        self._path = path
        self._core = Reflection(type)
        self._labels, self._fields = label_selector, field_selector
        self._accept = (f"{_METADATA},{JSON}", f"{METADATA_LIST},{JSON}") if metadata_only else (JSON, JSON)
        self._on_change = on_change
        self._silence = silence
        self._since: float | None = None
        self._heard = float("-inf")
        self._opened: float | None = None
        self._last_trouble = ""
        self.synced = asyncio.Event()
        self.restarts = 0
        self.relists = 0

    @property
    def store(self) -> dict[str, T]:
        """The objects; read it, never write it."""
        return self._core.store

    @property
    def undecodable(self) -> int:
        """How many objects could not be read so far."""
        return self._core.undecodable

    def healthy_since(self) -> float | None:
        """The monotonic time since which the watch has run without a gap; None while it is broken or silent too long.

        A watch that the server ends in time and that goes on from the same version has no gap.
        """
        if self._since is None or clock.monotonic() - self._heard > self._silence:
            return None
        return self._since

    async def run(self) -> None:
        """Lists and watches until cancelled; whatever goes wrong is tried again, with back-off."""
        failures = 0
        while True:
            trouble: Exception | None = None
            self._opened = None
            try:
                if self._core.version is None:
                    await self._relist()
                await self._follow()
            except (Expired, LineTooLong, errors.Gone) as error:
                self._core.expire()
                trouble = error
            except (Broken, errors.ApiError) as error:
                trouble = error if not self._only_idle(error) else None
            lived_long = self._opened is not None and clock.monotonic() - self._opened >= SHORT_WATCH_SECONDS
            failures = (0 if lived_long else failures) + (0 if lived_long and trouble is None else 1)
            if failures:
                self._since = None
            if trouble is not None:
                self._tell(trouble)
            self.restarts += 1
            wait = wait_after(trouble, failures=failures, first=FIRST_WAIT_SECONDS, cap=LONGEST_WAIT_SECONDS)
            await asyncio.sleep(wait)

    async def _relist(self) -> None:
        self._since = None
        items, version = await self._kube.list_raw(
            self._path, label_selector=self._labels, field_selector=self._fields, accept=self._accept[1]
        )
        self.relists += 1
        for key in self._core.replace(items, version):
            self._changed(key)
        self.synced.set()

    async def _follow(self) -> None:
        """Watches from the known version until the stream ends."""
        query = selectors(self._labels, self._fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._core.version or "",
            "timeoutSeconds": str(round(WATCH_SECONDS * (1 - WATCH_SPREAD * draw()))),
        }
        lines, done = Lines(), 0
        silence = min(self._silence, IDLE_SECONDS * (1 - IDLE_SPREAD * draw()))
        async with self._kube.stream(self._path, query=query, accept=self._accept[0], silence=silence) as pieces:
            self._opened = clock.monotonic()
            self._hear(self._opened)
            async for piece in pieces:
                for line in lines.feed(piece):
                    if (key := self._core.apply(line)) is not None:
                        self._changed(key)
                    done += 1
                    if done % YIELD_EVERY_LINES == 0:
                        await asyncio.sleep(0)
                self._hear(clock.monotonic())
                self._tell(None)

    def _only_idle(self, error: Exception) -> bool:
        """Whether a watch was merely given up to be opened anew, before its silence means anything."""
        return isinstance(error, errors.Silent) and self._silence > IDLE_SECONDS

    def _hear(self, now: float) -> None:
        """Something came. After too long a silence, even one of our own making, what was missed is not yet known."""
        if self._since is None or now - self._heard > self._silence:
            self._since = now
        self._heard = now

    def _changed(self, key: str) -> None:
        if self._on_change is not None:
            self._on_change(key)

    def _tell(self, trouble: Exception | None) -> None:
        """One line per change of fortune, not one per try."""
        text = "" if trouble is None else f"{type(trouble).__name__}: {trouble}"
        if text and text != self._last_trouble:
            log.warning("watch broken", extra={"path": self._path, "error": text})
        elif self._last_trouble and not text:
            log.info("watch restored", extra={"path": self._path})
        self._last_trouble = text
